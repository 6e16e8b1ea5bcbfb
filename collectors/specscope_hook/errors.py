"""What can go wrong in the hook.

HookError
├── RingError          the ring file cannot be made, read or written
│   └── CorruptRing    what is in it is not a ring of a version we know
├── SettingsError      a SPECSCOPE_* variable with a value that means nothing
├── PolicyError        a policy that is not one; the old one stays in force
└── NotSupported       this engine, or this version of it, cannot be hooked

None of them leaves the serving process: the hook catches, says so once, and detaches.
"""

from __future__ import annotations


class HookError(Exception):
    """Root of everything the hook raises."""


class RingError(HookError):
    """The ring file cannot be made, read or written."""


class CorruptRing(RingError):
    """The file is not a ring, or one of a version that we do not know."""


class SettingsError(HookError):
    """A SPECSCOPE_* variable has a value that means nothing."""


class PolicyError(HookError):
    """A policy that cannot be followed; the one in force stays."""


class NotSupported(HookError):
    """The engine at hand cannot be hooked, and why."""
