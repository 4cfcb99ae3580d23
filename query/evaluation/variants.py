"""Settings side by side: what `--compare` names, checked before anything is ingested. Pure, but for the environment.

A variant is the settings as they are with some changed. Those that are asked with need no ingest of their own; those
that vectors are made with do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from producers.errors import SettingsError, UsageError
from producers.settings import Settings, load_settings, shown

ASKED_WITH = (
    "reranker",
    "reranker_url",
    "reranker_api_key",
    "wide",
    "deadline_ms",
    "min_score",
    "recency_weight",
    "half_life_days",
    "time_zone",
    "query_context_weight",
)
"""Settings of a recall: variants that differ in these alone share one ingest."""
STORED_WITH = ("embedder", "embedder_url", "precision", "chunk_tokens", "chunk_overlap")
"""Settings that decide the stored vectors."""
BASE = "base"
"""Name of the settings as they are."""
MAX_NAME_CHARS = 40

_NAME = re.compile(r"[^\W_][\w.+=@ -]*")
_NEXT_SETTING = re.compile(r",(?=\s*\w+\s*=)")
"""A comma within a value, as in a path, separates nothing."""


@dataclass(frozen=True)
class Variant:
    """One of the settings compared."""

    name: str
    settings: Settings
    changes: Mapping[str, str]
    """What differs from the first, by setting, as people may see it."""

    @property
    def stored_with(self) -> tuple[object, ...]:
        """Variants with an equal one share an ingest."""
        return tuple(getattr(self.settings, name) for name in STORED_WITH)

    @property
    def as_settings(self) -> str:
        """The changes as they are set: `reranker=none, wide=100`."""
        return ", ".join(f"{name}={value}" for name, value in self.changes.items())


def variants_of(base: Settings, compared: Sequence[str]) -> list[Variant]:
    """The settings as they are, then one variant for each `[NAME:]SETTING=VALUE[,SETTING=VALUE…]`.

    Raises `UsageError` or `SettingsError`, naming the text and what is wrong with it.
    """
    found = [Variant(BASE, base, {})]
    for text in compared:
        variant = _variant(base, text)
        if any(variant.name == one.name for one in found):
            reason = "is the settings as they are" if variant.name == BASE else "is borne by two"
            raise UsageError(f"--compare {text}: the name {variant.name!r} {reason}; name this one NAME:SETTING=VALUE")
        found.append(variant)
    return found


def _variant(base: Settings, text: str) -> Variant:
    name, colon, rest = text.partition(":")
    # Only before the first equals sign is a colon the name's: openai:MODEL has one too.
    named = bool(colon) and "=" not in name
    changes: dict[str, str] = {}
    for part in _NEXT_SETTING.split(rest if named else text):
        setting, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise UsageError(f"--compare {text}: {part.strip()!r} is no SETTING=VALUE, such as reranker=none")
        _check_setting(text, setting)
        if setting in changes:
            raise UsageError(f"--compare {text}: {setting} is given twice")
        changes[setting] = value
    visible = {setting: str(shown(setting, value)) for setting, value in changes.items()}
    name = name.strip() if named else ",".join(f"{setting}={value}" for setting, value in visible.items())
    if named and (len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name)):
        raise UsageError(
            f"--compare {text}: the name {name!r} is to be of 1 to {MAX_NAME_CHARS} letters, digits, blanks or "
            ". + = @ - _, a letter or digit first"
        )
    try:
        settings = load_settings(None, **{**base.model_dump(exclude_unset=True), **changes})
    except SettingsError as error:
        raise SettingsError(f"--compare {text}: {error}") from None
    return Variant(name, settings, visible)


def _check_setting(text: str, setting: str) -> None:
    comparable = (*ASKED_WITH, *STORED_WITH)
    if setting in comparable:
        return
    if setting in Settings.model_fields:
        raise UsageError(
            f"--compare {text}: {setting} does not change what is found; compared can be {', '.join(comparable)}"
        )
    near = difflib.get_close_matches(setting.lower(), comparable, n=1)
    hint = f"did you mean {near[0]}?" if near else f"compared can be {', '.join(comparable)}"
    raise UsageError(f"--compare {text}: unknown setting {setting!r}; {hint}")
