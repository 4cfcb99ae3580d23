"""The turn event: what an agent says happened. Pure; no I/O.

Identity is (tenant, session_id, turn_index, role). The same identity with the same content is a duplicate; with other
content it is a revision.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator

from producers.errors import InvalidEvent
from producers.settings import Settings

Role = Literal["user", "assistant", "system", "tool"]

MAX_ID_CHARS = 256
MAX_TAGS = 64
MAX_TURN_INDEX = 2**63 - 1
CANARY_TENANT = "scope-recall canary"
"""Whose turns the query service pushes and recalls to see that the path works; nobody else may have this name."""
LIVE_FROM = 10_000_000
"""Turn index from which Hermes' live turns are numbered. Its transcripts are imported below, so that neither ever takes
the other's place; no session has that many messages."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")

Identifier = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]


class Identity(NamedTuple):
    """What makes a turn the same turn."""

    tenant: str
    session_id: str
    turn_index: int
    role: str

    @property
    def key(self) -> str:
        """32 hex digits; the four parts are length-prefixed by JSON, so that no two identities share a text."""
        return _digest(json.dumps(self, ensure_ascii=True))[:32]


class TurnEvent(BaseModel):
    """One turn of one agent's session, as accepted onto the stream."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    tenant: Identifier = "default"
    agent_id: Identifier | None = None
    session_id: Identifier
    turn_index: int = Field(ge=0, le=MAX_TURN_INDEX)
    role: Role
    content: str = Field(min_length=1)
    speaker: Identifier | None = None
    created_at: AwareDatetime | None = None
    """When it was said at the source; a missing time stays missing."""
    source: Identifier = "push"
    tags: tuple[Identifier, ...] = Field((), max_length=MAX_TAGS, strict=False)
    metadata: dict[str, Any] = Field(default_factory=dict)

    @field_validator("tenant", "agent_id", "session_id", "speaker", "source")
    @classmethod
    def _clean_identifier(cls, value: str | None) -> str | None:
        if value is not None:
            _refuse_control(value)
        return value

    @field_validator("tags")
    @classmethod
    def _clean_tags(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for tag in value:
            _refuse_control(tag)
        return tuple(dict.fromkeys(value))

    @field_validator("created_at")
    @classmethod
    def _within_the_calendar(cls, value: datetime | None) -> datetime | None:
        if value is not None:
            try:
                value.astimezone(UTC)
            except OverflowError:
                raise ValueError("lies outside the years 1 to 9999 in UTC") from None
        return value

    @field_validator("content")
    @classmethod
    def _clean_content(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is blank; leave the turn out")
        position = value.find("\x00")
        if position >= 0:
            raise ValueError(f"holds a NUL character at position {position}; remove it")
        return value

    @property
    def identity(self) -> Identity:
        return Identity(self.tenant, self.session_id, self.turn_index, self.role)

    @cached_property
    def key(self) -> str:
        """The identity's key."""
        return self.identity.key

    @cached_property
    def content_hash(self) -> str:
        """32 hex digits of SHA-256 over the content."""
        return _digest(self.content)[:32]

    def to_json(self) -> bytes:
        """The event as it travels on the stream: UTF-8 JSON without the fields that hold their default."""
        return self.model_dump_json(exclude_defaults=True).encode()


def parse_event(data: bytes | str | dict[str, Any], settings: Settings) -> TurnEvent:
    """Build an event from JSON or a dict. Raises `InvalidEvent` naming field, limit and value.

    A bytes or str input is one JSON object; dates are ISO 8601 with an offset.
    """
    event = valid_event(data)
    check_sizes(event, settings)
    return event


def parse_pushed(data: bytes | str | dict[str, Any], settings: Settings) -> TurnEvent:
    """The same for an event that somebody pushes: the canary's tenant is refused too."""
    event = parse_event(data, settings)
    if event.tenant == CANARY_TENANT:
        raise InvalidEvent(f"tenant: {CANARY_TENANT!r} is the query service's own; choose another name", field="tenant")
    return event


