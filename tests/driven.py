"""An asyncio client that is called like one without asyncio, so that one test holds for both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Self


class Driven:
    """Runs every call of the client on a loop of its own."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._runner = asyncio.Runner()

        async def made() -> Any:
            return make()

        self._client = self._runner.run(made())

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        def call(*args: Any, **options: Any) -> Any:
            return self._runner.run(attribute(*args, **options))

        return call

    def __enter__(self) -> Self:
        self._runner.run(self._client.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._runner.run(self._client.__aexit__(*error))
        finally:
            self._runner.close()
