"""Logging: structlog to standard error, never the content of a turn. Does I/O only through logging.

People get lines, programs get JSON lines (when standard error is not a terminal).
"""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path
from typing import Any

import structlog

TRACED_FRAMES = 6
"""Enough to find the line, short enough for one."""


def configure_logging(level: str) -> None:
    """Route structlog and the standard library's loggers to standard error at `level`."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any
    if sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer()
    else:
        shared.append(structlog.processors.format_exc_info)
        renderer = structlog.processors.JSONRenderer(ensure_ascii=False)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler()
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processor=renderer))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in (
        "httpx",
        "httpx2",
        "httpcore",
        "huggingface_hub",
        "sentence_transformers",
        "transformers",
        "alembic",
    ):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger whose first positional argument is an event name in snake_case."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(name)
    return logger


def where(error: BaseException) -> str:
    """Where an exception came from, innermost last; without its message, which may hold what a turn says."""
    frames = traceback.extract_tb(error.__traceback__)[-TRACED_FRAMES:]
    return " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
