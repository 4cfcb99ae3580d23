"""The embedding spaces that a catalog knows: the one that recall reads, and those beside it. Does I/O."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Literal, get_args

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, RowMapping

from producers.errors import ModelError
from workers.stores.engine import reading, write_transaction
from workers.stores.index_search import DEFAULT_SEARCH, IndexSearch
from workers.stores.space import Space
from workers.stores.tables import spaces

State = Literal["active", "building", "standby"]
"""Recall reads the one active space; every turn is written to all of them."""
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class StoredSpace:
    """A space as the catalog knows it, and how to load its model."""

    space: Space
    setting: str
    """The `embedder` setting that loads the model."""
    scripts: frozenset[str] | None
    """Writing systems the model speaks; None means all."""
    state: State = "active"
    search: IndexSearch = DEFAULT_SEARCH
    """How its vector index is asked."""


class Spaces:
    """The spaces of one catalog; each call is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def active(self) -> StoredSpace | None:
        """The space that recall reads; None before the first worker has started."""
        with reading(self._engine) as connection:
            return _active(connection)

    def all(self) -> list[StoredSpace]:
        """Every space that turns are written to, oldest first."""
        with reading(self._engine) as connection:
            query = sa.select(spaces).order_by(spaces.c.created_at_us, spaces.c.id)
            return [_stored(row) for row in connection.execute(query).mappings()]

    def search(self, space: Space) -> IndexSearch:
        """How the space's vector index is asked at present; the defaults for a space that is not known."""
        with reading(self._engine) as connection:
            text = connection.execute(sa.select(spaces.c.search).where(spaces.c.id == space.id)).scalar()
            return IndexSearch.from_text(text)

    def set_search(self, space: Space, search: IndexSearch) -> None:
        """From now on the space's vector index is asked like this."""
        with write_transaction(self._engine) as connection:
            connection.execute(spaces.update().where(spaces.c.id == space.id).values(search=search.as_text()))

    def adopt(self, wanted: StoredSpace) -> None:
        """Make `wanted` the active space if there is none yet. Raises `ModelError` when another one is active."""
        with write_transaction(self._engine) as connection:
            active = _active(connection)
            if active is None:
                connection.execute(spaces.insert(), _row(wanted))
                return
        if active.space != wanted.space:
            raise ModelError(
                f"this catalog's vectors were made by {describe(active.space)}; the settings ask for "
                f"{describe(wanted.space)}. Vectors of two models never mix: set the embedder and chunk settings "
                "back, or use another data dir"
            )


def describe(space: Space) -> str:
    """A space in a message."""
    return (
        f"{space.embedder} ({space.dimension} dimensions, chunks of {space.chunk_tokens} tokens "
        f"with {space.chunk_overlap} shared)"
    )


def _active(connection: Connection) -> StoredSpace | None:
    row = connection.execute(sa.select(spaces).where(spaces.c.state == "active")).mappings().first()
    return None if row is None else _stored(row)


def _stored(row: RowMapping) -> StoredSpace:
    scripts = frozenset(json.loads(row["scripts"])) if row["scripts"] is not None else None
    space = Space(row["embedder"], row["dimension"], row["chunk_tokens"], row["chunk_overlap"])
    return StoredSpace(space, row["setting"], scripts, row["state"], IndexSearch.from_text(row["search"]))


def _row(stored: StoredSpace) -> dict[str, object]:
    now = time.time_ns() // 1000
    return {
        **asdict(stored.space),
        "id": stored.space.id,
        "setting": stored.setting,
        "scripts": json.dumps(sorted(stored.scripts)) if stored.scripts is not None else None,
        "created_at_us": now,
        "state": stored.state,
        "state_since_us": now,
    }
