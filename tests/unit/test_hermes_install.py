"""Into which homes the plug-in is put, and what is left alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner

from producers.errors import UsageError
from producers.hermes.commands import hermes
from producers.hermes.install import MARK, homes, install, state, uninstall

SCAN_CHARACTERS = 8192
"""Of the directory's module, what Hermes looks through for its words."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A main home with two profiles, which this environment names."""
    main = tmp_path / "hermes"
    for name in ("coder", "writer"):
        (main / "profiles" / name).mkdir(parents=True)
    monkeypatch.setenv("HERMES_HOME", str(main))
    return main


def folder(home: Path) -> Path:
    return home / "plugins" / "scope-recall"


def test_the_directory_is_two_lines_that_hermes_recognises(home: Path) -> None:
    found = install(home)
    assert (found.installed, found.profile, found.active) == ("yes", "default", False)
    text = (folder(home) / "__init__.py").read_text()
    assert len(text.splitlines()) == 2
    assert MARK in text
    assert "register_memory_provider" in text[:SCAN_CHARACTERS]
    (statement,) = ast.parse(text).body
    assert isinstance(statement, ast.Assign)
    manifest = (folder(home) / "plugin.yaml").read_text()
    assert "name: scope-recall\n" in manifest
    assert MARK in manifest


def test_it_can_be_installed_again_and_an_outdated_one_is_renewed(home: Path) -> None:
    tenant = install(home).tenant
    shim = folder(home) / "__init__.py"
    shim.write_text(shim.read_text().replace("shim.py", "gone.py"))
    assert state(home).installed == "outdated"
    assert install(home).installed == "yes"
    assert state(home).tenant == tenant != ""


def test_what_it_did_not_write_is_neither_overwritten_nor_removed(home: Path) -> None:
    folder(home).mkdir(parents=True)
    theirs = folder(home) / "__init__.py"
    theirs.write_text("register = None  # MemoryProvider of somebody else")
    for act in (install, uninstall):
        with pytest.raises(UsageError, match="was not written by this command"):
            act(home)
    assert theirs.read_text().startswith("register = None")
    assert state(home).installed == "foreign"
    theirs.unlink()
    install(home)
    (folder(home) / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"notes\.txt"):
        uninstall(home)


def test_a_link_in_its_place_is_left_alone(home: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    folder(home).parent.mkdir(parents=True)
    folder(home).symlink_to(tmp_path / "theirs")
    with pytest.raises(UsageError, match="left as it is"):
        install(home)
    assert not list((tmp_path / "theirs").iterdir())
    (tmp_path / "theirs").rmdir()
    assert state(home).installed == "foreign", "also where it leads nowhere"
    for act in (install, uninstall):
        with pytest.raises(UsageError, match="left as it is"):
            act(home)


def test_uninstalling_takes_the_directory_and_leaves_the_memory(home: Path) -> None:
    tenant = install(home).tenant
    (folder(home) / "__pycache__").mkdir()
    assert uninstall(home)
    assert not folder(home).exists()
    assert not uninstall(home)
    assert state(home).tenant == tenant


def test_homes_are_named_by_profile_all_or_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coder, writer = home / "profiles" / "coder", home / "profiles" / "writer"
    assert homes((), everywhere=False) == [home]
    assert homes((), everywhere=True) == [home, coder, writer]
    assert homes(("default", "writer"), everywhere=False) == [home, writer]
    with pytest.raises(UsageError, match="there are default, coder, writer"):
        homes(("codr",), everywhere=False)
    monkeypatch.setenv("HERMES_HOME", str(coder))
    assert homes((), everywhere=False) == [coder]
    assert homes((), everywhere=True) == [home, coder, writer]


@pytest.mark.parametrize(
    ("config", "active"),
    [
        ("memory:\n  provider: scope-recall\n", True),
        ("model: x\nmemory:\n  # the one\n  memory_enabled: true\n  provider: 'scope-recall'  # ours\n", True),
        ("memory:\n  provider: mem0\n", False),
        ("other:\n  provider: scope-recall\nmemory:\n  memory_enabled: true\n", False),
        ("", False),
    ],
)
def test_whether_it_is_active_is_read_out_of_hermes_config(home: Path, config: str, active: bool) -> None:
    (home / "config.yaml").write_text(config)
    assert state(home).active is active


def test_with_settings_that_cannot_be_read_it_is_installed_in_part_and_not_recommended(home: Path) -> None:
    (home / "scope-recall.json").write_text("{")
    done = CliRunner().invoke(hermes, ["install"])
    assert done.exit_code == 1
    assert "not valid JSON" in done.output
    assert "now have Hermes use it" not in done.output


def test_the_command_goes_on_where_one_home_refuses_and_says_so(home: Path) -> None:
    folder(home).mkdir(parents=True)
    (folder(home) / "__init__.py").write_text("theirs")
    done = CliRunner().invoke(hermes, ["install", "--all", "--json"])
    assert done.exit_code == 1
    assert folder(home / "profiles" / "coder").exists()
    assert CliRunner().invoke(hermes, ["status", "--json"]).exit_code == 1, "a foreign directory is no good state"
    assert CliRunner().invoke(hermes, ["install", "--json"]).exit_code == 2
