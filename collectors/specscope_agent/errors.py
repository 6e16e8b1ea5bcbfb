"""What can go wrong in the sidecar.

AgentError
├── SpoolError     the spool cannot be made, or its disk is gone
└── UplinkError    the service refuses us for good
"""

from __future__ import annotations


class AgentError(Exception):
    """Root of everything the sidecar raises."""


class SpoolError(AgentError):
    """The spool cannot be made, read or written."""


class UplinkError(AgentError):
    """The service refuses this sidecar for good."""
