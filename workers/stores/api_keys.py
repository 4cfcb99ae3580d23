"""The query service's keys: whose each is and what it may do. Does I/O on the catalog.

A key is `sr_ID_SECRET`; the secret is 32 random bytes and only its SHA-256 is stored. A slow, salted hash is for
passwords, which can be guessed; nobody finds 256 random bits by trying, and a fast hash costs a request nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Engine, RowMapping

from producers.errors import UsageError
from producers.events import CANARY_TENANT, MAX_ID_CHARS, from_utc_microseconds
from workers.stores.engine import reading, write_transaction
from workers.stores.tables import api_keys as table

Right = Literal["push", "recall", "forget", "admin"]
RIGHTS: tuple[Right, ...] = ("push", "recall", "forget", "admin")
"""Of one tenant: add turns, recall them, erase them; `admin`: see the state of the whole system."""
DEFAULT_RIGHTS: tuple[Right, ...] = ("push", "recall")
PREFIX = "sr_"
ID_BYTES = 6
SECRET_BYTES = 32
_SHAPE = re.compile(rf"{PREFIX}([0-9a-f]{{{2 * ID_BYTES}}})_([A-Za-z0-9_-]{{43}})")
"""Of a key's text: its id and its secret."""
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""What no turn's tenant can hold."""
_NOBODY = "0" * 64
"""Compared with when there is no such key, so that this takes as long as when there is."""


@dataclass(frozen=True)
class ApiKey:
    """A key as it is stored, which is without its secret."""

    id: str
    name: str
    tenant: str
    rights: tuple[Right, ...]
    created: datetime | None
    revoked: datetime | None
    """None while it is good."""

    def as_json(self) -> dict[str, Any]:
        """For programs; times as ISO 8601."""
        shown = vars(self) | {"rights": list(self.rights)}
        for moment in ("created", "revoked"):
            shown[moment] = shown[moment].isoformat(timespec="seconds") if shown[moment] else None
        return shown


class ApiKeys:
    """The keys of one catalog; each call is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, tenant: str, rights: Iterable[Right] = DEFAULT_RIGHTS, name: str = "") -> tuple[ApiKey, str]:
        """A new key, and its text, which nobody can be shown again. Raises `UsageError`."""
        _check(tenant, name)
        row = {
            "id": secrets.token_hex(ID_BYTES),
            "name": name,
            "tenant": tenant,
            "rights": json.dumps([right for right in RIGHTS if right in set(rights)]),
            "created_at_us": time.time_ns() // 1000,
            "revoked_at_us": None,
        }
        secret = secrets.token_urlsafe(SECRET_BYTES)
        with write_transaction(self._engine) as connection:
            connection.execute(table.insert().values(**row, secret_digest=_digest(secret)))
        return _key(row), f"{PREFIX}{row['id']}_{secret}"

    def all(self) -> list[ApiKey]:
        """Every key there ever was, oldest first."""
        with reading(self._engine) as connection:
            rows = connection.execute(sa.select(table).order_by(table.c.created_at_us, table.c.id)).mappings()
            return [_key(row) for row in rows]

    def revoke(self, key_id: str) -> ApiKey:
        """End a key, for good and at once; doing it again changes nothing. Raises `UsageError` when there is none."""
        found = sa.select(table).where(table.c.id == key_id)
        now = time.time_ns() // 1000
        good = table.update().where(table.c.id == key_id, table.c.revoked_at_us.is_(None))
        with write_transaction(self._engine) as connection:
            connection.execute(good.values(revoked_at_us=now))
            row = connection.execute(found).mappings().first()
        if row is None:
            raise UsageError(f"no key {key_id}: `scope-recall keys list` shows their ids")
        return _key(row)

    def find(self, text: str) -> ApiKey | None:
        """The good key with this text; None when there is none. Takes the same time wherever a secret differs."""
        shape = _SHAPE.fullmatch(text)
        if shape is None:
            return None
        key_id, secret = shape.groups()
        with reading(self._engine) as connection:
            row = connection.execute(sa.select(table).where(table.c.id == key_id)).mappings().first()
        same = hmac.compare_digest(_digest(secret), row["secret_digest"] if row else _NOBODY)
        return _key(row) if same and row is not None and row["revoked_at_us"] is None else None

    def ever(self, *, good: bool = False) -> bool:
        """Whether there ever was a key; with `good`: whether one works now."""
        query = sa.select(table.c.id).limit(1)
        with reading(self._engine) as connection:
            return (
                connection.execute(query.where(table.c.revoked_at_us.is_(None)) if good else query).first() is not None
            )


def _check(tenant: str, name: str) -> None:
    if not 1 <= len(tenant) <= MAX_ID_CHARS:
        raise UsageError(f"tenant: {len(tenant)} characters; an id has 1 to {MAX_ID_CHARS}")
    if _UNFIT.search(tenant + name):
        raise UsageError("tenant, name: control characters and lone surrogates cannot be part of one")
    if tenant == CANARY_TENANT:
        raise UsageError(f"tenant {tenant!r} is the query service's own; choose another name")
    if len(name) > MAX_ID_CHARS:
        raise UsageError(f"name: {len(name)} characters, over the limit of {MAX_ID_CHARS}")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _key(row: RowMapping | dict[str, Any]) -> ApiKey:
    return ApiKey(
        id=row["id"],
        name=row["name"],
        tenant=row["tenant"],
        rights=tuple(json.loads(row["rights"])),
        created=from_utc_microseconds(row["created_at_us"]),
        revoked=from_utc_microseconds(row["revoked_at_us"]),
    )
