"""One suite over every real reranker: late interaction, a FlagEmbedding cross-encoder, an HTTP endpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from producers.errors import ModelError
from producers.settings import Settings
from query.reranking.bge import FlagCrossEncoder
from query.reranking.http import HttpReranker
from query.reranking.late_interaction import LateInteraction
from query.reranking.port import Reranker
from query.reranking.registry import load_reranker
from rerank_passages import passages
from rerank_server import running_server
from tiny_rerankers import WORDS, save_tiny_bert

pytestmark = pytest.mark.contract


@pytest.fixture
def http() -> Iterator[HttpReranker]:
    with running_server() as server:
        reranker = HttpReranker(Settings(reranker_url=server.url))
        yield reranker
        reranker.close()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("reranker") / "tiny", train=True)


@pytest.fixture(scope="session")
def bge(tiny_model: Path) -> FlagCrossEncoder:
    return FlagCrossEncoder(str(tiny_model), Settings())


@pytest.fixture(scope="session")
def late_interaction() -> Reranker:
    reranker = load_reranker("late-interaction", Settings())
    assert reranker is not None
    return reranker


@pytest.fixture(params=[pytest.param("late_interaction", marks=pytest.mark.models), "bge", "http"])
def reranker(request: pytest.FixtureRequest) -> Reranker:
    return request.getfixturevalue(request.param)


TEXTS = ["copper garden", "violin lemon", "rocket pencil", "winter harbour"]


@pytest.mark.parametrize("word", ["violin", "garden", "pencil", "harbour"])
def test_the_text_that_holds_the_answer_scores_highest(reranker: Reranker, word: str) -> None:
    scores = reranker.rerank(word, passages(TEXTS)).scores
    assert len(scores) == len(TEXTS)
    best = max(range(len(TEXTS)), key=lambda index: scores[index] or 0.0)
    assert word in TEXTS[best]


def test_scores_belong_to_their_texts_whatever_the_order_and_length(reranker: Reranker) -> None:
    texts = [*TEXTS, "lemon", "copper copper copper winter winter rocket garden", ""]
    scores = dict(zip(texts, reranker.rerank("copper", passages(texts)).scores, strict=True))
    turned = dict(zip(texts[::-1], reranker.rerank("copper", passages(texts[::-1])).scores, strict=True))
    assert scores == pytest.approx(turned, abs=2e-3)


def test_the_same_call_gives_the_same_scores(reranker: Reranker) -> None:
    assert reranker.rerank("lemon", passages(TEXTS)).scores == reranker.rerank("lemon", passages(TEXTS)).scores


def test_characters_that_no_model_reads_change_nothing_else(reranker: Reranker) -> None:
    scores = reranker.rerank("violin \ud800", passages(["copper\x00garden", "violin \udfff lemon", "\ud800"])).scores
    assert len(scores) == 3
    assert scores[1] == max(score for score in scores if score is not None)


def test_no_texts_give_no_scores(reranker: Reranker) -> None:
    assert reranker.rerank("lemon", []).scores == []


def test_a_deadline_in_the_past_reaches_nothing_and_returns_at_once(reranker: Reranker) -> None:
    began = time.monotonic()
    scores = reranker.rerank(
        "lemon", passages([f"winter {number}" for number in range(500)]), deadline=began - 1
    ).scores
    assert scores == [None] * 500
    assert time.monotonic() - began < 1.0


def test_a_distant_deadline_reaches_everything(reranker: Reranker) -> None:
    scores = reranker.rerank("lemon", passages(TEXTS), deadline=time.monotonic() + 60).scores
    assert None not in scores


def test_concurrent_callers_get_the_scores_of_a_single_one(reranker: Reranker) -> None:
    queries = ["lemon", "violin", "copper", "winter"] * 4
    alone = [reranker.rerank(query, passages(TEXTS)).scores for query in queries]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda query: reranker.rerank(query, passages(TEXTS)).scores, queries))
    assert together == alone


# -- the cross-encoder -------------------------------------------------------------------------------------------


def test_the_cross_encoder_scores_as_flagembedding_does(bge: FlagCrossEncoder, tiny_model: Path) -> None:
    from FlagEmbedding import FlagReranker

    reference = FlagReranker(str(tiny_model), devices="cpu", max_length=32)
    texts = [*TEXTS, "winter " * 60, "lemon"]
    assert bge.rerank("winter", passages(texts)).scores == pytest.approx(
        reference.compute_score([("winter", text) for text in texts]), abs=1e-4
    )


@pytest.mark.parametrize(
    ("head", "labels", "said"),
    [(False, 1, "not a trained reranker.*classifier.weight"), (True, 2, "2 labels")],
    ids=["no scoring head", "a classifier"],
)
def test_a_model_that_was_not_trained_to_rerank_is_refused_by_name(
    tmp_path: Path, head: bool, labels: int, said: str
) -> None:
    folder = save_tiny_bert(tmp_path / "untrained", head=head, labels=labels)
    with pytest.raises(ModelError, match=rf"untrained'.*{said}"):
        FlagCrossEncoder(str(folder), Settings())


def test_a_folder_without_a_model_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=tmp_path.name):
        FlagCrossEncoder(str(tmp_path), Settings())


def test_loading_and_scoring_print_nothing(tiny_model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    FlagCrossEncoder(str(tiny_model), Settings()).rerank("lemon", passages(TEXTS * 20))
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


# -- late interaction --------------------------------------------------------------------------------------------


@pytest.mark.models
def test_late_interaction_prefers_what_answers_over_what_repeats(late_interaction: Reranker) -> None:
    texts = [
        "We talked about the weather on Tuesday.",
        "The spare key to the flat is under the blue flower pot.",
        "Where did I leave the car?",
    ]
    scores = late_interaction.rerank("where is the spare key hidden?", passages(texts)).scores
    assert max(range(3), key=lambda index: scores[index] or 0.0) == 1
    assert all(score is not None and -1 <= score <= 1 for score in scores)


@pytest.mark.models
def test_late_interaction_reaches_cached_texts_when_there_is_no_time_to_encode() -> None:
    reranker = load_reranker("late-interaction", Settings())
    assert isinstance(reranker, LateInteraction)
    known = [f"winter {word}" for word in WORDS]
    reranker.rerank("lemon", passages(known))
    reranker._pace.record(1, 1e9)  # from here on no pass fits
    scores = reranker.rerank("lemon", passages([*known, "never seen", known[0]]), deadline=time.monotonic() + 5).scores
    assert None not in scores[: len(known)]
    assert scores[len(known) :] == [None, None]


@pytest.mark.models
def test_late_interaction_scores_a_text_alike_whatever_was_read_before() -> None:
    texts = [f"The ferry leaves at {hour}. {'And so on. ' * hour}" for hour in range(12)]
    cold, warm = (load_reranker("late-interaction", Settings()) for _ in range(2))
    for part in (texts[7:9], texts[2:6], ["The ferry."]):
        warm.rerank("something else", passages(part))
    question = "when does the ferry leave?"
    assert warm.rerank(question, passages(texts)).scores == cold.rerank(question, passages(texts)).scores


@pytest.mark.models
def test_late_interaction_scores_punctuation_and_empty_queries(late_interaction: Reranker) -> None:
    for query in ("???", "", " "):
        scores = late_interaction.rerank(query, passages(["really???", ""])).scores
        assert all(score is not None and -1 <= score <= 1 for score in scores)
