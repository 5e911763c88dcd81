"""Keep memory that one training step has freed for the next one, where the C library would give it back.

A step on a CPU makes and frees some tens of megabytes. The GNU C library returns them to the system after each step,
and the system then fills every page with zeros again before the next one. This took a tenth of a step or more
(docs/performance.md). With another C library nothing is changed.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of malloc.h
KEPT_BYTES = 512 * 2**20  # of freed memory at most
MAPPED_BYTES = 64 * 2**20  # blocks of this size, such as whole data sets, still go back at once
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Tell malloc to keep what is freed, for the rest of this process, and return whether it does.

    A user's own setting in the environment wins.
    """
    if any(os.environ.get(name) for name in SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(mallopt(MMAP_THRESHOLD, MAPPED_BYTES) and mallopt(TRIM_THRESHOLD, KEPT_BYTES))
