"""What a person installs and reads: a light base, documented code of readable size, versions that agree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from producers.settings import Settings

ROOT = Path(__file__).parents[2]
PACKAGES = ("producers", "workers", "query")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

HEAVY = ("torch", "lancedb", "rq", "pyarrow", "numpy", "sqlalchemy", "sentence_transformers", "transformers")
"""What a producer must not load: it runs inside an agent's process, and a base install does not have it."""
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after `statement`."""
    program = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True, timeout=60
    )
    return set(done.stdout.split())


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def normal(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("module", ["stream", "events", "settings", "cli", "client", "recall_client"])
def test_a_producer_loads_nothing_heavy(module: str) -> None:
    loaded = loaded_by(f"import producers.{module}")
    assert "producers" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_the_command_loads_nothing_heavy_before_a_subcommand_is_used() -> None:
    assert loaded_by("import query.cli").isdisjoint(HEAVY)
    assert "click" not in loaded_by("import query.entry"), "Ctrl-C is understood before it is loaded"


@pytest.mark.parametrize("path", MODULES + TESTS, ids=relative)
def test_a_module_says_what_it_owns_and_stays_short(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source)), "no module docstring"
    assert len(source.splitlines()) <= MAX_FILE_LINES


@pytest.mark.parametrize("path", MODULES + TESTS, ids=relative)
def test_a_function_fits_a_screen(path: Path) -> None:
    too_long = [
        f"{node.name}: {lines} lines"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert not too_long


@pytest.mark.parametrize("path", [path for path in MODULES if path.name == "__init__.py"], ids=relative)
def test_a_package_init_is_a_docstring_only(path: Path) -> None:
    assert len(ast.parse(path.read_text(encoding="utf-8")).body) == 1


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## \[(\d[^]]*)\]", changelog, flags=re.MULTILINE)
    assert found
    assert found.group(1) == PROJECT["version"]


def test_the_image_has_the_version_of_the_package() -> None:
    compose = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert re.findall(r"image: scope-recall-hermes:(\S+)", compose) == [PROJECT["version"]]


def test_every_dependency_is_pinned_to_what_was_tested() -> None:
    extras = PROJECT["optional-dependencies"].values()
    asked = {normal(re.split(r"[^\w.-]", text)[0]) for text in sum(extras, PROJECT["dependencies"])}
    assert asked - {PROJECT["name"]} <= {normal(name) for name in pinned()}


def test_pins_are_plain_versions_without_a_machine_in_them() -> None:
    pins = pinned()
    assert all(re.fullmatch(r"\d[\w.]*", version) for version in pins.values())
    assert {name: pins[name] for name in ("torch", "transformers", "pydantic")} == {
        "torch": "2.13.0",
        "transformers": "5.23.0",
        "pydantic": "2.13.4",
    }
