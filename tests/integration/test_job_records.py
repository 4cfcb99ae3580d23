"""What RQ keeps of jobs: no record of an ingest job stays for ever, whoever dies, and none that waits goes too soon."""

from __future__ import annotations

import pytest

from stepped import Stepped, turn
from workers.queues import record_ttl
from workers.runtime import runtime

pytestmark = pytest.mark.integration


def records(system: Stepped) -> dict[str, int]:
    """Seconds left of each job's record."""
    prefix = f"{system.keys.rq_prefix}:job:"
    return {name.decode(): system.client.ttl(name) for name in system.client.scan_iter(f"{prefix}*")}


def test_the_record_of_a_job_that_a_dying_worker_took_expires_and_its_turns_are_stored(system: Stepped) -> None:
    system.push(turn("hello"))
    system.step()
    taken = system.client.lpop(system.queue.key)  # as a worker takes it; killed, it would not do more
    assert [record_ttl(system.settings) >= left > 0 for left in records(system).values()] == [True]
    assert system.queue.fetch_job(taken.decode()) is not None
    system.abandon()
    system.settle()
    assert system.counts() == (1, 1, 1)


def test_the_record_of_a_job_whose_worker_is_killed_at_work_expires(system: Stepped) -> None:
    from workers.worker import ResidentWorker  # it imports rq, whose prefix is set by now

    system.push(turn("hello"))
    system.step()
    worker = ResidentWorker([system.queue], runtime())
    [job] = system.queue.get_jobs()
    worker.prepare_execution(job)
    worker.prepare_job_execution(job)
    assert [record_ttl(system.settings) >= left > 0 for left in records(system).values()] == [True]


def test_the_record_of_a_job_that_waits_is_renewed(system: Stepped) -> None:
    system.push(turn("hello"))
    system.step()
    [job] = system.queue.get_jobs()
    system.client.expire(job.key, 60)
    system.step()
    assert records(system)[job.key] > 60
