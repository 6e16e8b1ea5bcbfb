"""What can go wrong in the sidecar.

AgentError
├── SpoolError     the spool cannot be made, or its disk is gone
└── ProtocolError  an answer of the service cannot be read
"""

from __future__ import annotations


class AgentError(Exception):
    """Root of everything the sidecar raises."""


class SpoolError(AgentError):
    """The spool cannot be made, read or written."""


class ProtocolError(AgentError):
    """The service's answer is no message of the contract, or was damaged on its way."""
