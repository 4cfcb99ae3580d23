"""The Python clients on the real thing: a producer's turns go through Redis and the stores and come out of recall."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from driven import Driven
from fake_service import served
from producers.client import AsyncProducer, Producer
from producers.errors import ServiceAway, StreamAway, UsageError
from producers.recall_client import AsyncRecallClient, RecallClient
from producers.settings import Settings
from query.api.app import create_app
from stepped import Stepped, turn
from workers.supervision.redis_server import embedded_redis

pytestmark = pytest.mark.integration


def producer(settings: Settings) -> Any:
    return Producer(settings=settings)


def async_producer(settings: Settings) -> Any:
    return Driven(lambda: AsyncProducer(settings=settings))


@pytest.fixture(params=[producer, async_producer], ids=["sync", "async"])
def producer_of(request: pytest.FixtureRequest) -> Callable[[Settings], Any]:
    return request.param  # type: ignore[no-any-return]


def said(index: int, content: str) -> dict[str, Any]:
    return {"session_id": "s", "turn_index": index, "role": "user", "content": content}


def test_what_is_pushed_can_be_recalled_and_pushing_it_again_changes_nothing(
    system: Stepped, producer_of: Callable[[Settings], Any]
) -> None:
    turns = [said(0, "the proxy listens on port 8080"), turn("午饭在十二点", 1)]
    with producer_of(system.settings) as producer:
        assert producer.push(turns) == 2
        assert producer.push(turns[0]) == 1
        producer.add(said(2, "added, and pushed at the end"))
        assert producer.waiting == 0
    system.settle()
    assert system.counts() == (3, 3, 3)
    with served(create_app(system.settings)) as url:
        with RecallClient(url) as client:
            answer = client.recall("which port?", tenant="default", k=1, explain=True, exclude_sessions=["other"])
        with Driven(lambda: AsyncRecallClient(url)) as asynchronous:
            again = asynchronous.recall("which port?", tenant="default", k=1, explain=True)
    assert [(hit.session_id, hit.turn_index, hit.tenant) for hit in answer.hits] == [("s", 0, "default")]
    assert "port 8080" in answer.context
    assert (answer.embedder, answer.degraded) == ("hashing-v1", ())
    assert again.hits == answer.hits


def test_while_redis_is_away_turns_wait_here_and_are_sent_when_it_is_back(
    settings: Settings, producer_of: Callable[[Settings], Any]
) -> None:
    with producer_of(settings) as producer:
        assert producer.push([said(0, "said while Redis was away")]) == 1
        assert producer.waiting == 1
        with embedded_redis(settings):
            producer.close()
            assert producer.waiting == 0
            system = Stepped(settings)
            system.settle()
            assert system.counts() == (1, 1, 1)


def test_a_closed_producer_pushes_no_more(settings: Settings, producer_of: Callable[[Settings], Any]) -> None:
    with producer_of(settings) as producer:
        producer.push(said(0, "before"))
        producer.close()
        with pytest.raises(UsageError, match="this client is closed"):
            producer.push(said(1, "after"))
        assert producer.waiting == 1


def test_without_a_spool_it_is_an_error_that_says_to_try_again(
    settings: Settings, producer_of: Callable[[Settings], Any]
) -> None:
    with producer_of(settings.model_copy(update={"spool": False})) as producer, pytest.raises(StreamAway):
        producer.push(said(0, "lost if nobody looks"))


def test_a_service_without_stores_yet_asks_to_come_again(settings: Settings) -> None:
    with (
        served(create_app(settings)) as url,
        RecallClient(url) as client,
        pytest.raises(ServiceAway, match="nothing has been stored"),
    ):
        client.recall("anything?", tenant="default")
