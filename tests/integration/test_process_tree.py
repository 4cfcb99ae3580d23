"""The supervisor with real processes and the real Redis: it starts, restarts and stops, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import redis

from producers.errors import NotReady, UsageError
from producers.settings import Settings, load_settings
from workers.supervision.child import ChildEvent, ChildSpec
from workers.supervision.supervisor import Supervisor
from workers.supervision.tree_state import ProcessId, TreeState, read_state

pytestmark = pytest.mark.integration

CHILD = """
import os, signal, sys, time
from pathlib import Path
from workers.supervision.tree_state import mark_ready

data_dir, name = Path(os.environ["SCOPE_RECALL_DATA_DIR"]), sys.argv[1]

def stop(number, frame):
    if name != "stubborn":
        with (data_dir / "stopped").open("a") as out:
            out.write(name + "\\n")
        sys.exit(0)

signal.signal(signal.SIGTERM, stop)
mark_ready(data_dir, name)
while True:
    time.sleep(60)
"""

PARENT = """
import signal
import sys
from pathlib import Path
from producers.settings import load_settings
from workers.supervision.child import ChildSpec
from workers.supervision import supervisor
from workers.supervision.supervisor import Supervisor

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it, as nohup does
supervisor.LEFTOVER_GRACE = 1.0  # a child that ignores SIGTERM is part of these tests
data_dir, child, *names = sys.argv[1:]
specs = [ChildSpec(name, (sys.executable, child, name), stop_rank) for stop_rank, name in enumerate(names)]
Supervisor(load_settings(data_dir=Path(data_dir)), specs, on_event=lambda event: print(event, flush=True)).run()
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path / "data")


@pytest.fixture
def child(tmp_path: Path) -> str:
    path = tmp_path / "child.py"
    path.write_text(CHILD)
    return str(path)


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(settings: Settings, child: str) -> Iterator[Start]:
    """Starts a supervisor as a process of its own, and ends all of it when the test is over."""
    parents: list[subprocess.Popen[bytes]] = []

    def run(*names: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", PARENT, str(settings.data_dir), child, *names]
        parents.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL))
        return parents[-1]

    yield run
    state = read_state(settings.data_dir)
    for parent in parents:
        parent.kill()
        parent.wait()
    for process in _processes(state) if state else ():
        if process.alive():
            os.kill(process.pid, signal.SIGKILL)


def _processes(state: TreeState) -> list[ProcessId]:
    return [child.process for child in state.children if child.process]


