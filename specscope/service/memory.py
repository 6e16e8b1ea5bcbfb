"""Memory that nothing uses any more, given back to the system.

Three allocators serve this process: the embedded engine's, Arrow's and the C library's. Each keeps
pages for the next peak, in every thread that had one, so resident memory would creep up for
hours although what is in use stays the same.
"""

from __future__ import annotations

import ctypes
import gc
import logging

import pyarrow as pa

from specscope.errors import StoreError
from specscope.store.connection import Store

log = logging.getLogger(__name__)

EVERY_S = 60.0  # it costs a few milliseconds, and the next peak its page faults


def settle() -> None:
    """Leave all that a service has loaded out of later searches for garbage: a full one, which
    looks at each module's objects, would hold up every stream for a tenth of a second."""
    gc.collect()
    gc.freeze()


def give_back(store: Store) -> None:
    """Release unused pages. store: a session for this thread alone."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
    if store.embedded:
        try:
            store.command("SYSTEM JEMALLOC PURGE")
        except StoreError as error:  # an engine that was built with another allocator
            log.debug("%s", error)
