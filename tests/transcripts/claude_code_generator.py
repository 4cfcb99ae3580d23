"""Writes a Claude Code transcript of any size, with counts of what it holds: `python claude_code_generator.py FILE MB`.

Seeded, the same file each time. Many sessions interleave; of each message the lines are apart, as in real files; most
lines are progress, and most bytes are results that `toolUseResult` repeats.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

PROGRESS_SHARE = 0.71
"""Of the lines, as counted in real files."""
WORDS = "the port of proxy deploy build test error file 证书 配置 stage key cache lock index token queue shard".split()
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BUFFER_LINES = 2000


@dataclass
class Expected:
    """What a reader must find."""

    kinds: Counter[str] = field(default_factory=Counter)
    """Turns: prose, tool-call, tool-result."""
    sessions: int = 0
    lines: int = 0


class Generator:
    """One file."""

    def __init__(self, seed: int = 1, sessions: int = 50, result_chars: int = 6000) -> None:
        self._random = random.Random(seed)
        self._result_chars = result_chars
        self._sessions = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(sessions)]
        self._number = 0
        self.expected = Expected()

    def write(self, path: Path, size: int) -> Expected:
        """At least `size` bytes, whole exchanges."""
        used, written, lines = set[str](), 0, list[str]()
        running: dict[str, Iterator[dict[str, Any]]] = {}
        with path.open("w", encoding="utf-8") as file:
            while written < size or running:
                session = self._random.choice(list(running) if written >= size else self._sessions)
                exchange = running.setdefault(session, self._exchange(session))
                record = next(exchange, None)
                if record is None:
                    del running[session]
                    continue
                used.add(session)
                lines.append(json.dumps(record, ensure_ascii=False, separators=(",", ":")))
                lines += self._progress(session)
                if len(lines) >= BUFFER_LINES or written + BUFFER_LINES * 400 >= size:
                    written += file.write("\n".join(lines) + "\n")
                    self.expected.lines += len(lines)
                    lines.clear()
            file.write("".join(f"{line}\n" for line in lines))
        self.expected.lines += len(lines)
        self.expected.sessions = len(used)
        return self.expected

    def _exchange(self, session: str) -> Iterator[dict[str, Any]]:
        """A question, and messages of prose and calls until the answer."""
        kinds = self.expected.kinds
        yield self._user(session, self._words(20))
        kinds["prose"] += 1
        for _ in range(self._random.randint(1, 4)):
            self._number += 1
            message = f"msg_{self._number:08x}"
            yield self._assistant(session, message, {"type": "thinking", "thinking": self._words(30), "signature": "s"})
            yield self._assistant(session, message, {"type": "text", "text": self._words(15)})
            kinds["prose"] += 1
            for part in range(self._random.randint(1, 3)):
                name = f"toolu_{self._number:08x}{part}"
                arguments = {"command": self._words(8)}
                yield self._assistant(
                    session, message, {"type": "tool_use", "id": name, "name": "Bash", "input": arguments}
                )
                kinds["tool-call"] += 1
                output = self._words(self._random.randint(1, self._result_chars // 5))
                result = [{"type": "tool_result", "tool_use_id": name, "content": output}]
                yield {**self._user(session, result), "toolUseResult": {"stdout": output}}
                kinds["tool-result"] += 1
        self._number += 1
        yield self._assistant(session, f"msg_{self._number:08x}", {"type": "text", "text": self._words(60)})
        kinds["prose"] += 1

    def _progress(self, session: str) -> Iterator[str]:
        while self._random.random() < PROGRESS_SHARE:
            record = self._record(session, "progress", data={"type": "bash_progress", "output": self._words(30)})
            yield json.dumps(record, ensure_ascii=False, separators=(",", ":"))

    def _user(self, session: str, content: Any) -> dict[str, Any]:
        return self._record(session, "user", message={"role": "user", "content": content})

    def _assistant(self, session: str, message: str, block: dict[str, Any]) -> dict[str, Any]:
        content = {"id": message, "role": "assistant", "model": "claude-x", "content": [block]}
        return self._record(session, "assistant", message=content)

    def _record(self, session: str, kind: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {
            "parentUuid": None, "isSidechain": False, "cwd": "/srv/app", "sessionId": session, "version": "2.1.38",
            "gitBranch": "main", "type": kind, **fields, "uuid": f"{self._number:032x}",
            "timestamp": (BEGIN + timedelta(seconds=self._number)).isoformat(),
        }  # fmt: skip

    def _words(self, count: int) -> str:
        return " ".join(self._random.choices(WORDS, k=count))


if __name__ == "__main__":
    print(Generator().write(Path(sys.argv[1]), int(sys.argv[2]) << 20))
