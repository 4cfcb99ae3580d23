"""The order in which events were accepted, as text that sorts: an entry id with both numbers zero-padded. Pure."""

from __future__ import annotations

MAX_SEQUENCE = 10**19 - 1
"""Behind everything that Redis takes within one millisecond."""

MILLISECOND_DIGITS = 19
"""An order begins with that many."""


def entry_order(entry_id: str) -> str:
    """An entry id, such as 1795987028254-0, as text that sorts in the stream's order."""
    milliseconds, _, sequence = entry_id.partition("-")
    return order_at(int(milliseconds), int(sequence))


def order_at(milliseconds: int, sequence: int = 0) -> str:
    """The order of the event that was accepted as number `sequence` of this millisecond since 1970."""
    return f"{milliseconds:0{MILLISECOND_DIGITS}d}-{sequence:019d}"


def milliseconds_of(order: str) -> int:
    """Milliseconds since 1970 of an order."""
    return int(order.partition("-")[0])
