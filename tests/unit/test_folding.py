"""Folding: what says the same becomes one hit, and what differs in what matters stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.folding import fold

SAID = "The deployment of the billing service failed because the certificate of the proxy had expired"
CHINESE = "账单服务的部署失败了，因为代理的证书在上周末过期了"


@pytest.mark.parametrize(
    ("better", "other"),
    [
        ("Port 8443", "port  8443"),
        ("好的", "好的 "),
        ("ＡＢＣ １２", "abc 12"),
        ("🙂", "🙂"),
        (SAID, SAID.upper() + "!"),
        (SAID, "Well, the " + SAID.removeprefix("The ")),
        (SAID, SAID.removesuffix(" had expired")),
        (SAID, f"- **{SAID}**.\n"),
        (CHINESE, CHINESE.replace("，", " ") + "。"),
        (CHINESE, CHINESE.replace("过期了", "过期")),
    ],
)
def test_what_says_the_same_is_folded_into_the_better_one(better: str, other: str) -> None:
    assert fold([better, other], 5) == {0: [1]}


@pytest.mark.parametrize(
    ("better", "other"),
    [
        ("yes", "yes, on port 8443"),
        ("🙂", "🙁"),
        ("x = -1", "x = 1"),
        ("a b", "ab"),
        ("Restart the proxy", "Restart the broker"),
        (f"{SAID} on 2026-01-30", f"{SAID} on 2026-01-31"),
        (f"{SAID} at 10:30", f"{SAID} at 10:31"),
        (SAID, SAID.replace("proxy", "broker")),
        (SAID, SAID.replace("proxy", "proxy at Frankfurt")),
        (SAID, SAID.replace(" had expired", " had not expired")),
        (SAID.replace(" had expired", " had not expired"), SAID),
        (f"if total == limit and count > 0 then return {SAID}", f"if total != limit and count > 0 then return {SAID}"),
        ("the red team beat the blue team in the final match", "the blue team beat the red team in the final match"),
        (CHINESE, CHINESE.replace("过期", "没过期")),
        (CHINESE, CHINESE.replace("代理", "网关")),
        (SAID.removesuffix(" had expired"), SAID),
    ],
)
def test_what_differs_in_a_number_a_negation_or_a_word_of_its_own_stays(better: str, other: str) -> None:
    assert fold([better, other], 5) == {0: [], 1: []}


def test_k_hits_are_k_different_things_and_each_names_all_that_it_stands_for() -> None:
    texts = ["one", "two", "ONE", "three", "two ", "four", "one"]
    assert fold(texts, 2) == {0: [2, 6], 1: [4]}
    assert fold(texts, 9) == {0: [2, 6], 1: [4], 3: [], 5: []}
    assert fold([], 5) == {}


@given(st.lists(st.text("ab不1 ", max_size=40), max_size=20), st.integers(1, 10))
def test_every_text_is_kept_or_named_once_as_long_as_there_is_room(texts: list[str], k: int) -> None:
    kept = fold(texts, k)
    assert len(kept) <= k
    named = [*kept, *(index for others in kept.values() for index in others)]
    assert len(named) == len(set(named))
    if len(kept) < k:
        assert sorted(named) == list(range(len(texts)))
    assert list(kept) == sorted(kept)
    assert all(better < other for better, others in kept.items() for other in others)
    again = [texts[index] for index in kept]
    assert len(fold(again, k)) == len(again), "what is kept differs"
