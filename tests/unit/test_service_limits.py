"""The service's limits: rates of keys, lines before the work, size and time of bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from threading import Event

import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message

from query.api.limits import BodyAndTime, Line, Rates


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def taken(rates: Rates, key: str = "a", tries: int = 100) -> int:
    """How many of these requests pass."""
    passed = 0
    for _ in range(tries):
        with suppress(HTTPException):
            rates.take(key)
            passed += 1
    return passed


def test_a_key_gets_a_second_at_once_then_its_rate_and_others_are_not_touched() -> None:
    clock = Clock()
    rates = Rates(10, clock)
    assert taken(rates) == 10
    assert taken(rates, "b") == 10
    with pytest.raises(HTTPException) as refused:
        rates.take("a")
    assert (refused.value.status_code, refused.value.headers) == (429, {"Retry-After": "1"})
    clock.now += 0.5
    assert taken(rates) == 5
    clock.now += 60
    assert taken(rates) == 10, "what was not used is not saved up"


def test_a_rate_below_one_a_second_lets_one_pass_in_time_and_zero_is_no_limit() -> None:
    clock = Clock()
    slow = Rates(0.1, clock)
    assert taken(slow) == 1
    clock.now += 9.9
    assert taken(slow) == 0
    clock.now += 0.2
    assert taken(slow) == 1
    assert taken(Rates(0, clock)) == 100


def test_a_line_takes_some_at_once_some_wait_and_the_rest_is_refused() -> None:
    async def run() -> None:
        line, begun, go = Line("recall", 2, 3), [], Event()

        def work(number: int) -> int:
            begun.append(number)
            go.wait(10)
            return number

        tasks = [asyncio.create_task(line.run(work, number)) for number in range(5)]
        while len(begun) < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(HTTPException) as refused:
            await line.run(work, 5)
        assert refused.value.status_code == 429
        assert int((refused.value.headers or {})["Retry-After"]) >= 1
        assert begun == [0, 1]
        go.set()
        assert await asyncio.gather(*tasks) == [0, 1, 2, 3, 4]
        assert await line.run(work, 6) == 6
        line.close()

    asyncio.run(run())


def test_who_stops_waiting_leaves_the_line_and_what_has_begun_keeps_its_place() -> None:
    async def run() -> None:
        line, go = Line("recall", 1, 1), Event()
        begun = asyncio.create_task(line.run(go.wait, 10))
        waiting = asyncio.create_task(line.run(go.wait, 10))
        await asyncio.sleep(0.05)
        for task in (begun, waiting):
            task.cancel()
        await asyncio.sleep(0.05)
        after = asyncio.create_task(line.run(lambda: "after"))
        await asyncio.sleep(0.05)
        with pytest.raises(HTTPException):  # the first still runs, the third waits
            await line.run(lambda: "one too many")
        go.set()
        assert await after == "after"
        line.close()

    asyncio.run(run())


def test_an_error_of_the_work_is_the_callers_and_frees_its_place() -> None:
    async def run() -> None:
        line = Line("recall", 1, 0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await line.run(lambda: 1 / 0)
            await asyncio.sleep(0.02)
        line.close()

    asyncio.run(run())


Receive = Callable[[], Awaitable[Message]]


def through(receive: Receive, *, seconds: float = 5.0, length: str | None = None, slow: bool = False) -> bytes:
    """The body as an app behind the limits of 10 bytes gets it."""
    got: list[bytes] = []

    async def app(scope: object, receive: Receive, send: object) -> None:
        if slow:
            await asyncio.sleep(60)
        got.append((await receive())["body"])

    async def send(message: Message) -> None: ...

    headers = [] if length is None else [(b"content-length", length.encode())]
    limits = BodyAndTime(app, most_bytes=10, seconds=seconds)
    asyncio.run(limits({"type": "http", "headers": headers}, receive, send))
    return b"".join(got)


def pieces(*parts: bytes) -> Receive:
    left = list(parts)

    async def receive() -> Message:
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    return receive


async def nothing() -> Message:
    await asyncio.sleep(60)
    raise AssertionError


def test_a_body_up_to_the_limit_comes_whole() -> None:
    assert through(pieces(b"01234", b"", b"56789")) == b"0123456789"


@pytest.mark.parametrize(
    ("receive", "length", "code"),
    [
        (pieces(b"0123456789", b"x"), None, 413),
        (nothing, "11", 413),
        (nothing, "9" * 5000, 413),
        (nothing, "10", 408),
        (nothing, "-1", 408),
    ],
    ids=["sent", "announced", "absurd", "late", "nonsense"],
)
def test_a_body_that_is_too_large_or_too_late_is_refused(receive: Receive, length: str | None, code: int) -> None:
    with pytest.raises(HTTPException) as refused:
        through(receive, seconds=0.05, length=length)
    assert refused.value.status_code == code


def test_an_answer_that_takes_too_long_is_a_503_with_retry_after() -> None:
    with pytest.raises(HTTPException) as refused:
        through(pieces(b"x"), seconds=0.05, slow=True)
    assert refused.value.status_code == 503
    assert (refused.value.headers or {})["Retry-After"]
