"""How far ingest has come: what still waits between an accepted push and recall. Does I/O; reads only, and is light."""

from __future__ import annotations

from dataclasses import dataclass

from producers.connection import connect, mapped_errors
from producers.errors import NotReady
from producers.keys import Keys
from producers.settings import LANES, Settings
from producers.spool import spooled
from producers.stream import read_backlog


@dataclass(frozen=True)
class Progress:
    """Turns on their way and turns that have arrived."""

    in_streams: int
    """Entries of both lanes that are not stored yet, and events spooled on this machine."""
    pending: int
    """Turns in the catalog whose vectors are not known to be stored."""
    dead: int
    """Dead letters: accepted, and not going to arrive by themselves."""
    turns: int

    @property
    def waiting(self) -> int:
        """Accepted turns that recall cannot return yet, dead letters aside."""
        return self.in_streams + self.pending


def in_streams(settings: Settings) -> tuple[int, int]:
    """(entries not stored yet and events spooled in this data dir, dead letters). Raises `StreamUnavailable`."""
    keys = Keys(settings.key_prefix)
    on_disk = spooled(settings).events  # before the streams: what is sent in between is counted twice, not missed
    with mapped_errors(settings), connect(settings) as client:
        waiting = sum(read_backlog(client, keys.stream(lane)).length for lane in LANES)
        return on_disk + waiting, int(client.xlen(keys.dead))


def read_progress(settings: Settings) -> Progress:
    """Spool and streams first, then the catalog: what leaves the one in between is counted in the other."""
    from workers.stores.catalog import Catalog, CatalogCounts

    waiting, dead = in_streams(settings)
    try:
        catalog = Catalog.open(settings.catalog_location)
    except NotReady:  # nothing has been stored yet
        counts = CatalogCounts(0, 0, 0)
    else:
        counts = catalog.counts()
        catalog.close()
    return Progress(waiting, counts.pending, dead, counts.turns)
