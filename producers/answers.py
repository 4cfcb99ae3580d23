"""What the query service answered to a call, and what that means in this project's errors. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from producers.errors import InvalidRequest, ScopeRecallError, ServiceAway, ServiceRefused, UnexpectedAnswer
from producers.retry_after import seconds_of

BUSY = frozenset({408, 425, 429, 502, 503, 504})
"""Answers that the same request may not get again."""
REASON_CHARS = 500


@dataclass(frozen=True)
class Answered:
    """What the service answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after(self) -> float | None:
        """Seconds, from either form of the header (RFC 9110, 10.2.3)."""
        return seconds_of(self.headers.get("retry-after"))

    def result(self, name: str) -> Any:
        """The JSON of an answer that is a result; raises what any other means."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            found = None
        if 200 <= self.status < 300 and found is not None:
            return found
        raise self._error(name, found)

    def _error(self, name: str, found: Any) -> ScopeRecallError:
        reason = _reason(found)
        said = f"{name} answered {self.status}" + (f": {reason}" if reason else "")
        if self.status == 401:
            return ServiceRefused(f"{said}. This client takes one as api_key=…")
        if self.status == 403:
            return ServiceRefused(said if reason else f"{said}: the key is not for this tenant, or lacks the right")
        if self.status in BUSY:
            return ServiceAway(said, retry_after=self.retry_after)
        if self.status in (400, 413, 422) and reason:
            return InvalidRequest(said, _field(found, reason))
        if self.status >= 500:
            return UnexpectedAnswer(f"{said}. It is a mistake of the service; its log says where")
        return UnexpectedAnswer(f"{said}. Is this the URL of a scope-recall service, and of this version?")


def _reason(found: Any) -> str:
    """What an answer says of its error: {"error": ...}, or the `detail` of application/problem+json."""
    if not isinstance(found, dict):
        return ""
    reason = next((found[name] for name in ("error", "detail", "title") if isinstance(found.get(name), str)), "")
    return str(reason)[:REASON_CHARS]


def _field(found: Any, reason: str) -> str | None:
    """The field that an error is about: named as such, or in front of the reason."""
    if isinstance(found.get("field"), str):
        return str(found["field"])
    front, colon, _ = reason.partition(": ")
    return front if colon and front.replace(".", "").replace("_", "").isalnum() and front != "body" else None
