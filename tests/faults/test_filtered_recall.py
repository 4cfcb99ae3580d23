"""Among 100,000 turns of many tenants, a filter that leaves few turns returns every one of them, and no other."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from producers.events import TurnEvent, utc_microseconds
from producers.settings import load_settings
from query.question import Question
from query.recall import Recaller
from workers.maintenance.index import keep_indexes_of
from workers.stores.scope import Scope, ScopedTurn, in_scope

pytestmark = [pytest.mark.storm, pytest.mark.timeout(1200)]

TURNS = 100_000
BATCH = 2_000
FILTERS = 300
K = 10
START = datetime(2026, 1, 1, tzinfo=UTC)
FENCES = ("", "", "", "", "\n\n```python\nport()\n```", "\n\n```sh\nport\n```")
SUBJECTS = ("the proxy", "端口", "the heron", "证书", "a kestrel", "the backup", "部署", "retry_after")


def events(draw: random.Random) -> list[TurnEvent]:
    """Few large tenants and many small ones, as fleets are."""
    made = []
    for number in range(TURNS):
        tenant = f"large{draw.randrange(5)}" if draw.random() < 0.7 else f"small{draw.randrange(3000)}"
        made.append(
            TurnEvent(
                tenant=tenant,
                session_id=f"s{draw.randrange(400)}",
                turn_index=number,
                role=draw.choice(["user", "assistant", "tool"]),
                agent_id=f"a{draw.randrange(40)}",
                source=draw.choice(["push", "hermes"]),
                tags=tuple(sorted({f"x{draw.randrange(30)}" for _ in range(2)})),
                created_at=START + timedelta(minutes=draw.randrange(500_000)) if draw.random() < 0.9 else None,
                metadata=metadata(draw),
                content=f"turn {number} about {draw.choice(SUBJECTS)} and {draw.choice(SUBJECTS)}{draw.choice(FENCES)}",
            )
        )
    return made


def metadata(draw: random.Random) -> dict[str, Any]:
    """As agents send it: nested, with lists, numbers, and a key with a dot in its name."""
    return {
        "git": {"branch": f"b{draw.randrange(200)}", "dirty": draw.random() < 0.5},
        "tools": [f"t{draw.randrange(40)}" for _ in range(draw.randrange(4))],
        "build.number": draw.randrange(5_000),
        "trace": f"{draw.getrandbits(128):032x}",
    }


def scan(one: TurnEvent) -> ScopedTurn:
    """What a plain scan looks at."""
    return ScopedTurn(
        *(one.tenant, one.session_id, one.agent_id, one.role, one.source, one.tags),
        created_at_us=utc_microseconds(one.created_at),
        turn_index=one.turn_index,
        metadata=json.dumps(one.metadata),
        code_languages=tuple(re.findall("```([a-z]+)", one.content)),
    )


def scope_of(draw: random.Random, tenant: str) -> Scope:
    """A random filter within the tenant."""
    since = START + timedelta(minutes=draw.randrange(500_000))
    chosen = {
        "sessions": tuple(f"s{draw.randrange(400)}" for _ in range(draw.randrange(1, 4))),
        "agents": (f"a{draw.randrange(40)}",),
        "roles": (draw.choice(["user", "assistant", "tool"]),),
        "tags": (f"x{draw.randrange(30)}",),
        "sources": ("hermes",),
        "where": tuple(
            draw.sample(
                [
                    ("git.branch", f"b{draw.randrange(200)}"),
                    ("git.branch", f"b{draw.randrange(200)}"),
                    ("git.dirty", draw.choice(["true", "false"])),
                    ("tools", f"t{draw.randrange(40)}"),
                    ("build.number", str(draw.randrange(5_000))),
                ],
                draw.randrange(1, 4),
            )
        ),
        "code_languages": (draw.choice(["python", "sh"]),),
        "exclude_sessions": (f"s{draw.randrange(400)}",),
        "since": since,
        "until": since + timedelta(days=draw.randrange(1, 60)),
    }
    names = {*draw.sample(sorted(chosen), draw.randrange(0, 4)), *draw.choice([(), ("where",), ("code_languages",)])}
    return Scope(tenant, **{name: chosen[name] for name in names})


def test_a_filter_that_leaves_ten_turns_returns_all_ten(tmp_path: Path) -> None:
    draw = random.Random(11)
    settings = load_settings(data_dir=tmp_path, embedder="hashing", reranker="none")
    memory = Memory(settings)
    stored = events(draw)
    for start in range(0, TURNS, BATCH):
        memory.store(*stored[start : start + BATCH])
    active = memory.catalog.spaces.active()
    assert active is not None
    keep_indexes_of(active, memory.vectors, memory.catalog, settings)
    scans = [scan(one) for one in stored]
    recaller = Recaller.open(settings)
    tenants = sorted({one.tenant for one in stored})
    sizes = []
    by_where = by_language = 0
    asked = 0
    while asked < FILTERS:
        tenant = draw.choice(tenants) if draw.random() < 0.5 else f"large{draw.randrange(5)}"
        scope = scope_of(draw, tenant)
        wanted = {one.turn_index for one, read in zip(stored, scans, strict=True) if in_scope(read, scope)}
        if not wanted:
            continue
        asked += 1
        sizes.append(len(wanted))
        by_where += bool(scope.where)
        by_language += bool(scope.code_languages)
        answer = recaller.recall(Question(f"what about {draw.choice(SUBJECTS)}?", scope, k=K))
        found = [hit.turn_index for hit in answer.hits]
        assert wanted.issuperset(found), scope
        assert len(found) == len(set(found)) == min(K, len(wanted)), scope
        assert answer.degraded == []
        again = recaller.recall(Question(answer.query, scope, k=K))
        assert [(hit.turn_index, hit.score) for hit in again.hits] == [
            (hit.turn_index, hit.score) for hit in answer.hits
        ]
    few = sum(size <= K for size in sizes)
    print(
        f"\n{TURNS:,} turns, {len(tenants):,} tenants: {FILTERS} filters, {few} of which leave at most {K}, "
        f"{by_where} by metadata, {by_language} by code language: all found"
    )
    assert few >= FILTERS // 5
    assert min(by_where, by_language) >= FILTERS // 6
