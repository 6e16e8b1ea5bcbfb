"""A ring and its recorder for this process, as the settings say."""

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
    """Make the ring `<SPECSCOPE_RINGS>/<replica>-<boot>.ring` and the recorder that fills it.

    clock: what the recorder reads; the machine's, if not given.
    Raises RingError with the reason where that is not possible; nothing is left behind.
    """
    if settings.rings is None:
        raise RingError("SPECSCOPE_RINGS is off")
    limit_leftovers(settings.rings, settings.ring_bytes)
    name = f"{boot.replica}-{boot.boot}.ring".replace("/", "_")
    ring = Ring.create(settings.rings / name, boot, settings.ring_bytes)
    return ring, Recorder(ring, salt=settings.salt or secrets.token_bytes(16), clock=clock)
