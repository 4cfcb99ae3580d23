"""Where settings come from: the environment's names and the TOML file. Reads both; knows no setting itself."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from producers.errors import SettingsError


def _http(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://")
    return value


HttpUrl = Annotated[str, AfterValidator(_http)]


def read_config(path: Path, known: Collection[str]) -> dict[str, Any]:
    """The settings of a TOML file. Raises `SettingsError`."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"--config {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"--config {path}: not valid TOML: {error}") from None
    for name in values:
        if name not in known:
            raise SettingsError(f"--config {path}: unknown setting {name!r}{_nearest(name, known)}")
    return values


def check_environment(prefix: str, known: Collection[str]) -> None:
    """Raise `SettingsError` for a variable with the prefix that is no setting."""
    for variable in os.environ:
        if not variable.startswith(prefix):
            continue
        name = variable.removeprefix(prefix).lower()
        if name not in known:
            nearest = _nearest(name, known, prefix, upper=True)
            raise SettingsError(f"environment variable {variable}: unknown setting{nearest}")


def _nearest(name: str, known: Collection[str], prefix: str = "", *, upper: bool = False) -> str:
    matches = difflib.get_close_matches(name.lower(), known, n=1)
    if not matches:
        return ". `scope-recall settings` lists them all"
    right = prefix + (matches[0].upper() if upper else matches[0])
    return f"; did you mean {right}?"