def _wait_for(condition: Callable[[], object], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def _ready_state(settings: Settings, children: int) -> TreeState:
    """The state once that many children, Redis included, are ready."""

    def ready() -> bool:
        state = read_state(settings.data_dir)
        return state is not None and len(state.children) == children and all(child.ready for child in state.children)

    _wait_for(ready)
    state = read_state(settings.data_dir)
    assert state is not None
    return state


def _assert_nothing_left(settings: Settings, state: TreeState) -> None:
    _wait_for(lambda: not any(process.alive() for process in _processes(state)))
    mine = str(settings.data_dir)
    assert not [found for found in psutil.process_iter(["cmdline"]) if mine in " ".join(found.info["cmdline"] or ())]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_the_tree_in_order_and_leaves_nothing_behind(
    settings: Settings, start: Start, number: signal.Signals
) -> None:
    parent = start("scheduler", "intake", "worker")
    state = _ready_state(settings, 4)
    assert [child.name for child in state.children] == ["redis", "scheduler", "intake", "worker"]
    parent.send_signal(number)
    assert parent.wait(timeout=15) == 0
    _assert_nothing_left(settings, state)
    assert (settings.data_dir / "stopped").read_text().split() == ["scheduler", "intake", "worker"]
    assert not settings.redis_socket.exists()
    assert not (settings.data_dir / "up.json").exists()
    assert not list((settings.data_dir / "run").iterdir())


def test_a_killed_supervisor_leaves_nothing_behind_and_the_next_one_starts(settings: Settings, start: Start) -> None:
    parent = start("worker")
    state = _ready_state(settings, 2)
    parent.kill()
    parent.wait()
    _assert_nothing_left(settings, state)
    assert read_state(settings.data_dir) is None
    start("worker")
    assert _ready_state(settings, 2).process.pid != state.process.pid


def test_what_a_killed_supervisor_left_is_ended_by_the_next_one(settings: Settings, start: Start) -> None:
    parent = start("stubborn")
    state = _ready_state(settings, 2)
    left = state.children[1].process
    assert left is not None
    parent.kill()
    parent.wait()
    start("worker")
    _ready_state(settings, 2)
    assert not left.alive()


def test_killed_children_are_restarted_and_redis_keeps_its_data(settings: Settings, start: Start) -> None:
    start("worker")
    before = _ready_state(settings, 2)
    with redis.Redis.from_url(settings.redis_location) as client:
        client.set("first", "kept")
    for process in _processes(before):
        os.kill(process.pid, signal.SIGKILL)

    def restarted() -> bool:
        state = read_state(settings.data_dir)
        return state is not None and all(child.restarts == 1 and child.ready for child in state.children)

    _wait_for(restarted)
    after = _ready_state(settings, 2)
    assert [child.last_exit for child in after.children] == ["killed by SIGKILL", "killed by SIGKILL"]
    assert not set(_processes(before)) & set(_processes(after))
    with redis.Redis.from_url(settings.redis_location) as client:
        assert client.get("first") == b"kept"


def test_a_second_tree_on_the_same_data_dir_is_refused_and_the_first_lives_on(settings: Settings, start: Start) -> None:
    parent = start("worker")
    state = _ready_state(settings, 2)
    with pytest.raises(UsageError, match=f"already running as pid {parent.pid}"), Supervisor(settings, []):
        pass
    assert read_state(settings.data_dir) is not None
    assert all(process.alive() for process in _processes(state))


def test_a_second_signal_kills_a_child_that_does_not_stop(settings: Settings, start: Start) -> None:
    parent = start("stubborn")
    state = _ready_state(settings, 2)
    parent.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert parent.poll() is None
    parent.send_signal(signal.SIGINT)
    assert parent.wait(timeout=10) == 0
    _assert_nothing_left(settings, state)


def test_a_child_gets_the_settings_and_not_those_of_the_environment(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCOPE_RECALL_WORKERS", "7")  # these settings were made before; a child must not read another
    code = (
        "import time; from producers.settings import load_settings\n"
        "from workers.supervision.tree_state import mark_ready\n"
        "given = load_settings(); print(given.data_dir, given.workers, flush=True)\n"
        "mark_ready(given.data_dir, 'worker'); time.sleep(60)"
    )
    with Supervisor(settings, [ChildSpec("worker", (sys.executable, "-c", code))]) as tree:
        tree.wait_ready(15)
        assert (settings.data_dir / "logs" / "worker.log").read_text() == f"{settings.data_dir} 1\n"


def test_a_child_that_ends_again_and_again_is_not_waited_for_and_its_log_is_shown(settings: Settings) -> None:
    events: list[ChildEvent] = []
    spec = ChildSpec("worker", (sys.executable, "-c", "raise SystemExit('no such model: nothing')"))
    with (
        Supervisor(settings, [spec], on_event=events.append) as tree,
        pytest.raises(NotReady, match=r"(?s)worker ends again and again.*no such model: nothing"),
    ):
        tree.wait_ready(60)
    assert [event.what for event in events if event.name == "worker"] == ["started", "ended"] * 3
    assert [event.what for event in events if event.name == "redis"] == ["started", "ready", "stopped"]


def test_a_redis_that_cannot_start_is_an_error_with_its_log_and_frees_the_data_dir(settings: Settings) -> None:
    folder = settings.data_dir / "redis"
    folder.mkdir(parents=True)
    (folder / "appendonly.aof").write_text("damaged")
    for _ in range(2):
        with (
            pytest.raises(NotReady, match=r"(?s)embedded Redis ended at its start.*redis\.log"),
            Supervisor(settings, []),
        ):
            pass


def test_with_a_redis_url_no_redis_is_started(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path, redis_url="redis://localhost:1/0")
    with Supervisor(settings, []) as tree:
        tree.wait_ready(1)
        state = read_state(tmp_path)
        assert state is not None
        assert state.children == ()


def test_a_terminal_that_is_gone_and_a_state_file_that_cannot_be_written_do_not_end_the_tree(
    settings: Settings, child: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(event: ChildEvent) -> None:
        raise BrokenPipeError

    def full(data_dir: Path, state: TreeState) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workers.supervision.supervisor.write_state", full)
    with Supervisor(settings, [ChildSpec("worker", (sys.executable, child, "worker"))], on_event=closed) as tree:
        tree.wait_ready(15)
    assert (settings.data_dir / "stopped").read_text() == "worker\n"
