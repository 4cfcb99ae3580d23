"""A few at a time, and nobody for longer than makes sense."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import pytest

from query.gate import Gate


def test_no_more_than_the_places_work_at_once() -> None:
    gate, lock = Gate(2), Lock()
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        with gate.place(time.monotonic() + 30):
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.01)
            with lock:
                inside -= 1

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(work) for _ in range(16)]:
            done.result()
    assert most == 2


def test_one_that_has_waited_long_enough_goes_on_and_takes_no_place_with_it() -> None:
    gate = Gate(1)
    with gate.place(time.monotonic() + 30):
        began = time.monotonic()
        with gate.place(began + 0.05):
            assert time.monotonic() - began >= 0.05
    began = time.monotonic()
    with gate.place(began + 30):
        assert time.monotonic() - began < 5


def test_a_place_is_free_again_after_an_error() -> None:
    gate = Gate(1)
    with pytest.raises(KeyError), gate.place(time.monotonic() + 30):
        raise KeyError
    began = time.monotonic()
    with gate.place(began + 30):
        assert time.monotonic() - began < 5
