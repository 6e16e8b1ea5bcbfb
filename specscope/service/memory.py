"""Return unused memory to the system.

This process has three allocators: the embedded engine's, Arrow's and the C library's. Each keeps
pages for the next peak, in every thread that had one. So resident memory would rise for hours
although the used memory stays constant.
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
    """Exclude all loaded modules from later garbage collections. A full collection over them would
    stop every stream for a tenth of a second."""
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
