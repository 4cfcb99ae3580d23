"""Hermes' own memory tool, mirrored: what it writes becomes a note, what it takes out is forgotten. Does I/O.

Nothing here makes the agent wait: a note goes to this machine's disk, a removal is asked for in the background.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from producers.errors import ScopeRecallError
from producers.hermes.pause import log
from producers.hermes.tools import FORGET_SECONDS, RECALL_SECONDS, Tools
from producers.hermes.turns import NOTES, note_session

_SEARCHED = 20
"""Notes among which the one is looked for that is taken out: Hermes names it by a piece of its text."""


def mirror(tools: Tools, action: str, target: str, content: str, metadata: Mapping[str, Any]) -> None:
    """One write of the memory tool. `action`: add, replace or remove. Raises `RetryableError`."""
    old, tag = metadata.get("old_text"), f"memory-{target}"
    if action in ("replace", "remove"):
        piece = old if isinstance(old, str) and old.strip() else content if action == "remove" else ""
        kept = tools.writer.clean(content) if action == "replace" else ""
        if piece.strip():
            run = threading.Thread(
                target=_take_out, args=(tools, piece, kept, tag), name="scope-recall-notes", daemon=True
            )
            run.start()
    if action in ("add", "replace"):
        tools.sender.keep(tools.writer.note(content, datetime.now(UTC), (tag,)))


def _take_out(tools: Tools, piece: str, kept: str, tag: str) -> None:
    """Forget the notes that hold `piece`, but the one that says `kept`."""
    wanted = tools.writer.clean(piece).strip()
    try:
        answer = tools.recalling.ask(wanted, RECALL_SECONDS, k=_SEARCHED, sources=[NOTES], tags=[tag])
        hits = [hit for hit in answer.get("hits", []) if wanted in hit["content"]]
        sessions = {hit["session_id"] for hit in hits} | {note_session(tools.writer.clean(piece))}
        for session in sessions - {note_session(kept)}:
            body = tools.memory.erasable() | {"session": session, "dry_run": False}
            tools.service.ask("/v1/forget", body, FORGET_SECONDS)
    except (ScopeRecallError, KeyError, TypeError) as error:
        log.warning(
            "a note that was taken out could not be forgotten (%s); forget_memory does it", type(error).__name__
        )
