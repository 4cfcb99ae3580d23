"""A Python environment with the real hermes-agent in it, made once a checkout. Does I/O; installs the first time.

It is of its own because hermes-agent pins what it needs and has top-level packages called `agent`, `tools`, `utils`.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

VERSION = "0.19.0"
_FOLDER = Path(__file__).resolve().parent.parent / ".venv-hermes"


def hermes_python() -> Path:
    """The interpreter that can import it. Processes that ask at the same time wait for the one that installs."""
    _FOLDER.mkdir(exist_ok=True)
    python, stamp = _FOLDER / "bin" / "python", _FOLDER / f"installed-{VERSION}"
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            _run(sys.executable, "-m", "venv", "--clear", str(_FOLDER))
            quiet = ("-qq", "--disable-pip-version-check", "--no-input")
            _run(str(python), "-m", "pip", "install", *quiet, f"hermes-agent=={VERSION}")
            stamp.touch()
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
