"""One running system, shared by a module's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from system import Cli, up


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A system that is up, with two workers."""
    cli = Cli(tmp_path_factory.mktemp("system") / "data")
    with up(cli, "--workers", "2"):
        yield cli
