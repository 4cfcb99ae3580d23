"""Everything that a system holds, as plain values, so that two systems can be compared."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from producers.connection import connect
from producers.keys import Keys
from producers.settings import LANES, Settings
from query.models import Models
from query.question import Question
from query.recall import Recaller
from workers.stores.catalog import Catalog
from workers.stores.lance_connection import LanceConnection
from workers.stores.scope import Scope
from workers.stores.tables import METADATA
from workers.stores.vectors import VectorStore


@dataclass
class Everything:
    """Rows by table, vector rows by space, entries by stream; each in a fixed order."""

    catalog: dict[str, list[tuple[Any, ...]]]
    vectors: dict[str, list[dict[str, Any]]]
    streams: dict[str, list[Any]]


def everything(settings: Settings) -> Everything:
    """What there is now. Redis must run."""
    catalog = Catalog.open(settings.catalog_location)
    lance = LanceConnection(settings.vectors_location)
    with catalog.snapshot() as connection:
        tables = {
            name: sorted(map(tuple, connection.execute(sa.select(table))), key=repr)
            for name, table in METADATA.tables.items()
        }
    vectors: dict[str, list[dict[str, Any]]] = {}
    for stored in catalog.spaces.all():
        rows = lance.read(stored.space, lambda table: table.search().to_arrow().to_pylist(), [])
        vectors[stored.space.id] = sorted(rows, key=lambda row: row["vector_id"])
    catalog.close()
    keys = Keys(settings.key_prefix)
    with connect(settings) as client:
        streams = {name: client.xrange(name) for name in (*map(keys.stream, LANES), keys.dead)}
    return Everything(tables, vectors, streams)


def ask(settings: Settings, question: str) -> list[tuple[str, float]]:
    """(content, score) of what recall finds for tenant `default`, best first; nothing may be degraded."""
    with closing(Catalog.open(settings.catalog_location)) as catalog:
        active = catalog.spaces.active()
        assert active is not None
        recaller = Recaller(settings, catalog, VectorStore(settings.vectors_location), Models(settings, active))
        answer = recaller.recall(Question(question, Scope("default"), k=50))
    assert answer.degraded == []
    return [(hit.content, round(hit.score, 5)) for hit in answer.hits]
