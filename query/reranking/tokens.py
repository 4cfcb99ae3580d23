"""What a model's own tokenizer says about it. Pure."""

from __future__ import annotations

from typing import Any

from workers.embedding.languages import spoken_scripts


def tokenizer_scripts(name: str, tokenizer: Any) -> frozenset[str] | None:
    """Scripts a model speaks, read off its name and its tokenizer's vocabulary; None means all or unknown."""
    unknown = tokenizer.unk_token

    def tokenise(text: str) -> list[str | None]:
        return [None if token == unknown else token for token in tokenizer.tokenize(text)]

    return spoken_scripts(name, tokenise)
