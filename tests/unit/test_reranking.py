"""Reranking without models: the deadline's arithmetic, the vector cache, the weights, the names."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.errors import ModelError, SettingsError
from producers.settings import Settings
from query.reranking import bge, pacing
from query.reranking.http import HttpReranker
from query.reranking.late_interaction import idf, in_alike_passes
from query.reranking.pacing import PASS_TOKENS, Pace, best_reached, run_in_time, to_the_longest
from query.reranking.registry import load_reranker
from query.reranking.token_cache import Tokens, VectorCache


class Clock:
    """A monotonic clock that moves only when work is done."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pacing, "time", clock)
    return clock


def run(clock: Clock, lengths: list[int], *, seconds_a_token: float, known: float, deadline: float | None) -> list[int]:
    """Indices in the order they were run; a token costs `seconds_a_token`, the pace was measured as `known`."""
    done: list[int] = []

    def work(indices: list[int]) -> None:
        tokens = max(lengths[index] for index in indices) * len(indices)
        clock.now += (tokens + PASS_TOKENS) * seconds_a_token
        done.extend(indices)

    pace = Pace()
    pace.record(1, known)
    run_in_time(lengths, work, batch=4, pace=pace, lock=threading.Lock(), deadline=deadline)
    return done


def test_without_a_deadline_everything_runs_longest_first(clock: Clock) -> None:
    lengths = [3, 9, 1, 9, 4, 2]
    assert run(clock, lengths, seconds_a_token=1, known=1, deadline=None) == [1, 3, 4, 0, 5, 2]


def test_nothing_runs_after_the_deadline(clock: Clock) -> None:
    assert run(clock, [1] * 10, seconds_a_token=1, known=1, deadline=clock.now - 1) == []


def test_a_pass_that_would_overrun_is_not_started(clock: Clock) -> None:
    assert run(clock, [100], seconds_a_token=1, known=1, deadline=clock.now + 100 + PASS_TOKENS) == []


@given(
    lengths=st.lists(st.integers(1, 50), max_size=60),
    seconds=st.floats(0.001, 0.1),
    budget=st.floats(0, 300),
)
def test_a_true_pace_never_overruns_and_reaches_the_best(lengths: list[int], seconds: float, budget: float) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pacing, "time", clock)
        deadline = clock.now + budget
        done = run(clock, lengths, seconds_a_token=seconds, known=seconds, deadline=deadline)
    assert clock.now <= deadline or not done
    assert len(done) == len(set(done))
    assert set(done) == set(range(len(done)))
    if lengths and budget > 3 * (max(lengths) + PASS_TOKENS) * len(lengths) * seconds:
        assert sorted(done) == list(range(len(lengths)))


def test_a_pace_that_was_too_hopeful_overruns_by_one_batch_at_most(clock: Clock) -> None:
    done = run(clock, [10] * 400, seconds_a_token=0.1, known=0.01, deadline=clock.now + 60)
    assert clock.now <= 100 + 60 + (4 * 10 + PASS_TOKENS) * 0.1
    assert 0 < len(done) < 400


def test_what_is_reached_is_the_best_when_the_time_is_short(clock: Clock) -> None:
    done = run(clock, [10, 20] * 20, seconds_a_token=0.1, known=0.1, deadline=clock.now + 30)
    assert sorted(done) == list(range(len(done)))
    assert 4 <= len(done) < 20


def test_a_batch_that_does_not_fit_any_more_is_planned_again_smaller(clock: Clock) -> None:
    done = run(clock, [10] * 8, seconds_a_token=0.3, known=0.1, deadline=clock.now + 40)
    assert done == [0, 1, 2, 3, 4], "four that took longer than believed, then the one that still fits"
    assert clock.now <= 140


def test_texts_read_in_passes_of_like_length_are_charged_for_their_own_padding() -> None:
    assert in_alike_passes([3, 16, 17]) == 16 * 2 + 32 + 2 * PASS_TOKENS
    assert in_alike_passes([16, 400]) < to_the_longest([16, 400]) == 800 + PASS_TOKENS


def test_callers_at_once_plan_for_their_part_of_the_time(clock: Clock) -> None:
    windows: list[int] = []
    for others in (0, 3):
        pace = Pace()
        pace.record(1, 0.1)
        done: list[int] = []
        with ExitStack() as stack:
            for _ in range(others):
                stack.enter_context(pace.caller())
            clock.now = 100.0

            def work(indices: list[int], done: list[int] = done) -> None:
                done.extend(indices)
                clock.now += 1000  # what comes after is another caller's turn

            run_in_time([10] * 400, work, batch=400, pace=pace, lock=threading.Lock(), deadline=clock.now + 800)
        windows.append(len(done))
        assert pace.callers == 0
    assert windows[0] == pytest.approx(4 * windows[1], abs=16)


