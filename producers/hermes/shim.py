"""How Hermes' environment imports this installation, run by path out of the directory that `install` writes.

It imports nothing of ours before it is told where. Packages that Hermes has itself come from Hermes; only those named
here are looked for in this installation's folders, so that nothing else of it becomes visible to Hermes.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

PACKAGES = frozenset({"producers", "pydantic_settings", "redis", "structlog", "dotenv", "typing_inspection"})
"""All pure Python, so that Hermes may have another version of it. pydantic and httpx Hermes has itself."""


class ScopeRecallFinder(importlib.abc.MetaPathFinder):
    """Behind all other finders: the named packages, from the folders."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = list(folders)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None or fullname not in PACKAGES:
            return None  # a package's own modules are found by its path
        return importlib.machinery.PathFinder.find_spec(fullname, self.folders, target)


def registrar(folders: Sequence[str]) -> Callable[[Any], None]:
    """The plug-in's `register`, imported from `folders` where Hermes' environment does not have it."""
    # By name: this file is run once for each profile's directory, and each run makes a class of its own.
    known = [
        getattr(finder, "folders", None)
        for finder in sys.meta_path
        if type(finder).__name__ == ScopeRecallFinder.__name__
    ]
    if list(folders) not in known:
        sys.meta_path.append(ScopeRecallFinder(folders))
    register: Callable[[Any], None] = importlib.import_module("producers.hermes.plugin").register
    return register
