"""Exceptions of the hook.

HookError
├── RingError          the ring file cannot be created, read or written
│   └── CorruptRing    the file is no ring of a known version
├── SettingsError      a SPECSCOPE_* variable has an invalid value
├── PolicyError        an invalid policy; the one in force stays
└── NotSupported       the hook does not support this engine or version

None of them reaches the serving engine: the hook catches it, logs it once, and detaches.
"""

from __future__ import annotations


class HookError(Exception):
    """Root of all exceptions of the hook."""


class RingError(HookError):
    """The ring file cannot be created, read or written."""


class CorruptRing(RingError):
    """The file is no ring, or a ring of an unknown version."""


class SettingsError(HookError):
    """A SPECSCOPE_* variable has an invalid value."""


class PolicyError(HookError):
    """An invalid policy; the one in force stays."""


class NotSupported(HookError):
    """The hook does not support this engine; the message has the reason."""
