"""Where the program begins: Ctrl-C is understood before the imports, which take half a second, have come."""

from __future__ import annotations

import sys


def main() -> None:
    """The command `scope-recall`."""
    try:
        from query.cli import main as run
    except KeyboardInterrupt:
        sys.exit("interrupted")  # with 1: done in part
    run()


if __name__ == "__main__":
    main()
