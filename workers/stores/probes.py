"""Probe questions: what a new space is compared by before recall reads it. Does I/O on the catalog.

A question may say what its evidence says, so it goes when any turn of its evidence does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from workers.stores.engine import reading, write_transaction
from workers.stores.tables import probes, turns

PAGE = 500
"""Keys in one IN list."""
SAMPLE_READ = 20
"""Turns looked at for one that is long enough to be drawn from."""


@dataclass(frozen=True)
class Probe:
    """A question and the stored turns that answer it."""

    id: str
    tenant: str
    query: str
    evidence: frozenset[str]
    """Turn keys."""


@dataclass(frozen=True)
class Asked:
    """A labelled question as its file has it."""

    id: str
    tenant: str
    query: str
    evidence: tuple[tuple[str, int], ...]
    """(session_id, turn_index) of each turn that answers it."""


class Probes:
    """The probe questions of one catalog; each call is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def keep(self, asked: Sequence[Asked]) -> int:
        """Keep these questions in place of those before; one whose evidence is not all stored is left out.

        Returns how many are kept; for none those before stay.
        """
        with write_transaction(self._engine) as connection:
            rows = _rows(connection, asked)
            if rows:
                connection.execute(probes.delete())
                connection.execute(probes.insert(), rows)
        return len(rows)

    def would_keep(self, asked: Sequence[Asked]) -> int:
        """How many of these `keep` would keep; changes nothing."""
        with reading(self._engine) as connection:
            return len(_rows(connection, asked))

    def all(self) -> list[Probe]:
        """The questions that are kept, by id."""
        with reading(self._engine) as connection:
            rows = connection.execute(sa.select(probes).order_by(probes.c.id))
            return [Probe(row.id, row.tenant, row.query, frozenset(json.loads(row.evidence))) for row in rows]

    def sample(self, count: int, min_chars: int) -> list[tuple[str, str, str]]:
        """(turn key, tenant, content) of turns of at least `min_chars`: the first ones by key, which is a digest.

        So it is a random sample of what is stored, and the same one as long as the same is stored.
        """
        query = sa.select(turns.c.turn_key, turns.c.tenant, turns.c.content).order_by(turns.c.turn_key)
        with reading(self._engine) as connection:
            rows = connection.execute(query.limit(count * SAMPLE_READ).execution_options(yield_per=count))
            found: list[tuple[str, str, str]] = []
            for row in rows:
                if len(row.content) >= min_chars:
                    found.append((row.turn_key, row.tenant, row.content))
                if len(found) == count:
                    break
        return found


def drop_unanswered(connection: Connection, tenant: str) -> None:
    """Delete this tenant's questions of whose evidence a turn is gone; for whoever deletes turns, as he does it."""
    rows = connection.execute(sa.select(probes.c.id, probes.c.evidence).where(probes.c.tenant == tenant)).all()
    evidence: Mapping[str, list[str]] = {row.id: json.loads(row.evidence) for row in rows}
    wanted = sorted({key for keys in evidence.values() for key in keys})
    there: set[str] = set()
    for start in range(0, len(wanted), PAGE):
        query = sa.select(turns.c.turn_key).where(turns.c.turn_key.in_(wanted[start : start + PAGE]))
        there.update(connection.execute(query).scalars())
    for name, keys in evidence.items():
        if not there.issuperset(keys):
            connection.execute(probes.delete().where(probes.c.id == name))


def _rows(connection: Connection, asked: Sequence[Asked]) -> list[dict[str, str]]:
    rows = []
    for one in asked:
        keys = [_keys(connection, one.tenant, session, index) for session, index in one.evidence]
        if keys and all(keys):
            evidence = json.dumps(sorted({key for found in keys for key in found}))
            rows.append({"id": one.id, "tenant": one.tenant, "query": one.query, "evidence": evidence})
    return rows


def _keys(connection: Connection, tenant: str, session: str, index: int) -> list[str]:
    query = sa.select(turns.c.turn_key).where(
        turns.c.tenant == tenant, turns.c.session_id == session, turns.c.turn_index == index
    )
    return list(connection.execute(query).scalars())
