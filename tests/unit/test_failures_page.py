"""docs/failures.md names a test for each failure; a name that is no test proves nothing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
ROWS = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| reported")]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][2:40])
def test_every_failure_names_a_test_that_exists_or_says_not_yet(row: list[str]) -> None:
    _, _, proof = row
    named = NAMED.findall(proof)
    assert named or proof.startswith("not yet")
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, f"{path}::{name}"


def test_both_tables_are_read() -> None:
    assert len(ROWS) > 40
