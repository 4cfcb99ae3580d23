"""What stands around a turn helps to find it; time counts when asked; and why a turn is no hit can be told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory import Memory, contents, turn
from producers.errors import UsageError
from producers.settings import Settings, load_settings
from query.recency import Recency
from query.recent import Recent
from workers.stores.scope import Scope

pytestmark = pytest.mark.integration

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def memory(settings: Settings) -> Memory:
    return Memory(settings)


def fill(memory: Memory, count: int = 60) -> None:
    memory.store(*[turn(f"we talked about subject {n} and walked on", n, session_id=f"s{n}") for n in range(count)])


def test_an_answer_is_found_by_its_question(memory: Memory) -> None:
    fill(memory)
    memory.store(
        turn("which port does the proxy listen on?", 1, session_id="ops"),
        turn("8443", 2, session_id="ops", role="assistant"),
        turn("8080", 5, session_id="ops", role="assistant"),
    )
    hits = memory.ask("port of the proxy").hits
    assert [hit.content for hit in hits[:2]] == ["which port does the proxy listen on?", "8443"]
    explained = memory.ask("port of the proxy", explain=True).hits[1].explain
    assert explained is not None
    assert explained["previous"]["raw"] == 1.0
    assert explained["lexical"]["rank"] == 2


def test_what_a_scope_leaves_out_neither_comes_in_nor_helps_as_a_neighbour(memory: Memory) -> None:
    fill(memory, 5)
    memory.store(
        turn("which port does the proxy listen on?", 1, session_id="ops", agent_id="a"),
        turn("8443", 2, session_id="ops", role="assistant", agent_id="b"),
        turn("which port does the proxy listen on?", 1, session_id="ops", tenant="other"),
    )
    alone = memory.ask("port of the proxy", Scope("t", agents=("b",)), explain=True)
    assert contents(alone) == ["8443"]
    assert alone.hits[0].explain is not None
    assert alone.hits[0].explain["lexical"]["raw"] == 0.0
    assert "previous" not in alone.hits[0].explain


def test_recency_counts_when_it_is_asked_for_and_ages_count_from_as_of(memory: Memory) -> None:
    memory.store(
        turn("the port is 8080", 0, session_id="a", created_at=NOW - timedelta(days=90)),
        turn("the port is 9090 now", 0, session_id="b", created_at=NOW - timedelta(days=1)),
        turn("the port is 7070 then", 0, session_id="c", created_at=NOW + timedelta(days=1)),
    )
    assert contents(memory.ask("the port is 8080"))[0] == "the port is 8080"
    recent = memory.ask("the port is 8080", recency=Recency(0.9, 30), as_of=NOW, explain=True)
    assert contents(recent) == ["the port is 9090 now", "the port is 8080"]
    assert recent.hits[0].explain is not None
    assert recent.hits[0].explain["recency"]["raw"] == pytest.approx(0.5 ** (1 / 30))
    exactly = memory.ask("port", as_of=NOW - timedelta(days=90))
    assert contents(exactly) == ["the port is 8080"]
    assert len(memory.ask("port", as_of=datetime.max.replace(tzinfo=UTC)).hits) == 3
    with pytest.raises(UsageError, match=r"as_of: .* has no time zone"):
        memory.ask("port", as_of=datetime(2026, 1, 1))  # noqa: DTZ001  # what is refused


def test_why_tells_the_step_at_which_a_turn_fell_out(memory: Memory) -> None:
    fill(memory)
    memory.store(turn("the heron waits by the weir", 7, session_id="birds"), turn("nothing of that", 8, session_id="x"))

    def verdict(place: tuple[str, int], **question: object) -> tuple[str, str]:
        (account,) = memory.ask("heron at the weir", **{"why": place, **question}).why
        return account.verdict, account.reason

    assert verdict(("birds", 7)) == ("returned", "hit 1")
    assert verdict(("birds", 6))[0] == "not stored"
    assert "forgotten" in verdict(("birds", 6))[1]
    filtered = verdict(("birds", 7), scope=Scope("t", sessions=("s1",), roles=("assistant",)))
    assert filtered == ("filtered", "left out by sessions, roles")
    assert verdict(("x", 8), k=1)[0] in ("below the cut", "outside the wide pass")
    told = memory.ask("heron at the weir", why=("s9", 9), wide=5).why[0]
    assert told.verdict in ("outside the wide pass", "no candidate")
    assert "raise wide" in told.reason
    assert verdict(("birds", 7), as_of=NOW) == ("filtered", "left out by until or as_of")
    assert memory.ask("heron").as_json().keys().isdisjoint({"why"})
    assert memory.ask("heron", why=("birds", 7)).as_json()["why"][0]["parts"]["dense"]["rank"] == 1


@pytest.mark.models
def test_min_score_leaves_out_what_does_not_answer_and_says_when_it_cannot_tell(memory: Memory, tmp_path: Path) -> None:
    english = Memory(load_settings(data_dir=tmp_path / "english", embedder="minilm", reranker="auto"))
    english.store(
        turn("My sister's wedding is on the ninth of May in Lisbon.", 0),
        turn("The proxy listens on port 8443 since the move to TLS.", 1, session_id="ops"),
    )
    answer = english.ask("which port does the proxy listen on?", min_score=0.15)
    assert contents(answer) == ["The proxy listens on port 8443 since the move to TLS."]
    assert answer.hits[0].confidence is not None
    assert answer.hits[0].confidence > 0.3
    nothing = english.ask("how do I knit a scarf?", min_score=0.15, why=("ops", 1))
    assert (nothing.hits, nothing.context, nothing.degraded) == ([], "", [])
    assert nothing.why[0].verdict == "below min_score"
    assert len(english.ask("how do I knit a scarf?").hits) == 2
    memory.store(turn("the heron waits", 0))
    free = memory.ask("heron", min_score=0.9)
    assert contents(free) == ["the heron waits"]
    assert free.hits[0].confidence is None
    assert "nor hashing-v1 can tell a confidence, so they are not left out" in free.degraded[0]
    with pytest.raises(UsageError, match=r"min_score = 1\.5: a confidence from 0 to 1 is due"):
        memory.ask("heron", min_score=1.5)


def test_the_newest_turns_are_those_of_the_moment_that_is_asked_as_of(memory: Memory) -> None:
    said = [NOW - timedelta(days=day) for day in (4, 3, 2, 1)]
    memory.store(*[turn(f"heron number {n}", n, created_at=when) for n, when in enumerate(said)])

    def found(**question: object) -> list[int]:
        return sorted(hit.turn_index for hit in memory.ask("heron", exclude_recent=(Recent("s", 1),), **question).hits)

    assert found() == [0, 1, 2]
    assert found(as_of=said[1]) == [0]


def test_what_two_people_say_and_turns_that_are_not_seen_whole_are_not_folded(memory: Memory) -> None:
    memory.store(
        turn("The heron waits.", 0, speaker="Anna"),
        turn("The heron waits.", 1, speaker="Bea"),
        turn("the  heron waits.", 2, speaker="Bea"),
    )
    hits = memory.ask("heron").hits
    assert sorted((hit.speaker, len(hit.also)) for hit in hits) == [("Anna", 0), ("Bea", 1)]
    long = "The banner of the build log is the same each time. " * 120
    memory.store(turn(long + "It passed.", 0, tenant="logs"), turn(long + "It failed.", 1, tenant="logs"))
    assert len(memory.ask("banner of the build log", Scope("logs")).hits) == 2
