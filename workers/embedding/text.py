"""What a model may be given to read. Pure.

Tokenizers refuse a lone surrogate, and C engines stop at a NUL; neither may lose a text or a whole batch.
"""

from __future__ import annotations

import re

_UNREADABLE = re.compile("[\x00\ud800-\udfff]")


def readable(text: str) -> str:
    """`text` with NUL as a space and lone surrogates as U+FFFD; one character stays one, so offsets hold."""
    if not _UNREADABLE.search(text):
        return text
    return _UNREADABLE.sub(lambda found: " " if found.group() == "\x00" else "\ufffd", text)
