"""Retention over the real path: exactly what the rules name is gone, from both stores and from every byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bytes_left import holding

from producers.errors import NotReady
from producers.events import TurnEvent
from producers.retention import RetentionRule
from producers.settings import Settings
from query.question import Question
from query.recall import Recaller
from stepped import Stepped, failing, turn
from workers.maintenance.erasure import Erasure
from workers.maintenance.erasure_proof import kept_numbers
from workers.maintenance.lease import JobLease
from workers.maintenance.run import RunReport, run_job
from workers.stores.catalog import Catalog
from workers.stores.retention import Retention
from workers.stores.scope import Scope

pytestmark = pytest.mark.integration

NOW = datetime.now(UTC)
THIRTY_DAYS = (RetentionRule(tenant="acme", max_age_days=30),)
SPAN_DAYS = 90


def said(days_ago: int, tenant: str = "acme", **fields: Any) -> TurnEvent:
    """Every third day is a session; half an hour older than the day, so that no test is at a limit."""
    content = f"the kestrel{days_ago}x{tenant[-3:]}quartz flew, 证书{days_ago}过期了"
    when = NOW - timedelta(days=days_ago, minutes=30)
    return turn(
        content, days_ago, **{"tenant": tenant, "session_id": f"s{days_ago // 3}", "created_at": when, **fields}
    )


def marks(days: range, tenant: str = "acme") -> list[str]:
    return [f"kestrel{day}x{tenant[-3:]}quartz" for day in days]


@pytest.fixture
def system(shared_settings: Settings) -> Stepped:
    """90 days of two tenants are stored."""
    stepped = Stepped(shared_settings.model_copy(update={"retention": THIRTY_DAYS, "lease": 1.0, "batch_wait": 0.0}))
    for tenant in ("acme", "o'brien"):
        stepped.store(*(said(day, tenant) for day in range(SPAN_DAYS)))
    assert stepped.counts() == (180, 180, 180)
    return stepped


def run(system: Stepped) -> RunReport:
    return run_job("retention", system.settings, system.client)


def days_kept(settings: Settings, tenant: str = "acme") -> set[int]:
    catalog = Catalog.open(settings.catalog_location)
    with catalog._engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT turn_index FROM turns WHERE tenant = ?", (tenant,)).scalars()
        kept = set(rows)
    catalog.close()
    return kept


def test_thirty_of_ninety_days_stay_and_the_rest_is_in_no_file_and_no_key(system: Stepped) -> None:
    assert all(holding(system.settings, mark) for mark in marks(range(30, 90, 20)))
    report = run(system)
    assert (report.before, report.after) == ({"due": 60}, {"removed": 60, "chunks": 60, "verified": True})
    assert [mark for mark in marks(range(30, 90)) if holding(system.settings, mark)] == []
    assert holding(system.settings, "证书77过期了"), "the other tenant's, who said the same"
    assert days_kept(system.settings) == set(range(30))
    assert days_kept(system.settings, "o'brien") == set(range(90))
    assert system.counts() == (120, 120, 120)
    assert kept_numbers(system.settings) == set()
    question = Question("kestrel7xcmequartz", Scope("acme"), k=50)
    assert "s2" in {hit.session_id for hit in Recaller.open(system.settings).recall(question).hits}
    assert run(system).outcome == "nothing"


def test_what_is_said_by_nobody_else_is_in_no_file_afterwards(system: Stepped) -> None:
    system.push(*(turn(f"only heron{n}basalt, 只有苍鹭{n}号知道", n, tenant="acme", session_id="old",
                       created_at=NOW - timedelta(days=40 + n)) for n in range(20)))  # fmt: skip
    system.settle()
    assert run(system).after == {"removed": 80, "chunks": 80, "verified": True}
    assert [n for n in range(20) if holding(system.settings, f"heron{n}basalt")] == []
    assert [n for n in range(20) if holding(system.settings, f"苍鹭{n}号")] == []


def test_the_most_specific_rule_decides_and_without_rules_nothing_goes(system: Stepped) -> None:
    system.settings = system.settings.model_copy(update={"retention": ()})
    assert run(system).outcome == "nothing"
    rules = (RetentionRule(max_turns=1), RetentionRule(tenant="acme", source="push", ended_days=60))
    system.settings = system.settings.model_copy(update={"retention": rules})
    assert run(system).after["removed"] == 30 + 60
    assert days_kept(system.settings) == set(range(60)), "sessions of three days, the last of them on day 60"
    assert days_kept(system.settings, "o'brien") == set(range(2, 90, 3)), "the highest turn of each session"


def test_what_comes_late_is_stored_and_goes_with_the_next_run(system: Stepped) -> None:
    run(system)
    system.push(said(50), said(2, tenant="acme", session_id="new"))
    system.settle()
    assert system.counts() == (122, 122, 122)
    assert run(system).after["removed"] == 1
    assert holding(system.settings, "kestrel50xcmequartz") == []
    assert system.counts() == (121, 121, 121)


def test_a_turn_that_is_pushed_again_before_its_erasure_keeps_its_vectors(
    system: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    erase = Erasure._erase_stored

    def push_again_first(self: Erasure, forgets: Any) -> None:
        system.push(said(50), turn("revised: the merlin", 51, tenant="acme", session_id="s17"))
        system.settle()
        erase(self, forgets)

    monkeypatch.setattr(Erasure, "_erase_stored", push_again_first)
    report = run(system)
    assert report.after == {"removed": 60, "chunks": 60, "verified": True}
    assert system.counts() == (122, 122, 122), "both of them, each with its vector, and no row of what was before"
    assert holding(system.settings, "kestrel51xcmequartz") == []


def test_a_turn_that_a_worker_has_between_the_stores_leaves_nothing_behind(
    system: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[RunReport] = []

    def while_embedding(texts: object) -> None:
        if not reports:
            reports.append(run(system))

    failing(system, monkeypatch, while_embedding)
    system.push(turn("the heron in flight", 3, tenant="acme", session_id="old", created_at=NOW - timedelta(days=50)))
    system.settle()
    assert system.counts() == (121, 121, 121), "it came late"
    assert run(system).after["removed"] == 1
    assert holding(system.settings, "heron in flight") == []


@pytest.mark.parametrize("job", ["retention", "forget"])
def test_what_a_killed_run_has_hidden_is_erased_by_the_next(
    system: Stepped, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Erasure, "finish", lambda self, *, verify: [])  # as far as a killed one came
        run(system)
    assert days_kept(system.settings) == set(range(30))
    assert holding(system.settings, "kestrel50xcmequartz")
    run_job(job, system.settings, system.client)
    assert [mark for mark in marks(range(30, 90)) if holding(system.settings, mark)] == []
    assert system.counts() == (120, 120, 120)


def test_a_run_that_has_lost_its_lease_stops_and_the_next_one_finishes(
    system: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.stores.retention.PIECE", 10)
    bury = Retention.bury
    pieces: list[object] = []

    def lose_the_lease_after_two(*args: Any) -> Any:
        pieces.append(bury(*args))
        return pieces[-1]

    with monkeypatch.context() as patched:
        patched.setattr(Retention, "bury", lose_the_lease_after_two)
        patched.setattr(JobLease, "held", property(lambda self: len(pieces) < 2))
        with pytest.raises(NotReady, match="the lease was lost"):
            run(system)
    assert len(days_kept(system.settings)) == 70
    assert run(system).after["removed"] == 40
    assert days_kept(system.settings) == set(range(30))


def test_turns_too_short_for_a_proof_go_all_the_same(system: Stepped) -> None:
    run(system)
    system.push(
        *(turn("ok", n, tenant="acme", session_id="old", created_at=NOW - timedelta(days=50)) for n in range(3))
    )
    system.settle()
    assert run(system).after == {"removed": 3, "chunks": 3, "verified": True}


@pytest.fixture
def command(system: Stepped) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `scope-recall retention`."""

    def call(*args: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | system.settings.as_environment() | {"COLUMNS": "140"}
        asked = [sys.executable, "-P", "-m", "query.cli", "retention", *args]
        return subprocess.run(asked, env=environment, capture_output=True, text=True, check=False, timeout=100)

    return call


def test_a_dry_run_shows_what_would_go_and_why_and_the_command_does_it(
    system: Stepped, command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    shown = command("--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "acme" in shown.stdout
    assert "older than 30 days" in shown.stdout
    assert "turns that would go: 60; rules: 1" in shown.stdout
    told = json.loads(command("--dry-run", "--json").stdout)
    assert (told["turns"], told["rules"], told["dry_run"]) == (60, 1, True)
    assert told["due"] == [
        {"rule": 1, "tenant": "acme", "source": "push", "reason": "age", "sessions": 20, "turns": 60,
         "why": "older than 30 days"}
    ]  # fmt: skip
    assert system.counts() == (180, 180, 180)
    assert json.loads(command("--json").stdout)["after"]["removed"] == 60
    assert "nothing is due" in command().stdout
