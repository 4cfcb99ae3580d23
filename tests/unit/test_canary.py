"""The canary: when the service calls itself ready, and how many turns that takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from producers.errors import NotReady, StoreUnavailable, StreamFull
from producers.events import TurnEvent
from query.api import canary as module
from query.api.canary import Canary, canary_at


class Path:
    """A path from push to recall that a test breaks."""

    def __init__(self) -> None:
        self.pushed: list[TurnEvent] = []
        self.stores = True
        self.push_error: Exception | None = None
        self.recall_error: Exception | None = None

    async def push(self, events: Sequence[TurnEvent]) -> None:
        if self.push_error:
            raise self.push_error
        self.pushed += events

    async def recall(self, _question: object) -> Any:
        if self.recall_error:
            raise self.recall_error
        found = self.pushed[-1:] if self.stores else []
        return SimpleNamespace(hits=[SimpleNamespace(content=one.content) for one in found], degraded=["rerank: none"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(module, "FLIGHT_SECONDS", 0.05)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.005)


def test_it_is_ready_once_its_turn_was_recalled_and_asks_no_more_while_that_is_fresh() -> None:
    async def run() -> None:
        path = Path()
        canary = Canary(path.push, path.recall, fresh_seconds=60)
        answers = await asyncio.gather(*(canary.readiness() for _ in range(10)))
        assert all(one.ready and one.missing is None for one in answers)
        assert answers[0].degraded == ("rerank: none",)
        assert len(path.pushed) == 1

    asyncio.run(run())


def test_a_success_that_is_old_is_proved_again_by_the_same_turn() -> None:
    async def run() -> None:
        path = Path()
        canary = Canary(path.push, path.recall, fresh_seconds=0.02)
        for _ in range(3):
            assert (await canary.readiness()).ready
            await asyncio.sleep(0.03)
        assert len(path.pushed) == 3
        assert len({turn.identity for turn in path.pushed}) == 1
        assert len({turn.content for turn in path.pushed}) == 3, "a duplicate would prove nothing"

    asyncio.run(run())


def test_a_turn_that_does_not_arrive_is_missing_and_no_second_one_is_sent_until_it_does() -> None:
    async def run() -> None:
        path = Path()
        path.stores = False
        canary = Canary(path.push, path.recall, fresh_seconds=60)
        for _ in range(5):
            told = await canary.readiness()
            assert not told.ready
            assert "is not stored" in (told.missing or "")
        assert len(path.pushed) == 1
        path.stores = True
        assert (await canary.readiness()).ready
        assert len(path.pushed) == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    ("broken", "missing"),
    [
        ({"push_error": StreamFull("no content here")}, "a turn cannot be pushed (StreamFull)"),
        ({"recall_error": StoreUnavailable("no content here")}, "recall fails (StoreUnavailable)"),
        ({"recall_error": ZeroDivisionError("no content here")}, "recall fails (ZeroDivisionError)"),
        ({"recall_error": NotReady("nothing stored yet")}, "is not stored"),
    ],
)
def test_what_is_broken_is_named_and_forgotten_once_it_works(broken: dict[str, Exception], missing: str) -> None:
    async def run() -> None:
        path = Path()
        canary = Canary(path.push, path.recall, fresh_seconds=60)
        vars(path).update(broken)
        told = await canary.readiness()
        assert not told.ready
        assert missing in (told.missing or "")
        assert "no content here" not in (told.missing or "")
        vars(path).update(dict.fromkeys(broken))
        assert (await canary.readiness()).ready

    asyncio.run(run())


def test_a_later_canary_sorts_behind_an_earlier_one() -> None:
    start = datetime(2026, 1, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    moments = [start + timedelta(microseconds=step) for step in (0, 1, 2, 10, 10**6, 10**12)]
    said = [canary_at(moment).content for moment in moments]
    assert said == sorted(said)
