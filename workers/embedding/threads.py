"""How many threads the models compute with, and how those wait for each other. Sets process-wide state, no more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

SPINS = 10_000
"""Turns a thread of GNU OpenMP spins before it sleeps; about 10 microseconds. By default it spins for milliseconds, and
where two busy processes share two cores each waits for threads that the other keeps off. Measured, texts a second with
MiniLM: 204 against 208 on an idle machine, 28 against 81 beside two busy processes."""
SHORT_CHARS = 400
"""About 100 tokens."""


def share_cores_politely() -> None:
    """Call before torch is loaded: OpenMP reads its environment once. What the user has set stays."""
    os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))


@contextmanager
def threads_for(question: str) -> Iterator[None]:
    """One thread for a short question: its parts are too small to share out. The two packaged models took 30 ms of CPU
    for one with a thread and 114 with two, beside other processes."""
    import torch

    if len(question) > SHORT_CHARS:
        yield
        return
    usual = _usual_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


@cache
def _usual_threads() -> int:
    """What torch began with; the number now may be another thread's 1."""
    import torch

    usual: int = torch.get_num_threads()
    return usual
