"""Fixtures shared by the suites: settings on a folder of the test's own, and a real Redis."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from producers.settings import ENV_PREFIX, Settings, load_settings

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
