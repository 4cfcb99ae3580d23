"""JSON lines that a command was given: one object a line, or an error that names file and line. Reads files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from producers.errors import UsageError


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line that is not blank. Raises `UsageError`."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: invalid JSON: {error}") from None
        except RecursionError:
            raise UsageError(f"{path}, line {number}: nested too deeply") from None
        if not isinstance(row, dict):
            raise UsageError(f"{path}, line {number}: not a JSON object")
        yield number, row
