"""Turns that say the same: they leave room for others, and the one that is the question stands first."""

from __future__ import annotations

import pytest

from memory import Memory, contents, turn
from producers.settings import Settings

pytestmark = pytest.mark.integration


@pytest.fixture
def memory(settings: Settings) -> Memory:
    return Memory(settings)


def test_copies_do_not_keep_different_turns_out(memory: Memory) -> None:
    memory.store(*[turn("deploy finished successfully", n) for n in range(300)])
    others = [f"deploy {word} failed" for word in ("red", "green", "blue", "grey")]
    memory.store(*[turn(text, 300 + n) for n, text in enumerate(others)])
    answer = memory.ask("deploy finished successfully", k=5)
    assert sorted(contents(answer)) == sorted(["deploy finished successfully", *others])
    assert answer.degraded == []
    late = memory.ask("deploy finished successfully", k=5, deadline_ms=1)
    assert len(late.hits) == 1
    few = "folding: the 50 best turns say only 1 different things, and there may be others: "
    assert few + "raise deadline_ms or wide, or filter" in late.degraded


def test_a_turn_in_several_chunks_that_is_the_question_is_first(memory: Memory) -> None:
    fix = "Use this fix for quux{}:\n\n```sh\nquux --fix --all\n```\nDone by {}"
    texts = [fix.format("", "Ada"), fix.format("", "Bob"), fix.format(" now", "Cyd")]
    memory.store(turn(texts[0], 6, role="tool"), *[turn(text, 0, session_id=text[-3:]) for text in texts[1:]])
    for text in texts:
        first = memory.ask(text, fold=False, explain=True).hits[0]
        assert first.total_chunks > 1
        assert first.session_id == {"Ada": "s"}.get(text[-3:], text[-3:])
