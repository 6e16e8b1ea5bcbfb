"""Exceptions of the sidecar.

AgentError
├── SpoolError     the spool cannot be created, or its disk has failed
└── ProtocolError  an answer of the service cannot be read
"""

from __future__ import annotations


class AgentError(Exception):
    """Root of all exceptions of the sidecar."""


class SpoolError(AgentError):
    """The spool cannot be created, read or written."""


class ProtocolError(AgentError):
    """The service's answer is not a valid message, or was damaged in transit."""
