"""A producer process for the tests: appends numbered turns of one session and tells each append that returned."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from producers.settings import load_settings
from producers.stream import EventStream
from stepped import turn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("session")
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.0)
    options = parser.parse_args()
    with EventStream(load_settings(data_dir=options.data_dir)) as stream:
        for first in range(0, options.turns, options.batch):
            indexes = range(first, first + options.batch)
            stream.append([turn(f"{options.session}: turn {n}", n, session_id=options.session) for n in indexes])
            sys.stdout.write(f"{first + options.batch}\n")
            sys.stdout.flush()
            time.sleep(options.pause)


if __name__ == "__main__":
    main()
