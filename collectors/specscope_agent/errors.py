"""What can go wrong in the sidecar.

AgentError
└── SpoolError     the spool cannot be made, or its disk is gone
"""

from __future__ import annotations


class AgentError(Exception):
    """Root of everything the sidecar raises."""


class SpoolError(AgentError):
    """The spool cannot be made, read or written."""
