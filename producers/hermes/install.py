"""Putting the plug-in into Hermes' homes, and taking it out: a directory with two small files in each. File I/O."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from producers.errors import SettingsError, UsageError
from producers.hermes import settings as own
from producers.hermes import shim
from producers.hermes.identity import memory_of, profile_of
from producers.hermes.provider import NAME

MARK = "Written by `scope-recall hermes install`; `scope-recall hermes uninstall` removes it."
_INIT, _MANIFEST = "__init__.py", "plugin.yaml"
_CACHE = "__pycache__"
_PROFILES = "profiles"
_SHIM = """# {mark} It calls register_memory_provider.
register = __import__("runpy").run_path({path!r})["registrar"]({folders!r})
"""
_YAML = """# {mark}
name: {name}
version: {version}
description: "Long-term memory: every turn is kept, what matters of earlier sessions comes back before each turn."
pip_dependencies: []
hooks:
  - on_session_end
"""
_PROVIDER = re.compile(r"""^\s+provider:\s*["']?([^"'#\s]*)""")


@dataclass(frozen=True)
class State:
    """How the plug-in stands in one home."""

    home: Path
    profile: str
    installed: str
    """no, yes, outdated (another installation or version), or foreign (somebody else's directory)."""
    active: bool
    """Hermes' config names it as its memory provider."""
    tenant: str
    agent: str
    """Whose memory the home's owner has; both are empty where nothing was installed or said yet."""
    problem: str = ""


def root() -> Path:
    """Hermes' main home, also from within one of its profiles."""
    home = Path(os.environ.get("HERMES_HOME", "").strip() or Path.home() / ".hermes").expanduser().absolute()
    return home.parent.parent if home.parent.name == _PROFILES else home


def homes(profiles: tuple[str, ...], everywhere: bool) -> list[Path]:
    """The homes that are meant: named profiles, all there are, or the one of this environment. Raises `UsageError`."""
    main = root()
    there = sorted(path for path in (main / _PROFILES).glob("*") if path.is_dir())
    if everywhere:
        return [main, *there]
    if not profiles:
        named = os.environ.get("HERMES_HOME", "").strip()
        return [Path(named).expanduser().absolute() if named else main]
    found = [main if name == "default" else main / _PROFILES / name for name in profiles]
    for name, home in zip(profiles, found, strict=True):
        if home != main and home not in there:
            known = ", ".join(["default", *(path.name for path in there)])
            raise UsageError(f"--profile {name}: no such profile under {main / _PROFILES}; there are {known}")
    return found


def install(home: Path) -> State:
    """Write the directory, or write it anew. Raises `UsageError` for one that somebody else wrote."""
    if not home.is_dir():
        raise UsageError(f"{home}: no Hermes home there; start Hermes once, or set HERMES_HOME")
    folder = _folder(home)
    _refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in _files().items():
        (folder / name).write_text(text, encoding="utf-8")
    memory_of(home, "", {})  # makes the home's id
    return state(home)


def uninstall(home: Path) -> bool:
    """Remove what `install` wrote; True when there was something. Raises `UsageError` for what it did not write.

    The home's settings and ledger stay: a later installation goes on with the same memory.
    """
    folder = _folder(home)
    if not os.path.lexists(folder):
        return False
    _refuse_foreign(folder)
    for name in (_INIT, _MANIFEST):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / _CACHE, ignore_errors=True)
    folder.rmdir()
    return True


def state(home: Path) -> State:
    """How it stands now."""
    folder = _folder(home)
    problem, tenant, agent = "", "", ""
    try:
        settings = own.load(home)
        if (home / own.FOLDER).is_dir():
            memory = memory_of(home, "", {}, settings.tenant)
            tenant, agent = memory.tenant, memory.agent_id
    except SettingsError as error:
        problem = str(error)
    installed = "no"
    if os.path.lexists(folder):  # also a link that leads nowhere, which is not ours
        current = all(_read(folder / name) == text for name, text in _files().items())
        installed = "foreign" if _foreign(folder) else "yes" if current else "outdated"
    return State(home, profile_of(home), installed, _active(home), tenant, agent, problem)


def _folder(home: Path) -> Path:
    return home / "plugins" / NAME


def _files() -> dict[str, str]:
    path = str(Path(shim.__file__).resolve())
    manifest = _YAML.format(mark=MARK, name=NAME, version=version("scope-recall-hermes"))
    return {_INIT: _SHIM.format(mark=MARK, path=path, folders=_import_folders()), _MANIFEST: manifest}


def _import_folders() -> list[str]:
    """The folders that hold the packages the shim may import: site-packages, and the checkout of an editable one."""
    found: dict[str, None] = {}
    for name in sorted(shim.PACKAGES):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            found[str(Path(spec.origin).resolve().parents[1])] = None
    return list(found)


def _refuse_foreign(folder: Path) -> None:
    strange = _foreign(folder)
    if strange:
        raise UsageError(
            f"{folder} was not written by this command (see {strange}): it is left as it is. Move it away, then run "
            "the command again"
        )


def _foreign(folder: Path) -> str:
    """What in the folder is not ours; empty when all of it is, or it is not there."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return folder.name
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        ours = path.name in (_INIT, _MANIFEST) and MARK in _read(path)
        if path.name != _CACHE and not ours:
            return path.name
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _active(home: Path) -> bool:
    """Whether `memory.provider` of Hermes' config is this one; read line by line, for want of a YAML reader."""
    inside = False
    for line in _read(home / "config.yaml").splitlines():
        if line and not line[0].isspace() and not line.startswith("#"):
            inside = line.split("#")[0].strip() == "memory:"
        found = _PROVIDER.match(line) if inside else None
        if found:
            return found[1] == NAME
    return False
