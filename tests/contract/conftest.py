"""The databases that the catalog's suite runs over: SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from postgresql import Postgresql


@pytest.fixture(params=["sqlite", "postgresql"])
def make_catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes empty databases of each kind."""

    def make() -> str:
        if request.param == "postgresql":
            server: Postgresql = request.getfixturevalue("postgresql")
            return server.database()
        folder = tmp_path / f"catalog_{uuid4().hex}"  # of its own: what is beside a catalog counts as its store's
        folder.mkdir()
        return f"sqlite:///{folder / 'catalog.db'}"

    return make


@pytest.fixture
def catalog_url(make_catalog_url: Callable[[], str]) -> str:
    """An empty database of each kind."""
    return make_catalog_url()
