"""A producer as a process of its own, which tells what was accepted, so that it can be killed at any moment. Does I/O.

Run as `python producer.py LANE`, with settings in the environment. Each line of standard input, "FIRST COUNT REVISION",
is one append of that many known turns; the line is written to standard output once the append has returned.
"""

from __future__ import annotations

import sys
import time

from known_turns import known_turn

from producers.errors import StreamUnavailable
from producers.settings import Lane, load_settings
from producers.stream import EventStream

POLL = 0.05
GIVE_UP = 60.0
"""Seconds for which an append is tried again where Redis is away from the start; the harness may be gone as well."""


def main(lane: Lane) -> None:
    with EventStream(load_settings(), lane) as stream:
        for line in iter(sys.stdin.readline, ""):
            first, count, revision = map(int, line.split())
            deadline = time.monotonic() + GIVE_UP
            while True:
                try:
                    stream.append(known_turn(number, revision) for number in range(first, first + count))
                    break
                except StreamUnavailable:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(POLL)
            sys.stdout.write(line)
            sys.stdout.flush()


if __name__ == "__main__":
    main("backfill" if sys.argv[1] == "backfill" else "live")
