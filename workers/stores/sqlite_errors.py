"""What a failure of SQLite means for whoever reads of it: what is safe, and what to do. No I/O."""

from __future__ import annotations

SAFE = "accepted turns are safe and are stored by themselves once this is put right"
FOLDER_ADVICE = f"; {SAFE}: make it writable, and see that its disk has room"
_ADVICE = {
    "SQLITE_FULL": f"; {SAFE}: free space on its disk",
    # Also what a quota or a size limit looks like.
    "SQLITE_IOERR": f"; {SAFE}: see whether its disk is full, over a quota or failing",
    "SQLITE_READONLY": f"; {SAFE}: make the file and its folder writable",
    "SQLITE_CANTOPEN": (
        f"; {SAFE}: make the file and its folder writable, which SQLite needs even to read, and see that the disk "
        "has room"
    ),
}
"""By primary result code, https://sqlite.org/rescode.html."""


def advice(error: BaseException) -> str:
    """What is safe and what to do, as the end of a sentence; empty for a failure without advice of its own."""
    code = "_".join(str(getattr(error, "sqlite_errorname", "")).split("_")[:2])
    return _ADVICE.get(code, "")
