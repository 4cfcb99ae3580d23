"""The embedding spaces that a catalog knows: the one that recall reads, and those beside it. Does I/O.

    building ──switch──▶ active ──switch to another──▶ standby ──after a while──▶ dropping ──▶ gone
        └──────────cancel───────────────────────────────────────────────────────▲

A standby whose model is asked for anew is building again, and what it was before when that is cancelled. Every turn is
written to the first three, so that reads can be switched to and fro in one transaction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, RowMapping

from producers.errors import ModelError, NotReady, StoreUnavailable, UsageError
from producers.events import from_utc_microseconds
from workers.stores.engine import reading, write_transaction
from workers.stores.index_search import DEFAULT_SEARCH, IndexSearch
from workers.stores.space import Space
from workers.stores.space_filling import filled_and_turns
from workers.stores.tables import spaces

State = Literal["active", "building", "standby", "dropping"]
WRITTEN_STATES: tuple[State, ...] = ("active", "building", "standby")


@dataclass(frozen=True)
class Plan:
    """How a space is being built, and how far that has come; kept so that any process can go on with it."""

    rate: float | None = None
    """Most turns a second; None: the setting, 0: no limit."""
    switch_anyway: bool = False
    """Whether reads are switched even if the probes say that recall gets worse."""
    speed: float | None = None
    """Turns a second, as measured lately."""
    verdict: Mapping[str, Any] | None = None
    """Figures of the comparison that kept the space from being switched to."""
    was_standby: bool = False
    """Whether recall read the space before, so that it is whole and can be gone back to."""


@dataclass(frozen=True)
class StoredSpace:
    """A space as the catalog knows it, and how to load its model."""

    space: Space
    setting: str
    """The `embedder` setting that loads the model."""
    scripts: frozenset[str] | None
    """Writing systems the model speaks; None means all."""
    state: State = "active"
    since: datetime | None = field(default=None, compare=False)
    """When it came into this state."""
    plan: Plan = field(default=Plan(), compare=False)
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
        """Every space of which something may be stored, oldest first."""
        with reading(self._engine) as connection:
            return _all(connection)

    def written(self) -> list[StoredSpace]:
        """Every space that turns are written to, oldest first."""
        return [one for one in self.all() if one.state in WRITTEN_STATES]

    def building(self) -> StoredSpace | None:
        """The space that is being built, if one is."""
        return next((one for one in self.all() if one.state == "building"), None)

    def before(self) -> StoredSpace | None:
        """The space that recall read until the last switch, while it is kept."""
        kept = [one for one in self.all() if one.state == "standby" or one.plan.was_standby]
        return max(kept, key=lambda one: one.since.timestamp() if one.since else 0.0, default=None)

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
        """Make `wanted` the active space if there is none yet. Raises `ModelError` when it is none that is written."""
        with write_transaction(self._engine) as connection:
            active = _active(connection)
            if active is None:
                connection.execute(spaces.insert(), _row(wanted))
                return
            beside = [one.space for one in _all(connection) if one.state in WRITTEN_STATES]
        if wanted.space not in beside:
            raise ModelError(
                f"this catalog's vectors were made by {describe(active.space)}; the settings ask for "
                f"{describe(wanted.space)}. Vectors of two models never mix: set the embedder and chunk settings back, "
                "or change the model with `scope-recall reembed --model`"
            )

    def begin_building(self, wanted: StoredSpace) -> StoredSpace:
        """Have turns written to `wanted` as well from now on; what is being built already goes on under its new plan.

        Raises `UsageError` when recall reads it already, when another space is being built, and when it is being
        dropped; `NotReady` when nothing is stored yet.
        """
        with write_transaction(self._engine) as connection:
            known = {one.space.id: one for one in _all(connection)}
            active = _active(connection)
            if active is None:
                raise NotReady("nothing has been stored yet: set SCOPE_RECALL_EMBEDDER to the model instead")
            if active.space == wanted.space:
                raise UsageError(f"recall reads {describe(wanted.space)} already")
            other = next((one for one in known.values() if one.state == "building" and one.space != wanted.space), None)
            if other is not None:
                raise UsageError(
                    f"{describe(other.space)} is being built: let it come to its end, or end it with "
                    "`scope-recall reembed --cancel`"
                )
            same = known.get(wanted.space.id)
            if same is None:
                connection.execute(spaces.insert(), _row(replace(wanted, state="building")))
            elif same.state == "dropping":
                raise UsageError(f"{describe(wanted.space)} is being dropped: try again when it is gone, in a minute")
            else:
                was_standby = same.state == "standby" or same.plan.was_standby
                plan = replace(wanted.plan, speed=same.plan.speed, was_standby=was_standby)
                _set(connection, wanted.space, state="building", plan=_json(plan), setting=wanted.setting)
            found = {one.space.id: one for one in _all(connection)}
            return found[wanted.space.id]

    def note(self, space: Space, **changes: Any) -> None:
        """Change fields of the space's plan; nothing for a space that is gone."""
        with write_transaction(self._engine) as connection:
            for one in _all(connection):
                if one.space == space:
                    _set(connection, space, plan=_json(replace(one.plan, **changes)))

    def switch(self, to: Space, *, missing: int = 0) -> None:
        """Have recall read `to` from now on; what it read before stays as standby.

        Raises `NotReady` when more than `missing` turns are not in it, or it is not written to. A turn that is pending
        counts as being in it: its write goes on or is repeated, for both spaces. Call it while nobody publishes
        (`StoreLocks.erasing`), so that no turn is between the stores.
        """
        with write_transaction(self._engine) as connection:
            target = next((one for one in _all(connection) if one.space == to), None)
            if target is None or target.state not in ("building", "standby"):
                raise NotReady(f"{describe(to)} is {target.state if target else 'gone'}: reads are not switched to it")
            filled, turns = filled_and_turns(connection, to)
            if turns - filled > missing:
                raise NotReady(f"{turns - filled:,} of {turns:,} turns are not in {describe(to)} yet")
            active = spaces.update().where(spaces.c.state == "active")
            connection.execute(active.values(state="standby", state_since_us=_now()))
            _set(connection, to, state="active", plan=None)

    def cancel(self) -> StoredSpace | None:
        """End what is being built; returns the space as it is then, None when nothing is being built.

        What recall read before is kept as it was; anything else is dropped.
        """
        with write_transaction(self._engine) as connection:
            found = next((one for one in _all(connection) if one.state == "building"), None)
            if found is None:
                return None
            state: State = "standby" if found.plan.was_standby else "dropping"
            _set(connection, found.space, state=state, plan=None)
            return replace(found, state=state)

    def retire(self, space: Space) -> None:
        """Have nothing written to it any more, so that it can be dropped. Raises `UsageError` when recall reads it."""
        with write_transaction(self._engine) as connection:
            found = next((one for one in _all(connection) if one.space == space), None)
            if found is not None and found.state == "active":
                raise UsageError(f"{describe(space)} is what recall reads: it cannot be dropped")
            if found is not None and found.state != "dropping":
                _set(connection, space, state="dropping", plan=None)

    def remove(self, space: Space) -> None:
        """Know it no longer; for a space that is being dropped and has neither chunks nor vectors."""
        with write_transaction(self._engine) as connection:
            connection.execute(spaces.delete().where(spaces.c.id == space.id, spaces.c.state == "dropping"))


