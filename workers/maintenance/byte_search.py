"""Looks for byte strings in every file under some folders. Does I/O: `search` starts this module as a process.

A process of its own, since closing a file gives up every lock that its process holds on it: a catalog that is open in
the same process would lose SQLite's (https://sqlite.org/howtocorrupt.html, 2.2), and be corrupted by the next writer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from producers.errors import StoreUnavailable

READ_BYTES = 16 << 20


@dataclass(frozen=True)
class Found:
    """What was looked through, and the paths of the files that hold a needle."""

    files: int
    bytes: int
    paths: tuple[str, ...]


def search(needles: Sequence[bytes], roots: Iterable[Path], leave_out: Path) -> Found:
    """Search every file under `roots` but those in the folder `leave_out`. Raises `StoreUnavailable`."""
    asked = {
        "needles": [needle.hex() for needle in needles],
        "roots": [str(root) for root in roots],
        "leave_out": str(leave_out),
    }
    command = [sys.executable, "-P", "-m", "workers.maintenance.byte_search"]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        raise StoreUnavailable(f"the files could not be searched: {reason}")
    answer = json.loads(done.stdout)
    return Found(answer["files"], answer["bytes"], tuple(answer["paths"]))


def main() -> None:
    """The process: a question on standard input, the answer on standard output, both JSON."""
    asked = json.load(sys.stdin)
    needles = [bytes.fromhex(needle) for needle in asked["needles"]]
    longest = max(map(len, needles), default=1)
    files = size = 0
    paths = []
    for path in _files([Path(root) for root in asked["roots"]], Path(asked["leave_out"])):
        files += 1
        hit = False
        for block in _blocks(path, longest):
            size += len(block)
            hit = hit or any(needle in block for needle in needles)
        paths += [str(path)] if hit else []
    json.dump({"files": files, "bytes": size, "paths": paths}, sys.stdout)


def _files(roots: Iterable[Path], leave_out: Path) -> Iterator[Path]:
    seen: set[Path] = set()
    for root in roots:
        for folder, _, names in os.walk(root):
            if Path(folder) == leave_out:
                continue
            for path in (Path(folder, name).resolve() for name in names):
                if path not in seen and path.is_file():
                    seen.add(path)
                    yield path


def _blocks(path: Path, overlap: int) -> Iterator[bytes]:
    """The file's bytes; each block begins with the end of the one before."""
    try:
        with path.open("rb") as file:
            before = b""
            while block := file.read(READ_BYTES):
                yield before + block
                before = block[-overlap:]
    except FileNotFoundError:  # stores replace their files all the time
        return


if __name__ == "__main__":
    main()
