"""Fixtures shared by the suites: settings on a folder of the test's own, and a real Redis."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from producers.settings import ENV_PREFIX, Settings, load_settings

if TYPE_CHECKING:
    from fake_service import Service
    from postgresql import Postgresql

for name in [name for name in os.environ if name.startswith(ENV_PREFIX)]:
    del os.environ[name]  # the settings of whoever runs the tests are not the tests'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings on an empty data dir, with the embedder that costs nothing and no reranker."""
    return load_settings(data_dir=tmp_path / "data", embedder="hashing", reranker="none", append_timeout=5.0)


@pytest.fixture
def live_settings(settings: Settings) -> Iterator[Settings]:
    """The same, with the embedded Redis running."""
    from workers.supervision.redis_server import embedded_redis

    with embedded_redis(settings):
        yield settings


@pytest.fixture(scope="module")
def running_service() -> Iterator[Service]:
    """A query service in memory, which a module's tests share."""
    from fake_service import fake_service

    with fake_service() as service:
        yield service


@pytest.fixture
def service(running_service: Service) -> Service:
    """The same, as if just started."""
    running_service.reset()
    return running_service


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgresql]:
    """A running PostgreSQL, for the tests of a process."""
    from postgresql import running_postgresql

    with running_postgresql(tmp_path_factory.mktemp("postgresql")) as server:
        yield server