def valid_event(data: bytes | str | dict[str, Any]) -> TurnEvent:
    """The same without the limits on sizes, which are settings."""
    try:
        return TurnEvent.model_validate(data) if isinstance(data, dict) else TurnEvent.model_validate_json(data)
    except ValidationError as error:
        quiet = _explain(error, data, values=False)
        raise InvalidEvent(_explain(error, data), without_values=quiet, field=_first_field(error, quiet)) from None
    except ValueError as error:  # a lone surrogate in the JSON text itself
        raise InvalidEvent(f"not valid UTF-8: {error}") from None


def check_sizes(event: TurnEvent, settings: Settings) -> None:
    """Raises `InvalidEvent` when content or metadata are over the limits."""
    size = len(event.content.encode())
    if size > settings.max_content_bytes:
        raise InvalidEvent(
            f"content: {size:,} bytes, over the limit of {settings.max_content_bytes:,}; "
            "split the turn, or raise max_content_bytes",
            field="content",
        )
    try:
        size = len(json.dumps(event.metadata, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError) as error:
        raise InvalidEvent(f"metadata: not JSON in UTF-8: {error}", field="metadata") from None
    except RecursionError:
        raise InvalidEvent("metadata: nested too deeply to be kept; flatten it", field="metadata") from None
    if size > settings.max_metadata_bytes:
        raise InvalidEvent(
            f"metadata: {size:,} bytes of JSON, over the limit of {settings.max_metadata_bytes:,}; "
            "leave out what recall does not need, or raise max_metadata_bytes",
            field="metadata",
        )


def _explain(error: ValidationError, data: object, *, values: bool = True) -> str:
    """One line a problem: field, what is wrong, and the value shortened unless it must not be shown."""

    def got(value: object) -> str:
        return f", got {_shorten(value)}" if values else ""

    problems = []
    for item in error.errors(include_url=False):
        field = ".".join(str(part) for part in item["loc"])
        if item["type"] == "json_invalid":
            problems.append(_json_problem(str(item["ctx"]["error"]), data))
        elif item["type"] == "model_type":
            problems.append(f"not a JSON object{got(item['input'])}")
        elif item["type"] == "extra_forbidden":
            problems.append(f"{field}: unknown field; the fields are {', '.join(TurnEvent.model_fields)}")
        elif item["type"] == "missing":
            problems.append(f"{field}: missing")
        elif item["type"] == "timezone_aware":
            problems.append(f"{field}: has no time zone{got(item['input'])}; add an offset, such as Z or +08:00")
        else:
            message = item["msg"].removeprefix("Value error, ")
            problems.append(f"{field}: {message[0].lower()}{message[1:]}{got(item['input'])}")
    return "; ".join(problems)


def _first_field(error: ValidationError, explained: str) -> str:
    """The field that is wrong; text that is not JSON has none but the one that its explanation may name."""
    named = explained.partition(":")[0]
    place = error.errors(include_url=False, include_input=False)[0]["loc"]
    return ".".join(map(str, place)) or (named if named in TurnEvent.model_fields else "")


def _json_problem(reason: str, data: object) -> str:
    """Tell a lone surrogate, which Python's own parser lets through, from broken JSON."""
    if isinstance(data, (bytes, str)) and "hex escape" in reason:
        try:
            parsed = json.loads(data)
        except (ValueError, RecursionError):
            parsed = None
        fields = parsed.items() if isinstance(parsed, dict) else ()
        for name, value in fields:
            if _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
                return f"{name}: holds a lone surrogate, which is not text; replace it, for example with U+FFFD"
    return f"invalid JSON: {reason}"


def _shorten(value: object, limit: int = 60) -> str:
    text = ascii(value) if _SURROGATE.search(repr(value)) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def _refuse_control(value: str) -> None:
    found = _CONTROL.search(value)
    if found:
        raise ValueError(f"holds the control character {found.group()!a} at position {found.start()}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def utc_microseconds(moment: datetime | None) -> int | None:
    """Microseconds since 1970 in UTC, the form both stores keep; None stays None."""
    if moment is None:
        return None
    return (moment - _EPOCH) // _MICROSECOND


def from_utc_microseconds(value: int | None) -> datetime | None:
    """The moment in UTC that `utc_microseconds` made `value` of."""
    return None if value is None else _EPOCH + value * _MICROSECOND
