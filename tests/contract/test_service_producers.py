"""Producers that push to the query service, with and without asyncio, over the loopback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from driven import Driven
from fake_service import Service
from producers.client import AsyncProducer, Producer
from producers.errors import (
    InvalidEvent,
    ServiceAway,
    TurnsRejected,
    UnexpectedAnswer,
    UsageError,
)

pytestmark = pytest.mark.contract

BUSY = {"title": "Busy", "status": 503, "error": "the stream is full"}


def producer(url: str, **options: Any) -> Any:
    return Producer(url, **options)


def async_producer(url: str, **options: Any) -> Any:
    return Driven(lambda: AsyncProducer(url, **options))


@pytest.fixture(params=[producer, async_producer], ids=["sync", "async"])
def producer_of(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return request.param  # type: ignore[no-any-return]


def turn(index: int, content: str = "said", **fields: Any) -> dict[str, Any]:
    return {"session_id": "s", "turn_index": index, "role": "user", "content": content, **fields}


def test_a_push_is_cut_into_batches_and_repeating_it_changes_nothing(
    service: Service, producer_of: Callable[..., Any]
) -> None:
    turns = [turn(n, "x" * 1000) for n in range(1200)]
    with producer_of(service.url) as producer:
        assert producer.push(iter(turns)) == 1200
        assert producer.push(turns) == 1200
    assert len(service.turns) == 1200
    assert [len(body["turns"]) for body in service.bodies[:3]] == [500, 500, 200]


def test_what_is_rejected_costs_nothing_else_and_is_told(service: Service, producer_of: Callable[..., Any]) -> None:
    turns = [
        turn(0),
        turn(1, ""),
        turn(2, "refuse this"),
        turn(3),
        {"session_id": "s"},
        turn(5, "x", metadata={"a": {1}}),
    ]
    with producer_of(service.url) as producer, pytest.raises(TurnsRejected) as caught:
        producer.push(turns)
    assert caught.value.accepted == 2
    assert [(one.position, one.reason.partition(",")[0]) for one in caught.value.rejected] == [
        (1, "content: string should have at least 1 character"),
        (4, "turn_index: missing; role: missing; content: missing"),
        (5, "not a turn: set is not JSON"),
        (2, "content: it is not liked"),
    ]
    assert {identity.turn_index for identity in service.turns} == {0, 3}


def test_a_batch_that_is_too_large_is_halved(service: Service, producer_of: Callable[..., Any]) -> None:
    service.most_turns = 3
    with producer_of(service.url) as producer:
        assert producer.push([turn(n) for n in range(10)]) == 10
    assert len(service.turns) == 10
    service.first = [(413, {"error": "too large"}, {})]
    with producer_of(service.url) as producer, pytest.raises(TurnsRejected, match=r"turn 0: .*too large"):
        producer.push(turn(0))


def test_turns_that_the_service_did_not_decide_about_are_to_be_pushed_again(
    service: Service, producer_of: Callable[..., Any]
) -> None:
    service.first = [(202, {"results": [{"status": "accepted"}, {"status": "unavailable"}]}, {})]
    with producer_of(service.url) as producer:
        with pytest.raises(ServiceAway, match="took 1 of 2 turns"):
            producer.push([turn(0), turn(1)])
        service.first = [(202, {"results": []}, {})]
        with pytest.raises(UnexpectedAnswer, match="0 results for 2 turns"):
            producer.push([turn(0), turn(1)])


def test_what_is_added_is_pushed_in_batches_and_at_the_end(service: Service, producer_of: Callable[..., Any]) -> None:
    with producer_of(service.url) as producer:
        for n in range(501):
            producer.add(turn(n))
        assert len(service.turns) == 500
        with pytest.raises(InvalidEvent, match="role: input should be"):
            producer.add(turn(0, role="robot"))
    assert len(service.turns) == 501


@pytest.mark.parametrize(("turns", "got"), [(None, "NoneType"), ("hello", "str"), (b"hello", "bytes"), (5, "int")])
def test_what_is_neither_a_turn_nor_several_is_refused_whole(
    service: Service, producer_of: Callable[..., Any], turns: Any, got: str
) -> None:
    with (
        producer_of(service.url) as producer,
        pytest.raises(InvalidEvent, match=f"^turns: a turn or a list of turns is due, got {got}$"),
    ):
        producer.push(turns)
    assert service.bodies == []


def test_a_closed_producer_takes_nothing_and_may_be_closed_again(
    service: Service, producer_of: Callable[..., Any]
) -> None:
    with producer_of(service.url) as producer:
        producer.add(turn(0))
        producer.close()
        assert len(service.turns) == 1
        for call in (lambda: producer.push(turn(1)), lambda: producer.add(turn(1)), lambda: producer.flush()):
            with pytest.raises(UsageError, match="this client is closed"):
                call()
    assert len(service.turns) == 1


def test_what_could_not_be_flushed_is_still_held(service: Service, producer_of: Callable[..., Any]) -> None:
    with producer_of(service.url, timeout=0.5) as producer:
        producer.add(turn(0))
        service.first = [(503, BUSY, {"Retry-After": "9"})]
        with pytest.raises(ServiceAway):
            producer.flush()
        producer.flush()
        assert len(service.turns) == 1
        producer.add(turn(1, "refuse this"))
        with pytest.raises(TurnsRejected):
            producer.flush()
        producer.flush()  # what was rejected is not tried for ever
