"""The commands in README.md and docs/ do what they say: each block runs, in order, on a fresh system."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from system import Cli, stop, up

pytestmark = [pytest.mark.e2e, pytest.mark.models, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SERVE_LINE = "scope-recall serve --port 8420\n"
UP_LINE = "scope-recall up --workers 2\n"
IN_A_RUNNING_SYSTEM = ("docs/maintenance.md",)
"""The other pages are for those who have not started it yet."""


def blocks(document: str) -> list[tuple[str, str]]:
    return BLOCK.findall((ROOT / document).read_text())


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
    return Cli(tmp_path / "data", {"SCOPE_RECALL_EMBEDDER": "minilm", "SCOPE_RECALL_RERANKER": "auto"})


def test_every_block_of_the_readme_runs_in_order(cli: Cli, folder: Path) -> None:
    said: list[str] = []
    served = None
    (kind, first), *rest = blocks("README.md")
    assert (kind, first) == ("sh", UP_LINE), "the first thing a reader runs is the system itself"
    system = cli.start(*UP_LINE.split()[1:])
    try:
        cli.wait_ready(system)
        for kind, text in rest:
            if text.startswith(SERVE_LINE):
                served = cli.start(*SERVE_LINE.split()[1:])
                _wait_for_port(folder, cli)
                text = text.removeprefix(SERVE_LINE)
            script = text if kind == "sh" else f"{sys.executable} - <<'PYTHON'\n{text}PYTHON\n"
            done = shell(script, folder, cli)
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            said.append(done.stdout)
    finally:
        if served is not None:
            assert stop(served) == 0
        assert stop(system) == 0
    everything = "\n".join(said)
    assert "accepted 3, rejected 0" in everything
    assert "4 turns can be recalled" in everything
    assert everything.count("The proxy listens on 8443") >= 3, "by recall, by a filtered recall, and over HTTP"
    assert "部署失败是因为证书过期了" in everything
    assert "nothing is degraded" in everything


def _wait_for_port(folder: Path, cli: Cli) -> None:
    deadline = time.monotonic() + 60
    while shell("curl -fs http://127.0.0.1:8420/healthz", folder, cli).returncode != 0:
        assert time.monotonic() < deadline, "serve did not start"
        time.sleep(0.3)


@pytest.mark.parametrize("document", [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))])
def test_every_command_of_a_page_runs(document: str, cli: Cli, folder: Path) -> None:
    found = blocks(document)
    assert found, "a page without a command that runs is out of this test's sight"
    with up(cli) if document in IN_A_RUNNING_SYSTEM else nullcontext():
        for _, text in found:
            done = shell(text, folder, cli)
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
