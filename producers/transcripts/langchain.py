"""LangChain: one JSON file that `messages_to_dict` or `dumps` made, of one conversation or of several. Does I/O.

There are no times, and no id of the conversation: it is known by how it begins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from producers.transcripts.documents import document, marked
from producers.transcripts.langchain_messages import Conversation, conversations, session_of
from producers.transcripts.port import Bad, Item, LeftOut, ReadOptions, Said, Sample, State, Unreadable

_MESSAGE = re.compile(
    rb'"type"\s*:\s*"(?:human|ai|system|tool|function|chat|HumanMessageChunk|AIMessageChunk)"\s*,\s*"data"\s*:\s*\{'
    rb'|"lc"\s*:\s*1\s*,\s*"type"\s*:\s*"constructor"'
)
"""How both begin, as the two functions write it."""


class LangChain:
    """Reads files of messages."""

    name = "langchain"
    in_place = False

    def recognises(self, sample: Sample) -> bool:
        return sample.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"[", b"{") and bool(_MESSAGE.search(sample.head))

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        found = list(conversations(document(path)))
        if not found:
            raise Unreadable("no LangChain messages in it")
        yield from marked(_items(found, options), path, state)


def _items(found: list[list[object]], options: ReadOptions) -> Iterator[Said | Bad | LeftOut]:
    times: Counter[str] = Counter()
    for number, entries in enumerate(found, 1):
        try:
            begins = session_of(entries)
        except RecursionError:
            yield Bad(f"conversation {number}", "nested too deeply")
            continue
        times[begins] += 1
        # Two that begin alike are two conversations, told apart by their order.
        session = begins if times[begins] == 1 else f"{begins}-{times[begins]}"
        conversation = Conversation(session, f"langchain:{session}", f"conversation {number}", {})
        yield from conversation.items(entries, options)
