"""Which messages of a Hermes session are copies of others, and which time each of the rest is said. Pure.

Hermes copies messages, with new ids and often new times: a compaction inserts the first and last messages again around
its summary, in the same session or in one that continues it; a branch begins with its parent's history; and /retry or
an editor's plug-in rewrites a session. So a message is known by its session, what it says, and how many times that has
been said there: a rewritten session, and an export, which lacks what was compacted, have the same ones.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from producers.transcripts.hermes_messages import Message
from producers.transcripts.port import LeftOut

_HEAD_MESSAGES = 32
"""More than a compaction keeps of a session's beginning (3 turns unless it is told otherwise)."""


class History:
    """The messages of one session in their order, some numbers each, so that the longest session fits in memory."""

    def __init__(self) -> None:
        self.ids = array("q")
        self.identities = array("Q")
        self.exchanges = array("Q")
        self.words = array("Q")
        self.summaries: list[int] = []
        self.taken_back: set[int] = set()
        self.reviews: set[int] = set()
        """Hermes asking itself to take notes, and its answer."""

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, said: Message) -> None:
        if said.is_summary:
            self.summaries.append(len(self))
        if said.taken_back:
            self.taken_back.add(len(self))
        if said.is_review or (said.role == "assistant" and len(self) - 1 in self.reviews):
            self.reviews.add(len(self))
        self.ids.append(said.id if said.id is not None else -1)
        self.identities.append(_number(said.identity))
        self.exchanges.append(_number(repr(said.exchange)))
        self.words.append(_number(repr(said.words)))

    def kept(self, start: int, end: int) -> list[int]:
        """Positions from `start` until `end` that nobody took back."""
        return [position for position in range(start, end) if position not in self.taken_back]


def verdicts(history: History, copies: set[int]) -> Iterator[LeftOut | int]:
    """For each message why it is left out, or how many times, with this one, it has been said in its session."""
    times: Counter[int] = Counter()
    summaries = set(history.summaries)
    for position, identity in enumerate(history.identities):
        if position in history.taken_back:
            yield LeftOut("taken back")
        elif position in summaries:
            yield LeftOut("compaction summary")
        elif position in copies:
            yield LeftOut("copied history")
        elif position in history.reviews:
            yield LeftOut("injected context")
        else:
            times[identity] += 1
            yield times[identity]


def copies_within(history: History) -> set[int]:
    """What compactions in place have inserted again: around each summary, the session's head and its last messages."""
    found: set[int] = set()
    start = 0
    for number, summary in enumerate(history.summaries):
        end = history.summaries[number + 1] if number + 1 < len(history.summaries) else len(history)
        head = _head(history, history, summary, summary // 2)
        found.update(range(summary - head, summary))
        before = history.kept(start, summary - head)
        behind = range(summary + 1, end)
        found.update(behind[: _overlap(history, before, history, behind)])
        start = summary + 1
    return found


def copies_of_parent(parent: History, child: History, branch: bool) -> set[int]:
    """What a branch, or the session that continues a compacted one, has of its parent at its beginning.

    What the user took back in the parent after the branch is no copy: there it is gone. A branch is copied message by
    message, so that it may be met unfinished; a compaction is one transaction.
    """
    everything = range(len(child))
    kept = parent.kept(0, len(parent))
    whole = list(range(len(parent)))
    found: set[int] = set()
    for before in (kept, whole):
        count = _overlap(parent, before, child, everything, unfinished=branch)
        if count > len(found):
            found = set(everything[:count])
    if found or not child.summaries:
        return _still_there(parent, child, found)
    summary = child.summaries[0]
    head = _head(parent, child, summary, summary)
    tail = range(summary + 1, len(child))
    return set(range(summary - head, summary)) | set(tail[: _overlap(parent, kept, child, tail)])


def _still_there(parent: History, child: History, found: set[int]) -> set[int]:
    gone = {parent.identities[position] for position in parent.taken_back}
    gone -= {parent.identities[position] for position in parent.kept(0, len(parent))}
    return {position for position in found if child.identities[position] not in gone}


def _head(first: History, history: History, summary: int, most: int) -> int:
    """How many messages before the summary are the first ones again."""
    for count in range(min(_HEAD_MESSAGES, most, len(first)), 0, -1):
        if first.exchanges[:count] == history.exchanges[summary - count : summary]:
            return count
    return 0


def _overlap(
    before: History, earlier: Sequence[int], after: History, later: Sequence[int], unfinished: bool = False
) -> int:
    """How many of `later`, from its start, are the last of `earlier` again."""
    return max(
        _suffix_prefix([keys[at] for at in earlier], [others[at] for at in later], unfinished)
        for keys, others in ((before.exchanges, after.exchanges), (before.words, after.words))
    )


def _suffix_prefix(earlier: list[int], later: list[int], unfinished: bool) -> int:
    """The longest suffix of `earlier` that `later` begins with (Knuth, Morris, Pratt), in linear time.

    With `unfinished`, all of `later` anywhere in `earlier` counts too: a copy that is being made right now.
    """
    later = later[: len(earlier)]
    if not later:
        return 0
    borders = [0] * len(later)
    length = 0
    for position in range(1, len(later)):
        while length and later[position] != later[length]:
            length = borders[length - 1]
        length += later[position] == later[length]
        borders[position] = length
    length = 0
    for value in earlier:
        if length == len(later):
            length = borders[length - 1]
        while length and value != later[length]:
            length = borders[length - 1]
        length += value == later[length]
        if unfinished and length == len(later):
            return length
    return length


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
