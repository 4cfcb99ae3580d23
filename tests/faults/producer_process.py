"""The harness's side of `producer.py`: starts it, hands it appends, knows which were accepted. Does I/O."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

SCRIPT = Path(__file__).with_name("producer.py")
END_SECONDS = 10.0


class ProducerProcess:
    """A producer that is started again when it was killed, and goes on after the last append that it had reported."""

    def __init__(self, lane: str, report: Path, environment: Mapping[str, str]) -> None:
        self._argv = [sys.executable, str(SCRIPT), lane]
        self._report = report
        self._environment = dict(environment)
        self._asked: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self.kills = 0
        self._start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def append(self, first: int, count: int, revision: int = 0) -> None:
        """Ask for one append of `count` turns from `first` on."""
        line = f"{first} {count} {revision}\n"
        self._asked.append(line)
        self._send([line])

    def unreported(self) -> list[str]:
        """Appends asked for that it has not reported as accepted: they may be in the stream or not."""
        accepted = self._report.read_text().count("\n") if self._report.exists() else 0
        return self._asked[accepted:]

    def poll(self) -> None:
        """Start it again if it has died. What it had not reported is pushed again, as an agent would."""
        assert self._process is not None
        if self._process.poll() is not None:
            self.kills += 1
            assert self._process.returncode == -9, f"a producer ended by itself: {self._process.returncode}"
            self._close()
            self._start()
            self._send(self.unreported())

    def stop(self) -> None:
        """End it."""
        assert self._process is not None
        self._close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        with self._report.open("ab") as output:
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.PIPE, stdout=output, env=self._environment, start_new_session=True
            )

    def _send(self, lines: list[str]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has just been killed; `poll` sends them again
            self._process.stdin.write("".join(lines).encode())
            self._process.stdin.flush()

    def _close(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