def test_a_score_below_an_unread_text_is_left_out() -> None:
    assert best_reached([0.2, 0.9, None, 0.7, None]) == [0.2, 0.9, None, None, None]
    assert best_reached([0.2, 0.9]) == [0.2, 0.9]
    assert best_reached([None, 0.9]) == [None, None]
    assert best_reached([]) == []


def test_a_caller_whose_turn_does_not_come_in_time_gives_up() -> None:
    lock = threading.Lock()
    done: list[int] = []
    with lock:
        began = time.monotonic()
        run_in_time([1], done.extend, batch=1, pace=Pace(), lock=lock, deadline=began + 0.05)
    assert done == []
    assert time.monotonic() - began < 1


def entry(tokens: int) -> Tokens:
    return Tokens(np.zeros(tokens, np.int32), np.zeros((tokens, 8), np.float16))


@given(sizes=st.lists(st.integers(0, 40), max_size=60))
def test_the_cache_never_holds_more_than_its_limit(sizes: list[int]) -> None:
    cache = VectorCache(500)
    for number, size in enumerate(sizes):
        cache.put(str(number).encode(), entry(size))
        assert cache.nbytes <= 500
    kept = [key for key in range(len(sizes)) if cache.get(str(key).encode()) is not None]
    assert cache.nbytes == sum(entry(sizes[key]).nbytes for key in kept)


def test_the_cache_forgets_what_was_used_longest_ago() -> None:
    cache = VectorCache(2 * entry(4).nbytes)
    cache.put(b"a", entry(4))
    cache.put(b"b", entry(4))
    cache.get(b"a")
    cache.put(b"c", entry(4))
    assert [cache.get(key) is None for key in (b"a", b"b", b"c")] == [False, True, False]


def test_a_token_of_every_candidate_weighs_less_than_a_token_of_one() -> None:
    pool = [np.array([1, 1, 2], np.int32), np.array([1, 3], np.int32), np.array([1], np.int32)]
    weights = idf(np.array([1, 2, 9], np.int32), pool)
    assert weights == pytest.approx([np.log(1 + 0.5 / 3.5), np.log(1 + 2.5 / 1.5), np.log(1 + 3.5 / 0.5)])


def test_none_is_no_reranker() -> None:
    assert load_reranker("none", Settings()) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("late-interactoin", "did you mean 'late-interaction'"),
        ("bgee", "did you mean 'bge'"),
        ("unheard-of", "short names are auto, none"),
        ("https://example.org/rerank", "SCOPE_RECALL_RERANKER_URL"),
        ("someone/absent-reranker", r"absent-reranker.*SCOPE_RECALL_ALLOW_DOWNLOADS=true"),
        ("not/a/valid/name", "not/a/valid/name"),
    ],
)
def test_a_name_that_stands_for_nothing_is_refused_with_what_to_do(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=said):
        load_reranker(name, Settings())


def test_http_without_a_url_names_the_setting() -> None:
    with pytest.raises(SettingsError, match="SCOPE_RECALL_RERANKER_URL"):
        load_reranker("http", Settings())


def test_http_takes_a_model_name() -> None:
    reranker = load_reranker("http:BAAI/bge-reranker-base", Settings(reranker_url="http://127.0.0.1:9/rerank"))
    assert isinstance(reranker, HttpReranker)
    assert reranker.name == "http:BAAI/bge-reranker-base"
    reranker.close()


def test_bge_is_the_multilingual_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(bge, "FlagCrossEncoder", lambda name, settings: asked.append(name))
    load_reranker("bge", Settings())
    assert asked == ["BAAI/bge-reranker-v2-m3"]


def test_a_pace_that_was_slow_once_recovers_also_when_nothing_is_believed_to_fit() -> None:
    pace = Pace()
    pace.record(10, 30.0)  # a first pass that loaded libraries
    read: list[int] = []
    for _ in range(40):
        lock = threading.Lock()
        run_in_time([300] * 16, read.extend, batch=8, pace=pace, lock=lock, deadline=time.monotonic() + 5)
        if read:
            break
    assert sorted(read) == list(range(16))
    pace.record(10, 30.0)
    pace.restart()
    assert pace.expect(1000) == 0.0
