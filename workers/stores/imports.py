"""What the catalog remembers of imported transcripts: how far each file has come, and where each turn went. Does I/O.

A batch is planned before it is sent: its origins and their places in their sessions are on disk, so that whoever sends
it again after a kill sends exactly the same turns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from producers.events import LIVE_FROM
from producers.transcripts.registry import READERS
from workers.stores.engine import reading, write_transaction
from workers.stores.tables import imported, imports, turns
from workers.stores.turn_writer import slices

BESIDE_LIVE = LIVE_FROM // 2
"""Turn index from which turns are imported into a session that is pushed live as well, so that neither ever takes the
other's place; they stand behind what is said live."""
UNSENT = 2**31 - 1
"""The batch of a turn that was planned by a run that was killed before it knew that the turn was sent."""


@dataclass(frozen=True)
class FileStamp:
    """What tells whether a file is the one that was read before, and has only grown."""

    size: int
    mtime_us: int
    inode: int
    ends_digest: str
    """Of its first bytes and of the last bytes before `size`."""


@dataclass(frozen=True)
class FileProgress:
    """How far one file has come."""

    stamp: FileStamp
    state: dict[str, Any] | None
    batch: int
    sent_batch: int
    finished: bool
    turns: int
    bad: int
    """Places that could not be read."""


@dataclass(frozen=True)
class Known:
    """A turn that was planned before."""

    turn_index: int
    sent: bool
    """Whether its batch is known to be on the stream; otherwise it is sent again, as the same turn."""


@dataclass(frozen=True)
class Planned:
    """A turn that is about to be sent."""

    origin: str
    session_digest: str
    turn_index: int


