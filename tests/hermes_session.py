"""The real Hermes for tests: a home with the plug-in installed, and a process that is driven. Starts processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hermes_environment import hermes_python

DRIVER = Path(__file__).with_name("hermes_driver.py")
CONFIG = """\
memory:
  memory_enabled: true
  provider: scope-recall
"""


class Hermes:
    """One process of the real hermes-agent."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, name: str, *arguments: Any, **named: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, arguments, named]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the driver ended; see its standard error in the captured output"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def say(self, agent: str, text: str, **who: Any) -> dict[str, Any]:
        """One turn of a conversation, in the session named as its agent."""
        answer = self("say", agent, text, **who)
        assert answer["error"] is None
        return answer

    def manage(self, session: str, call: str, *arguments: Any, **named: Any) -> Any:
        """What a call of MemoryManager returns."""
        return self("manage", session, call, *arguments, **named)["result"]


def make_home(home: Path, data_dir: Path, **settings: Any) -> Path:
    """A home with the plug-in installed and active."""
    home.mkdir(parents=True)
    (home / "config.yaml").write_text(CONFIG)
    (home / "scope-recall.json").write_text(json.dumps({"data_dir": str(data_dir), **settings}))
    install = [sys.executable, "-P", "-m", "query.cli", "hermes", "install", "--json"]
    environment = {**os.environ, "HERMES_HOME": str(home), "SCOPE_RECALL_DATA_DIR": str(data_dir)}
    done = subprocess.run(install, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return home


def hermes_command(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Hermes' own command line in `home`."""
    command = [str(hermes_python().with_name("hermes")), *arguments]
    environment = {"HERMES_HOME": str(home), "HOME": str(home), "PATH": os.environ["PATH"]}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=60
    )


@contextmanager
def running_hermes(home: Path, model_url: str, **environment: str) -> Iterator[Hermes]:
    """A process in `home`; it knows nothing of this environment but the shim."""
    clean = {"HERMES_HOME": str(home), "HOME": str(home), "PATH": os.environ["PATH"], **environment}
    command = [str(hermes_python()), str(DRIVER), model_url]
    log = home / "driver.log"
    with log.open("a") as errors:
        process = subprocess.Popen(
            command, env=clean, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=home
        )
        try:
            yield Hermes(process)
        finally:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            print(log.read_text()[-4000:])
