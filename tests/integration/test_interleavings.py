"""Two intakes and two workers in any order, with deaths in between: the stores end up as a model says.

Hypothesis chooses the steps. A worker dies at a named point, or the other worker runs a whole job at that point, which
is every interleaving of two workers as far as their steps can see each other. Real Redis, catalog and LanceDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from producers.connection import connect
from producers.crash_points import Point
from producers.keys import GROUP
from producers.settings import Settings
from producers.stream import EventStream
from stepped import Stepped, turn
from workers.runtime import Runtime, build_ingest, install
from workers.stores.engine import open_engine
from workers.stores.space import vector_id
from workers.stores.tables import chunks, turns

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

CONTENTS = ("one", "two", "three " * 40)
"""Of one chunk and of several, so that revisions gain and lose chunks."""
HOOKED = ("workers.ingest", "workers.jobs", "workers.stores.vectors", "workers.embedding.batch", "workers.intake")
WORKER_POINTS = [Point(p) for p in Point if p not in (Point.AFTER_XADD, Point.AFTER_READ, Point.AFTER_ENQUEUE)]
PLACES = st.integers(0, 2)
"""Which of the queued jobs: workers take them in order and finish them in any."""
_numbers = count()


class Killed(BaseException):
    """Stands for kill -9: nothing of ours handles it."""


class World:
    """One Redis and one pair of stores for all runs; each run has a session of its own."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stepped = Stepped(settings)
        self.settings = settings
        self.client = self.stepped.client
        self.stream = self.stepped.keys.stream("live")
        from workers.intake import Intake  # not before RQ has its prefix

        monkeypatch.setattr("workers.intake.IDLE_BLOCK", 0.001)
        self.intakes = [Intake(connect(settings), settings, "live", f"intake-{n}", self.stepped.stop) for n in (1, 2)]
        self.workers = []
        for name in ("worker-1", "worker-2"):
            pipeline, upkeep = build_ingest(settings, self.client)
            self.workers.append(Runtime(settings, self.client, name, self.stepped.stop, pipeline, upkeep))
        self.at: dict[Point, Callable[[], None]] = {}
        for module in HOOKED:
            monkeypatch.setattr(f"{module}.reached", self._reached)
        self.engine = open_engine(settings.catalog_location, create=False)

    def _reached(self, point: Point) -> None:
        action = self.at.pop(point, None)
        if action:
            action()

    def intake(self, number: int) -> None:
        with self.standing_at({}):
            self.intakes[number]._next_housekeeping = 0.0
            self.intakes[number].step()

    def run(self, number: int, args: tuple[Any, ...], at: dict[Point, Callable[[], None]]) -> None:
        from workers.jobs import ingest

        install(self.workers[number])
        with self.standing_at(at), suppress(Killed):
            ingest(*args)

    @contextmanager
    def standing_at(self, at: dict[Point, Callable[[], None]]) -> Iterator[None]:
        before, self.at = self.at, at
        try:
            yield
        finally:
            self.at = before

    def take(self, place: int = 0) -> tuple[Any, ...] | None:
        """The arguments of a queued job, counted from the oldest; RQ then knows nothing more of it."""
        queue = self.stepped.queue
        job_ids = queue.get_job_ids()
        if not job_ids:
            return None
        job = queue.fetch_job(job_ids[min(place, len(job_ids) - 1)])
        assert job is not None
        queue.remove(job)
        job.delete()
        return tuple(job.args)

    def lapse(self) -> None:
        """Let every lease run out, without waiting for it."""
        rows = self.client.xpending_range(self.stream, GROUP, "-", "+", 1000)
        idle = int(self.settings.lease * 1000) + 1
        for row in rows:
            self.client.xclaim(
                self.stream, GROUP, row["consumer"], 0, [row["message_id"]], idle=idle, justid=True,
                retrycount=row["times_delivered"],
            )  # fmt: skip


