"""Whose memory it is: from what Hermes says of a session to a tenant. Reads and once writes the home's id.

Every person on every platform in every profile has a memory of their own. A group's is one for each person and group,
so that what somebody said in private is not brought up before others. Who cannot be told apart gets a memory that ends
with the session.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from producers.events import MAX_ID_CHARS
from producers.hermes.settings import FOLDER

HOME_ID = "home-id"
LOCAL = frozenset({"", "cli", "tui", "acp", "desktop", "local", "cron"})
"""Platforms on which the one who speaks is the home's owner."""
_DIRECT = frozenset({"", "dm", "private"})
_DIGEST_CHARS = 32


@dataclass(frozen=True)
class Memory:
    """Whose memory a session reads and writes."""

    tenant: str
    agent_id: str
    by_agent: bool
    """The tenant is shared, so that every question and every forget names the agent as well."""

    def scope(self) -> dict[str, Any]:
        """The fields of a recall's body."""
        return {"tenant": self.tenant} | ({"agents": [self.agent_id]} if self.by_agent else {})

    def erasable(self) -> dict[str, Any]:
        """The fields of a forget's body."""
        return {"tenant": self.tenant} | ({"agent": self.agent_id} if self.by_agent else {})


def memory_of(home: Path, session_id: str, facts: Mapping[str, Any], tenant: str = "") -> Memory:
    """The memory of a session that Hermes begins with `facts` (the keywords of `initialize`).

    `tenant` is the setting: one tenant for all, in which the agent id tells people apart.
    """
    own = _joined("hermes", _profile(home, facts), home_id(home), *_person(session_id, facts))
    return Memory(tenant, own, by_agent=True) if tenant else Memory(own, own, by_agent=False)


def profile_of(home: Path) -> str:
    """`coder` of `profiles/coder`, else `default`."""
    return home.name if home.parent.name == "profiles" else "default"


def home_id(home: Path) -> str:
    """8 hex digits that stay with a home, so that the default profiles of two machines are not one. Made once."""
    path = home / FOLDER / HOME_ID
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = path.with_name(f"{HOME_ID}.{secrets.token_hex(4)}")
        if not path.exists():
            beside.write_text(secrets.token_hex(4))
            with suppress(FileExistsError):
                os.link(beside, path)  # whoever comes first; the name appears with its content
            beside.unlink()
        if found := path.read_text().strip():
            return found
    return hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:8]


def _profile(home: Path, facts: Mapping[str, Any]) -> str:
    named = _text(facts, "agent_identity")
    return named if named and named != "custom" else profile_of(home)


def _person(session_id: str, facts: Mapping[str, Any]) -> list[str]:
    platform = _text(facts, "platform")
    user = _text(facts, "user_id_alt") or _text(facts, "user_id")  # Hermes' own order of preference
    chat = _text(facts, "chat_id")
    if not user and platform in LOCAL:
        return []
    if not user:
        return [platform, "chat", chat] if chat and _text(facts, "chat_type") in _DIRECT else [platform, "", session_id]
    if _text(facts, "chat_type") in _DIRECT:
        return [platform, user]
    return [platform, user, "in", chat or session_id]


def _text(facts: Mapping[str, Any], name: str) -> str:
    value = facts.get(name)
    return "" if value is None else str(value).strip()


def _joined(*parts: str) -> str:
    """Parts quoted, so that no two lists of them make the same text; a long one ends in a digest."""
    text = ":".join(quote(part, safe="@+ ", errors="backslashreplace") for part in parts)
    if len(text) <= MAX_ID_CHARS:
        return text
    mark = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{text[: MAX_ID_CHARS - _DIGEST_CHARS - 1]}~{mark}"
