"""Passages for the tests of rerankers."""

from __future__ import annotations

from collections.abc import Sequence

from query.reranking.port import Passage


def passages(texts: Sequence[str]) -> list[Passage]:
    """A passage for each text, none beside another."""
    return [Passage(text) for text in texts]