class Interleaving(RuleBasedStateMachine):
    """What intakes and workers may do, one after the other or one inside the other."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.session = f"run {next(_numbers)}"
        self.expected: dict[int, str] = {}
        self.jobs: list[tuple[Any, ...]] = []

    @initialize(contents=st.lists(st.sampled_from(CONTENTS), min_size=3, max_size=3))
    def begin(self, contents: list[str]) -> None:
        """Three revisions of one turn are queued, for whoever takes them first."""
        self.push([(0, content) for content in contents])
        self.read(0, 4)

    @rule(contents=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(CONTENTS)), min_size=1, max_size=3))
    def push(self, contents: list[tuple[int, str]]) -> None:
        with EventStream(self.world.settings) as stream:
            stream.append([turn(content, number, session_id=self.session) for number, content in contents])
        self.expected.update(contents)

    @rule(number=st.integers(0, 1), times=st.integers(1, 4))
    def read(self, number: int, times: int) -> None:
        for _ in range(times):
            self.world.intake(number)

    @rule(number=st.integers(0, 1), point=st.sampled_from([Point.AFTER_READ, Point.AFTER_ENQUEUE]))
    def read_and_die(self, number: int, point: Point) -> None:
        intake = self.world.intakes[number]
        intake._next_housekeeping = 0.0
        with self.world.standing_at({point: _die}), suppress(Killed):
            intake.step()

    @rule(number=st.integers(0, 1), place=PLACES)
    def work(self, number: int, place: int) -> None:
        self._work(number, place, {})

    @rule(number=st.integers(0, 1), place=PLACES, point=st.sampled_from(WORKER_POINTS))
    def work_and_die(self, number: int, place: int, point: Point) -> None:
        self._work(number, place, {point: _die})

    @rule(number=st.integers(0, 1), place=PLACES, point=st.sampled_from(WORKER_POINTS), other=PLACES)
    def work_while_the_other_works(self, number: int, place: int, point: Point, other: int) -> None:
        self._work(number, place, {point: lambda: self._work(1 - number, other, {})})

    @rule(number=st.integers(0, 1), data=st.data(), point=st.sampled_from([None, *WORKER_POINTS]))
    def run_a_job_once_more(self, number: int, data: st.DataObject, point: Point | None) -> None:
        """By a worker that was held to be dead, or by an RQ that runs a job twice."""
        if self.jobs:
            args = data.draw(st.sampled_from(self.jobs))
            self.world.run(number, args, {point: lambda: self._work(1 - number, 0, {})} if point else {})

    @rule()
    def leases_run_out(self) -> None:
        self.world.lapse()

    def _work(self, number: int, place: int, at: dict[Point, Callable[[], None]]) -> None:
        args = self.world.take(place)
        if args is not None:
            self.jobs.append(args)
            self.world.run(number, args, at)
            install(self.world.workers[1 - number])  # whoever was interrupted goes on

    def teardown(self) -> None:
        """Everything goes on undisturbed, and then the stores are what was pushed last."""
        for _ in range(50):
            self.world.lapse()
            self.world.intake(0)
            while (args := self.world.take()) is not None:
                self.world.run(0, args, {})
            if self.world.client.xlen(self.world.stream) == 0:
                break
        assert self.world.stepped.left() == (0, 0)
        assert self.world.client.xlen(self.world.stepped.keys.dead) == 0
        with self.world.engine.connect() as connection:
            rows = connection.execute(sa.select(turns).where(turns.c.session_id == self.session)).all()
            spans = connection.execute(
                sa.select(chunks.c.vector_id).join(turns).where(turns.c.session_id == self.session)
            ).scalars()
            chunk_ids = sorted(spans)
        assert {row.turn_index: row.content for row in rows} == self.expected
        assert all(row.state == "indexed" for row in rows)
        pipeline = self.world.stepped.pipeline
        wanted = [
            vector_id(pipeline.active.space.id, row.turn_key, row.content_hash, chunk.index)
            for row in rows
            for chunk in pipeline.active._chunker.chunk(row.content)
        ]
        assert chunk_ids == sorted(wanted)
        assert self._vector_ids() == sorted(wanted)

    def _vector_ids(self) -> list[str]:
        """Read past every cache of ours."""
        pipeline = self.world.stepped.pipeline

        def look_up(table: Any) -> list[str]:
            found = table.search().where(f"session_id = '{self.session}'").select(["vector_id"]).to_arrow()
            return sorted(found["vector_id"].to_pylist())

        return pipeline._vectors._lance.read(pipeline.active.space, look_up, [])


def _die() -> None:
    raise Killed


@pytest.fixture
def world(shared_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    small = {"lease": 600.0, "batch_wait": 0.0, "batch_turns": 1, "max_inflight": 50, "max_deliveries": 100}
    world = World(shared_settings.model_copy(update=small | {"chunk_tokens": 16}), monkeypatch)
    yield world
    world.engine.dispose()


@pytest.mark.parametrize("contents", [CONTENTS, (*CONTENTS[:2], CONTENTS[0])], ids=["one two three", "one two one"])
@pytest.mark.parametrize("point", WORKER_POINTS)
def test_a_revision_that_is_overtaken_at_this_point_neither_removes_the_newer_one_nor_stays(
    world: World, point: Point, contents: tuple[str, ...]
) -> None:
    run = Interleaving(world)
    run.begin(list(contents))
    run.work(0, 0)
    run.work_while_the_other_works(0, 0, point, 0)
    run.teardown()


@pytest.mark.parametrize("point", WORKER_POINTS)
def test_a_stale_revision_cut_short_at_this_point_leaves_nothing_of_it(world: World, point: Point) -> None:
    run = Interleaving(world)
    run.push([(0, "one"), (0, "two")])
    run.read(0, 2)
    older = world.take()
    assert older is not None
    world.run(0, older, {point: lambda: _then_die(run)})
    run.teardown()


def _then_die(run: Interleaving) -> None:
    run.work(1, 0)
    raise Killed


def test_whatever_the_order_of_two_intakes_and_two_workers_the_last_revision_is_stored_once(world: World) -> None:
    chosen = hypothesis_settings(
        max_examples=EXAMPLES,
        stateful_step_count=10,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: Interleaving(world), settings=chosen)


EXAMPLES = 20
"""About half a second each; a search for something new takes hundreds, without `derandomize`."""
