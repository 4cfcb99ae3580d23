"""A ChatGPT export of any size, made from a seed, with the counts that a reader must find. Does I/O."""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_WORDS = (
    "redis stream recall agent fleet memory index chunk 提醒 会议 naïve Zürich 🙂 “quoted” back\\slash {brace} [list]"
)
_MEAN_TURNS = 12


def write_export(path: Path, size: int, seed: int = 0) -> Counter[str]:
    """Write whole conversations until the array has `size` bytes; returns how many of each there are.

    Keys: conversations, prose, tool-call, tool-result, and `left out: …` for each reason.
    """
    rng = random.Random(seed)
    words = _WORDS.split()
    texts = [" ".join(rng.choices(words, k=rng.randint(5, 400))) for _ in range(200)]
    counts: Counter[str] = Counter()
    with path.open("w", encoding="utf-8") as file:
        written = file.write("[")
        while written < size:
            conversation = _conversation(rng, texts, counts)
            text = json.dumps(conversation, ensure_ascii=rng.random() < 0.5)
            file.write(",\n" if counts["conversations"] else "")
            file.write(text)
            written += len(text.encode())
            counts["conversations"] += 1
        file.write("]")
    return counts


def identifier(rng: random.Random) -> str:
    """A UUID from the seed."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _conversation(rng: random.Random, texts: list[str], counts: Counter[str]) -> dict[str, Any]:
    root = identifier(rng)
    mapping: dict[str, Any] = {root: {"id": root, "message": None, "parent": None, "children": []}}
    current, now = root, 1_700_000_000 + rng.random() * 1e7
    for role, kind, extra in _turns(rng):
        key = identifier(rng)
        now += rng.expovariate(0.01) - 5  # times run backwards now and then
        text = "" if kind == "left out: empty" else rng.choice(texts)
        message = {
            "id": key,
            "author": {"role": role, "name": "python" if role == "tool" else None, "metadata": {}},
            "create_time": None if rng.random() < 0.05 else now,
            "content": {"content_type": "text", "parts": [text]},
            "status": "finished_successfully",
            "recipient": "all",
            "metadata": {"model_slug": "gpt-4o"},
        } | extra
        mapping[key] = {"id": key, "message": message, "parent": current, "children": []}
        mapping[current]["children"].append(key)
        counts[kind] += 1
        if kind != "left out: other branch":
            current = key
    identity = identifier(rng)
    return {"title": rng.choice(texts)[:40], "mapping": mapping, "current_node": current, "conversation_id": identity}


def _turns(rng: random.Random) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(role, what it counts as, fields of the message) of each node below the root."""
    yield "system", "left out: empty", {}
    for _ in range(max(1, round(rng.expovariate(1 / _MEAN_TURNS)))):
        yield "user", "prose", {}
        if rng.random() < 0.2:
            yield "assistant", "left out: other branch", {}
        if rng.random() < 0.1:
            yield (
                "assistant",
                "left out: thinking",
                {"content": {"content_type": "thoughts", "thoughts": [{"content": "x"}]}},
            )
        if rng.random() < 0.1:
            yield (
                "assistant",
                "tool-call",
                {"recipient": "python", "content": {"content_type": "code", "text": "print(1)"}},
            )
            yield "tool", "tool-result", {"content": {"content_type": "execution_output", "text": "1"}}
        yield "assistant", "prose", {}
