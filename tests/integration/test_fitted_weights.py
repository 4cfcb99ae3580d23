"""The fit ranks as recall does: what is gathered for it, ranked by the default weights, is recall's own answer."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from memory import Memory, turn
from producers.settings import Settings
from query.evaluation.asking import as_asked
from query.evaluation.ingests import Ingest, Note
from query.evaluation.labelled import LabelledQuestion
from query.evaluation.metrics import Judged
from query.evaluation.variants import variants_of
from query.evaluation.weights import RERANKED, Gathered, fits_of, ranked
from query.ranking import SPACED, Weights, weights_for
from query.recall import Recaller
from query.reranking.port import Passage, Reranked

pytestmark = pytest.mark.integration

WORDS = "heron weir ferry quay mill bridge tide lamp rope sail anchor gull".split()
CHINESE = ["苍鹭在水坝边等待", "渡船七点离开码头", "灯塔的灯坏了", "绳子在仓库里"]


class ShortestFirst:
    """A reranker that likes short texts."""

    name = "shortest"
    scripts = None

    def rerank(self, query: str, passages: Sequence[Passage], *, deadline: float | None = None) -> Reranked:
        return Reranked([-float(len(one.text)) for one in passages])


@pytest.fixture
def memory(settings: Settings) -> Memory:
    memory = Memory(settings)
    chance = random.Random(11)
    roles = ("user", "assistant", "tool")
    said = [" ".join(chance.choices(WORDS, k=chance.randint(2, 30))) for _ in range(60)] + CHINESE
    memory.store(*(turn(text, n, role=roles[n % 3]) for n, text in enumerate(said)))
    return memory


def questions() -> list[LabelledQuestion]:
    texts = ["heron by the weir", "the ferry and the quay", "rope sail", "渡船几点离开"]
    return [LabelledQuestion(Judged(f"q{n}", frozenset({("s", n)})), text, "t", ("s",)) for n, text in enumerate(texts)]


@pytest.mark.parametrize("reranks", [False, True])
def test_the_default_weights_rank_what_was_gathered_as_recall_does(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, reranks: bool
) -> None:
    if reranks:
        monkeypatch.setattr("query.reranking.choice.load_reranker", lambda name, settings: ShortestFirst())
    recaller = Recaller.open(memory.settings)
    for question in questions():
        asked = as_asked(question, memory.settings)
        hits = [(hit.session_id, hit.turn_index) for hit in recaller.recall(asked).hits]
        pool, features, scores = recaller.study(asked, RERANKED * asked.wide)
        assert bool(scores) == reranks
        places = {one.turn_key: (one.turn.session_id, one.turn_index) for one in pool.chunks.values()}
        gathered = Gathered(features, places, scores, asked.wide)
        assert len(hits) > 10
        assert len(features.turns) <= RERANKED * asked.wide, "so that the reranker has read every candidate"
        if not reranks:
            assert ranked(gathered, weights_for(question.query)) == hits
        else:
            assert set(ranked(gathered, weights_for(question.query))) == set(hits)
            assert ranked(gathered, weights_for(question.query))[:5] == hits[:5]
            assert ranked(gathered, Weights(rerank=0.0)) != hits


def test_each_kind_of_question_is_fitted_by_itself(memory: Memory) -> None:
    note = Note(1, 64, "d", {}, None, 64, 64, [])
    (base,) = variants_of(memory.settings, [])
    unscored = LabelledQuestion(Judged("none", frozenset()), "heron", "t", ())
    fits = fits_of(Ingest(memory.settings.data_dir, note), base, [*questions(), unscored], list)
    assert {kind: fit.in_sample.questions for kind, fit in fits.items()} == {"spaced": 3, "unspaced": 1}
    assert fits["spaced"].defaults == SPACED
    assert all(fit.held_out is None for fit in fits.values()), "they are all of one conversation"
