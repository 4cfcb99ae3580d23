"""Room on the disk for work that can wait. Does I/O: asks the file system."""

from __future__ import annotations

from producers.errors import StoreUnavailable
from workers.disk import free_bytes, shown_size

RESERVED_BYTES = 64 << 20
"""Room that maintenance leaves: it can wait, and turns on their way into the stores cannot do without it."""


def check_room(location: str, size_bytes: int) -> None:
    """A rewrite needs as much again as the newest version takes, until the version before it may go.

    Raises `StoreUnavailable`: what a rewrite that fails has written may stay there, where there was least room.
    """
    free = free_bytes(location)
    needed = size_bytes + RESERVED_BYTES
    if free is not None and free < needed:
        raise StoreUnavailable(
            f"maintenance of {location} needs {shown_size(needed)} and its disk has {shown_size(free)}: "
            "it waits; every turn is found meanwhile, only more slowly. Free space there"
        )
