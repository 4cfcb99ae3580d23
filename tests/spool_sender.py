"""What a sender does to the files of a spool, without a Redis."""

from __future__ import annotations

from producers.spool import Spool
from producers.spool_file import locked


def held(spool: Spool) -> list[bytes]:
    """What a sender would find, in its order."""
    found = []
    for path in spool.paths():
        with locked(path) as file:
            assert file is not None
            found += [record.payload for record in file.unsent()]
    return found


def send(spool: Spool, count: int) -> list[bytes]:
    """Take the first `count` events out, as a sender does: advance, and remove what is empty."""
    sent: list[bytes] = []
    for path in spool.paths():
        with locked(path) as file:
            assert file is not None
            records = file.unsent()[: count - len(sent)]
            if records:
                file.advance(records[-1].end)
                sent += [record.payload for record in records]
            if not file.unsent():
                file.remove()
    return sent