def describe(space: Space) -> str:
    """A space in a message."""
    return (
        f"{space.embedder} ({space.dimension} dimensions, chunks of {space.chunk_tokens} tokens "
        f"with {space.chunk_overlap} shared)"
    )


def check_written(connection: Connection, known: Iterable[Space]) -> str:
    """The id of the active space. Raises `StoreUnavailable` when turns are not written to exactly `known`."""
    query = sa.select(spaces.c.id, spaces.c.state).where(spaces.c.state.in_(WRITTEN_STATES))
    written = {row.id: row.state for row in connection.execute(query)}
    if written.keys() != {space.id for space in known}:
        raise StoreUnavailable("catalog: the spaces have changed while a batch was on its way; it is tried again")
    return next((name for name, state in written.items() if state == "active"), "")


def _active(connection: Connection) -> StoredSpace | None:
    row = connection.execute(sa.select(spaces).where(spaces.c.state == "active")).mappings().first()
    return None if row is None else _stored(row)


def _all(connection: Connection) -> list[StoredSpace]:
    query = sa.select(spaces).order_by(spaces.c.created_at_us, spaces.c.id)
    return [_stored(row) for row in connection.execute(query).mappings()]


def _set(connection: Connection, space: Space, **values: Any) -> None:
    if "state" in values:
        values["state_since_us"] = _now()
    connection.execute(spaces.update().where(spaces.c.id == space.id).values(values))


def _stored(row: RowMapping) -> StoredSpace:
    scripts = frozenset(json.loads(row["scripts"])) if row["scripts"] is not None else None
    space = Space(row["embedder"], row["dimension"], row["chunk_tokens"], row["chunk_overlap"])
    plan = Plan(**json.loads(row["plan"])) if row["plan"] is not None else Plan()
    since = from_utc_microseconds(row["state_since_us"])
    search = IndexSearch.from_text(row["search"])
    return StoredSpace(space, row["setting"], scripts, row["state"], since, plan, search)


def _row(stored: StoredSpace) -> dict[str, object]:
    return {
        **asdict(stored.space),
        "id": stored.space.id,
        "setting": stored.setting,
        "scripts": json.dumps(sorted(stored.scripts)) if stored.scripts is not None else None,
        "created_at_us": _now(),
        "state": stored.state,
        "state_since_us": _now(),
        "plan": _json(stored.plan),
    }


def _json(plan: Plan) -> str | None:
    return None if plan == Plan() else json.dumps(asdict(plan))


def _now() -> int:
    return time.time_ns() // 1000