class Imports:
    """The import records of one catalog; each call is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def progress(self, file_key: str) -> FileProgress | None:
        """What is known of a file; None when it was never begun."""
        with reading(self._engine) as connection:
            row = connection.execute(sa.select(imports).where(imports.c.file_key == file_key)).mappings().first()
        if row is None:
            return None
        return FileProgress(
            stamp=FileStamp(row["size"], row["mtime_us"], row["inode"], row["ends_digest"]),
            state=json.loads(row["state"]) if row["state"] is not None else None,
            batch=row["batch"],
            sent_batch=row["sent_batch"],
            finished=row["finished"],
            turns=row["turns"],
            bad=row["bad"],
        )

    def known(self, origins: Sequence[str]) -> dict[str, Known]:
        """Those of the origins that were planned before, by whichever file."""
        columns = (imported.c.origin, imported.c.turn_index, imported.c.batch, imports.c.sent_batch)
        query = sa.select(*columns).join(imports, imported.c.file_key == imports.c.file_key)
        found = {}
        with reading(self._engine) as connection:
            for part in slices(origins):
                for row in connection.execute(query.where(imported.c.origin.in_(part))):
                    found[row.origin] = Known(row.turn_index, row.batch <= row.sent_batch)
        return found

    def next_indexes(self, sessions: Mapping[str, tuple[str, str]]) -> dict[str, int]:
        """For each session digest → (tenant, session): the first turn index behind all that is known of the session but
        the live turns that Hermes' plug-in numbers.

        Imported turns count as planned, not as stored: that comes later, and a second look must give the same. Where
        turns of the session are pushed live, it is at least `BESIDE_LIVE`: they go on counting.
        """
        found = dict.fromkeys(sessions, 0)
        with reading(self._engine) as connection:
            for part in slices(list(sessions)):
                query = sa.select(imported.c.session_digest, sa.func.max(imported.c.turn_index))
                query = query.where(imported.c.session_digest.in_(part), imported.c.turn_index < LIVE_FROM)
                query = query.group_by(imported.c.session_digest)
                for digest, last in connection.execute(query):
                    found[digest] = last + 1
            for digest, (tenant, session) in sessions.items():
                elsewhere = sa.select(sa.func.max(turns.c.turn_index)).where(
                    turns.c.tenant == tenant,
                    turns.c.session_id == session,
                    turns.c.source.not_in(READERS),
                    turns.c.turn_index < LIVE_FROM,  # live turns of Hermes, which go on behind the import
                )
                last = connection.execute(elsewhere).scalar()
                if last is not None:
                    found[digest] = max(found[digest], last + 1, BESIDE_LIVE)
        return found

    def said_live(self, tenant: str, session: str, source: str, hashes: Sequence[str]) -> set[tuple[str, str]]:
        """(role, content hash) of the turns among `hashes` that the session got from elsewhere than `source`."""
        found: set[tuple[str, str]] = set()
        query = sa.select(turns.c.role, turns.c.content_hash).where(
            turns.c.tenant == tenant, turns.c.session_id == session, turns.c.source != source
        )
        with reading(self._engine) as connection:
            for part in slices(hashes):
                found |= {
                    (row.role, row.content_hash)
                    for row in connection.execute(query.where(turns.c.content_hash.in_(part)))
                }
        return found

    def begin(self, file_key: str, path: str, format_name: str, stamp: FileStamp, *, anew: bool) -> FileProgress:
        """Note that the file is being read; `anew` when its earlier state is no good."""
        values = {
            "path": path,
            "format": format_name,
            **_stamp_values(stamp),
            "finished": False,
            "updated_at_us": _now_us(),
        }
        with write_transaction(self._engine) as connection:
            known = connection.execute(sa.select(imports.c.file_key).where(imports.c.file_key == file_key)).first()
            if known is None:
                row = {"file_key": file_key, "state": None, "batch": 0, "sent_batch": 0, "turns": 0, **values}
                connection.execute(imports.insert(), row)
            else:
                values |= {"state": None, "bad": 0} if anew else {}
                connection.execute(imports.update().where(imports.c.file_key == file_key).values(values))
        found = self.progress(file_key)
        assert found is not None
        return found

    def take_back(self, file_key: str) -> None:
        """Note that what was planned of the file and is not known to be sent has to be sent again, each turn by itself.

        The run that sends it cuts the file into other batches: that one is sent says nothing of the rest of the old.
        """
        sent_batch = sa.select(imports.c.sent_batch).where(imports.c.file_key == file_key).scalar_subquery()
        unsure = imported.update().where(imported.c.file_key == file_key, imported.c.batch > sent_batch)
        with write_transaction(self._engine) as connection:
            connection.execute(unsure.values(batch=UNSENT))

    def plan(self, file_key: str, batch: int, planned: Sequence[Planned], again: Sequence[str] = ()) -> None:
        """Note what is about to be sent as this batch of the file; `again`: origins that were planned before."""
        rows = [
            {
                "origin": one.origin,
                "session_digest": one.session_digest,
                "turn_index": one.turn_index,
                "file_key": file_key,
                "batch": batch,
            }
            for one in planned
        ]
        with write_transaction(self._engine) as connection:
            if rows:
                connection.execute(imported.insert(), rows)
            for part in slices(again):
                mine = imported.update().where(imported.c.origin.in_(part))
                connection.execute(mine.values(file_key=file_key, batch=batch))
            connection.execute(imports.update().where(imports.c.file_key == file_key).values(batch=batch))

    def sent(
        self,
        file_key: str,
        batch: int,
        *,
        turns_sent: int,
        state: dict[str, Any] | None,
        bad: int = 0,
        finished: bool = False,
    ) -> None:
        """Everything up to this batch is on the stream, and the reader goes on from `state` (None: as before).

        `bad`: places before `state` that could not be read and are not counted yet.
        """
        values: dict[str, Any] = {
            "batch": batch,
            "sent_batch": batch,
            "turns": imports.c.turns + turns_sent,
            "bad": imports.c.bad + bad,
            "finished": finished,
            "updated_at_us": _now_us(),
        }
        values |= {} if state is None else {"state": json.dumps(state)}
        with write_transaction(self._engine) as connection:
            connection.execute(imports.update().where(imports.c.file_key == file_key).values(values))


def _stamp_values(stamp: FileStamp) -> dict[str, Any]:
    return {
        "size": stamp.size,
        "mtime_us": stamp.mtime_us,
        "inode": stamp.inode,
        "ends_digest": stamp.ends_digest,
    }


def _now_us() -> int:
    return time.time_ns() // 1000
