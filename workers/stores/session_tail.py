"""The newest turns of one session out of the catalog. Does I/O on it."""

from __future__ import annotations

import sqlalchemy as sa

from producers.events import TurnEvent
from workers.stores.catalog import Catalog
from workers.stores.tables import turns


def session_tail(catalog: Catalog, tenant: str, session_id: str, count: int) -> list[TurnEvent]:
    """At most `count` turns with the highest indexes, in the order in which they were said."""
    query = sa.select(turns.c.turn_key).where(turns.c.tenant == tenant, turns.c.session_id == session_id)
    with catalog.snapshot() as connection:
        keys = list(connection.execute(query.order_by(turns.c.turn_index.desc()).limit(count)).scalars())
    found = [stored.event for stored in catalog.stored_turns(keys).values()]
    return sorted(found, key=lambda event: event.turn_index)
