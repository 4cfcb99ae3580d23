"""Crash orders: carried out once, at the right passage, by a process that was told of them; otherwise nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from producers.crash_points import VARIABLE, Order, Orders, Point, reached
from producers.errors import SettingsError

PASS_THREE_TIMES = """
from producers.crash_points import Point, reached
for passage in (1, 2, 3):
    print(passage, flush=True)
    reached(Point.AFTER_READ)
"""


def run(folder: Path) -> tuple[int, list[str]]:
    environment = os.environ | {VARIABLE: str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", PASS_THREE_TIMES],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout.split()


def test_without_the_variable_a_point_does_nothing() -> None:
    assert reached.__name__ == "_pass_by"
    for point in Point:
        reached(point)


def test_the_process_that_passes_often_enough_dies_and_takes_the_order_with_it(tmp_path: Path) -> None:
    order = Order(passage=2).put(tmp_path, Point.AFTER_READ)
    assert run(tmp_path) == (-signal.SIGKILL, ["1", "2"])
    assert not order.exists()
    assert run(tmp_path) == (0, ["1", "2", "3"]), "started again, it lives"


def test_an_order_of_another_point_waits(tmp_path: Path) -> None:
    order = Order().put(tmp_path, Point.AFTER_ACK)
    assert run(tmp_path) == (0, ["1", "2", "3"])
    assert order.exists()


def test_an_order_can_name_another_process(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim:
        Order(pid=victim.pid).put(tmp_path, Point.AFTER_READ)
        assert run(tmp_path) == (0, ["1", "2", "3"])
        assert victim.wait(10) == -signal.SIGKILL
        Order(pid=victim.pid).put(tmp_path, Point.AFTER_READ)
        assert run(tmp_path) == (0, ["1", "2", "3"]), "a victim that is gone already is no error"


def test_passages_are_counted_from_the_order_on(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    for _ in range(3):
        orders.reached(Point.AFTER_READ)
    first = Order(passage=3).put(tmp_path, Point.AFTER_READ)
    orders.reached(Point.AFTER_READ)
    orders.reached(Point.AFTER_READ)
    first.unlink()
    second = Order(passage=3).put(tmp_path, Point.AFTER_READ)
    orders.reached(Point.AFTER_READ)
    assert second.exists()


def test_an_unknown_point_is_refused_with_the_list(tmp_path: Path) -> None:
    (tmp_path / "after-lunch").touch()
    with pytest.raises(SettingsError, match="'after-lunch' is no crash point; they are after-xadd, after-read"):
        Orders(tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="not a folder"):
        Orders(tmp_path / "nowhere")
