"""Writes a state.db through Hermes' own SessionDB, as agents do; run by an interpreter that has hermes-agent.

    hermes_writer.py DATABASE SESSIONS TURNS SAID

Each turn says something else. Sessions compact in place and branch. Prints a line when there is something to read, and
writes what must be read to the file SAID, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from hermes_state import SessionDB

SUMMARY = {"role": "user", "content": "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted."}
COMPACT_EVERY = 40
BRANCH_EVERY = 75
KEPT_HEAD, KEPT_TAIL = 2, 5


def main(path: str, sessions: int, turns: int) -> list[str]:
    database = SessionDB(Path(path))
    live = [f"session-{number}" for number in range(sessions)]
    for name in live:
        database.create_session(name, "cli", model="m-1")
    print("writing", flush=True)
    said = []
    for number in range(turns):
        place = number % len(live)
        content = f"<{number} {'字' * (number % 700)} {number}>"
        database.append_message(live[place], "assistant" if number // len(live) % 2 else "user", content)
        said.append(f"{live[place]} {content}")
        if number % COMPACT_EVERY == COMPACT_EVERY - 1:
            history = conversation(database, live[place])
            database.archive_and_compact(live[place], [*history[:KEPT_HEAD], SUMMARY, *history[-KEPT_TAIL:]])
        if number % BRANCH_EVERY == BRANCH_EVERY - 1:
            live[place] = branch(database, live[place], f"branch-{number}")
    database.close()
    return said


def conversation(database: SessionDB, session: str) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = database.get_messages_as_conversation(session)
    return history


def branch(database: SessionDB, parent: str, name: str) -> str:
    """As `/branch` does it: ids and times are new."""
    database.end_session(parent, "branched")
    database.create_session(name, "cli", model_config={"_branched_from": parent}, parent_session_id=parent)
    for message in conversation(database, parent):
        database.append_message(name, message["role"], message["content"])
    return name


if __name__ == "__main__":
    Path(sys.argv[4]).write_text(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
