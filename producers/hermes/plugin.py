"""What Hermes loads: `register`, by the directory that `scope-recall hermes install` writes, or by the entry point."""

from __future__ import annotations

import importlib
from typing import Any

import structlog

from producers.hermes.provider import ScopeRecallProvider


def register(ctx: Any) -> None:
    """Give Hermes a provider."""
    _log_where_hermes_does()
    ctx.register_memory_provider(provider_class()())


def provider_class() -> type[ScopeRecallProvider]:
    """A subclass of Hermes' own base class, whose defaults it has for what a later version adds."""
    try:
        base = importlib.import_module("agent.memory_provider").MemoryProvider
    except ImportError:
        return ScopeRecallProvider
    return type("ScopeRecallMemoryProvider", (ScopeRecallProvider, base), {})


def _log_where_hermes_does() -> None:
    """structlog, where nobody has set it up, prints to standard output, which is the agent's terminal."""
    if not structlog.is_configured():
        structlog.configure(
            processors=[structlog.processors.KeyValueRenderer(key_order=["event"])],
            logger_factory=structlog.stdlib.LoggerFactory(),
            wrapper_class=structlog.stdlib.BoundLogger,
        )
