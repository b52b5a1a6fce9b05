"""Tells allocators when to keep the memory of freed arrays, and when to return it to the system.

``plan`` keeps it while blocks of rows come and go; ``staging`` returns it between the steps of an addition, whose next
step, or whose workers, would otherwise need other memory in addition.
"""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np

from registry.shards.arrow_values import import_pyarrow

_MOST_FREED_BYTES: Final = 31 * 2**20  # glibc's limit is 32 MiB


def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed arrays for the next ones: an addition takes a tenth less time.

    Arrays of a few MB come and go for every block of rows. glibc returns their memory to the system each time, until a
    block is freed that was larger: then it keeps freed memory up to twice that size. Other libraries are not affected.
    """
    np.empty(_MOST_FREED_BYTES, np.uint8)


def return_freed_memory() -> None:
    """Return freed memory of pyarrow and of glibc to the system, in a few milliseconds: often more than 100 MB.

    glibc keeps it for each thread that has ever needed memory, readers and writers among them.
    """
    import_pyarrow().default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries do not have it
    if trim is not None:
        trim(0)
