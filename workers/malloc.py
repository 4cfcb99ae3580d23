"""How this process asks for memory, where the C library lets it choose. No I/O."""

from __future__ import annotations

import ctypes
import sys

ARENAS = 2
"""glibc gives each thread that allocates an arena of its own, up to eight a core, and hardly returns what is freed in
one: a worker's memory grows with every merge_insert (lance#7242)."""
_M_ARENA_MAX = -8
"""From malloc.h of glibc."""


def share_arenas() -> None:
    """Have all threads allocate from `ARENAS` arenas; to be called before there are threads. Only glibc knows how."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, ARENAS)
