"""A short question is computed by one thread, and everything else by as many as before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from workers.embedding import threads
from workers.embedding.threads import SHORT_CHARS, threads_for

pytestmark = pytest.mark.contract


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    usual = torch.get_num_threads()
    torch.set_num_threads(3)
    threads._usual_threads.cache_clear()
    yield
    torch.set_num_threads(usual)
    threads._usual_threads.cache_clear()


def test_a_short_question_takes_one_thread_and_a_long_one_the_usual_number() -> None:
    with threads_for("which port?"):
        assert torch.get_num_threads() == 1
    with threads_for("x" * (SHORT_CHARS + 1)):
        assert torch.get_num_threads() == 3


def test_the_usual_number_comes_back_also_where_another_question_was_being_read() -> None:
    with threads_for("one"), pytest.raises(ValueError, match="it fails"), threads_for("another"):
        raise ValueError("it fails")
    assert torch.get_num_threads() == 3
