"""A stepped system on a real Redis, with a short lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from importing import lines

from hermes_provider import Make, providers
from hermes_service import FakeService, fake_service
from producers.connection import connect
from producers.settings import Settings, load_settings
from stepped import Stepped
from workers.stores.catalog import Catalog
from workers.supervision.redis_server import embedded_redis


@pytest.fixture
def system(live_settings: Settings) -> Stepped:
    return Stepped(live_settings.model_copy(update={"lease": 1.0, "batch_wait": 0.0}))


@pytest.fixture
def make_system(live_settings: Settings) -> Callable[..., Stepped]:
    return lambda **changes: Stepped(live_settings.model_copy(update={"lease": 1.0, "batch_wait": 0.0, **changes}))


@pytest.fixture(scope="module")
def module_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis that a module's tests share."""
    settings = load_settings(data_dir=tmp_path_factory.mktemp("redis"))
    with embedded_redis(settings):
        yield settings.redis_location


@pytest.fixture
def shared_settings(settings: Settings, module_redis: str) -> Settings:
    """Settings on an empty data dir and the module's Redis, emptied: a second less than a Redis of the test's own."""
    settings = settings.model_copy(update={"redis_url": module_redis})
    settings.data_dir.mkdir()
    with connect(settings) as client:
        client.flushall()
    return settings


@pytest.fixture
def recall_service() -> Iterator[FakeService]:
    """What the Hermes plug-in asks, in a thread."""
    with fake_service() as service:
        yield service


@pytest.fixture
def make_provider(tmp_path: Path, settings: Settings, recall_service: FakeService) -> Iterator[Make]:
    """Makes the Hermes plug-in in a home of the test's own, on its data dir and service."""
    with providers(tmp_path / "home", data_dir=str(settings.data_dir), url=recall_service.url) as make:
        yield make


@pytest.fixture
def catalog(live_settings: Settings) -> Iterator[Catalog]:
    """The catalog of a running system."""
    with closing(Catalog.open(live_settings.catalog_location, create=True)) as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A transcript of ten turns, in the format of `importing`."""
    (tmp_path / "old.lines").write_text(lines(range(10)))
    return tmp_path / "old.lines"
