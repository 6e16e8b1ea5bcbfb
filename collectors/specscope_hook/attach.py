"""Create a ring and its recorder for this process, from the settings."""

from __future__ import annotations

import secrets

from specscope_hook.clock import Clock
from specscope_hook.errors import RingError
from specscope_hook.leftovers import limit_leftovers
from specscope_hook.recorder import Recorder
from specscope_hook.records import Boot
from specscope_hook.ring import Ring
from specscope_hook.settings import HookSettings


def attach(settings: HookSettings, boot: Boot, clock: Clock | None = None) -> tuple[Ring, Recorder]:
    """Create the ring `<SPECSCOPE_RINGS>/<replica>-<boot>.ring` and its recorder.

    clock: the recorder's clock (default: the machine's). Raises RingError with the reason and
    leaves no file behind.
    """
    if settings.rings is None:
        raise RingError("SPECSCOPE_RINGS is off")
    limit_leftovers(settings.rings, settings.ring_bytes)
    name = f"{boot.replica}-{boot.boot}.ring".replace("/", "_")
    ring = Ring.create(settings.rings / name, boot, settings.ring_bytes)
    return ring, Recorder(ring, salt=settings.salt or secrets.token_bytes(16), clock=clock)
