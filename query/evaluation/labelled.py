"""Labelled recall sets: turns and questions with evidence, read into events and judged questions. Reads files.

A conversation is a tenant. Conversations that one question searches together share a tenant, since recall never looks
into two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from producers.errors import InvalidEvent, UsageError
from producers.events import Role, TurnEvent, parse_event
from producers.settings import Settings
from query.evaluation.metrics import Judged, TurnRef
from query.json_lines import read_rows
from query.question import MAX_QUESTION_CHARS

ROLES = get_args(Role)
ROLE_OF_OTHERS = {"tool_call": "tool"}
OTHER_ROLE = "system"
"""Roles of other data sets: a call of a tool, and notes or documents, which nobody says to anybody. The original stays
as a tag."""


TURN_NAMES = {"tenant": "conversation_id", "created_at": "timestamp"}
QUESTION_NAMES = {"tenant": "scope"}
"""Fields of our own turn events and questions, so that what was pushed can be evaluated as it is."""


@dataclass(frozen=True)
class LabelledQuestion:
    """A question, where it searches, and what answers it."""

    judged: Judged
    query: str
    tenant: str
    sessions: tuple[str, ...]
    """Empty: all of the tenant."""
    query_context: str = ""
    """The lines before it."""

    @property
    def scored(self) -> bool:
        """Whether it counts in the metrics: only with evidence."""
        return bool(self.judged.evidence)


@dataclass(frozen=True)
class LabelledSet:
    """A set as the pipeline takes it."""

    events: list[TurnEvent]
    questions: list[LabelledQuestion]

    @property
    def scored(self) -> list[LabelledQuestion]:
        """The questions with evidence."""
        return [question for question in self.questions if question.scored]

    def without_evidence_in_scope(self) -> list[tuple[LabelledQuestion, TurnRef]]:
        """Questions with evidence that no setting can find, each with the first such turn: it is in no turn of the
        question's scope."""
        turns = {(event.tenant, event.session_id, event.turn_index) for event in self.events}
        found = []
        for question in self.scored:
            for session, index in sorted(question.judged.evidence):
                in_scope = not question.sessions or session in question.sessions
                if not in_scope or (question.tenant, session, index) not in turns:
                    found.append((question, (session, index)))
                    break
        return found


def read_labelled_set(turns: Path, queries: Path, settings: Settings) -> LabelledSet:
    """Read both files. Raises `UsageError` naming file, line and field."""
    rows = list(_rows(turns, TURN_NAMES, ("conversation_id", "session_id", "turn_index", "role", "content")))
    if not rows:
        raise UsageError(f"{turns}: holds no turn")
    for number, row in rows:
        _check_texts(turns, number, row, ("conversation_id", "session_id", "role"))
    asked = list(_rows(queries, QUESTION_NAMES, ("query_id", "query", "scope")))
    _check_questions(queries, asked)
    conversation_of = {row["session_id"]: row["conversation_id"] for _, row in rows}
    tenant_of = _tenants([row["conversation_id"] for _, row in rows], asked, conversation_of, queries)
    events = [_event(turns, number, row, tenant_of[row["conversation_id"]], settings) for number, row in rows]
    questions = [_question(queries, number, row, conversation_of, tenant_of) for number, row in asked]
    return LabelledSet(events, questions)


def _rows(path: Path, names: Mapping[str, str], required: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, row) with our own names for fields put into the sets' form."""
    for number, read in read_rows(path):
        row = {names.get(name, name): value for name, value in read.items()}
        missing = [name for name in required if name not in row]
        if missing:
            raise UsageError(f"{path}, line {number}: {', '.join(missing)} missing")
        yield number, row


def _check_texts(path: Path, number: int, row: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if not _is_text(row[name]):
            raise UsageError(f"{path}, line {number}: {name}: a text is due, got {row[name]!r}")


def _check_questions(path: Path, asked: Iterable[tuple[int, dict[str, Any]]]) -> None:
    """What would fail only when the question is asked, after the whole ingest, or would mix two answers up."""
    line_of: dict[str, int] = {}
    for number, row in asked:
        _check_texts(path, number, row, ("query",))
        if not row["query"].strip():
            raise UsageError(f"{path}, line {number}: query: empty; ask something, or remove the line")
        if len(row["query"]) > MAX_QUESTION_CHARS:
            length = len(row["query"])
            raise UsageError(f"{path}, line {number}: query: {length:,} characters, over {MAX_QUESTION_CHARS:,}")
        if row["query_id"] is None or isinstance(row["query_id"], (list, dict)):
            raise UsageError(f"{path}, line {number}: query_id: a text is due, got {row['query_id']!r}")
        context = row.get("query_context")
        if not isinstance(context, str | None):
            raise UsageError(f"{path}, line {number}: query_context: a text is due, got {context!r}")
        if len(context or "") > MAX_QUESTION_CHARS:
            length = len(context or "")
            raise UsageError(
                f"{path}, line {number}: query_context: {length:,} characters, over {MAX_QUESTION_CHARS:,}"
            )
        if not isinstance(row.get("category"), str | None):
            raise UsageError(f"{path}, line {number}: category: a text is due, got {row['category']!r}")
        if _has_surrogate(row["query"]) or _has_surrogate(str(row["query_id"])):
            raise UsageError(f"{path}, line {number}: query: holds a lone surrogate, which is not text; replace it")
        before = line_of.setdefault(str(row["query_id"]), number)
        if before != number:
            raise UsageError(
                f"{path}, line {number}: query_id {str(row['query_id'])!r} is that of line {before} as well; results "
                "are kept by it, so each question needs its own"
            )


def _tenants(
    conversations: list[str],
    asked: list[tuple[int, dict[str, Any]]],
    conversation_of: dict[str, str],
    queries: Path,
) -> dict[str, str]:
    """Conversation → tenant: the first conversation of those that are searched together (union-find)."""
    parent = {conversation: conversation for conversation in conversations}

    def root(conversation: str) -> str:
        while parent[conversation] != conversation:
            parent[conversation] = conversation = parent[parent[conversation]]
        return conversation

    order = {conversation: position for position, conversation in enumerate(parent)}
    for number, row in asked:
        scope = row["scope"]
        if not scope or not (isinstance(scope, str) or (isinstance(scope, list) and all(map(_is_text, scope)))):
            raise UsageError(f"{queries}, line {number}: scope {scope!r} is no conversation id or list of session ids")
        known = parent if isinstance(scope, str) else conversation_of
        unknown = [name for name in ([scope] if isinstance(scope, str) else scope) if name not in known]
        if unknown:
            raise UsageError(f"{queries}, line {number}: scope {unknown[0]!r} is in no turn")
        searched = [scope] if isinstance(scope, str) else [conversation_of[session] for session in scope]
        roots = sorted({root(conversation) for conversation in searched}, key=order.__getitem__)
        for other in roots[1:]:
            parent[other] = roots[0]
    return {conversation: root(conversation) for conversation in parent}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _event(path: Path, number: int, row: dict[str, Any], tenant: str, settings: Settings) -> TurnEvent:
    role = row["role"] if row["role"] in ROLES else ROLE_OF_OTHERS.get(row["role"], OTHER_ROLE)
    stamp = row.get("timestamp")
    try:
        said = datetime.fromisoformat(stamp) if stamp else None
        event: dict[str, Any] = {
            "tenant": tenant,
            "session_id": row["session_id"],
            "turn_index": row["turn_index"],
            "role": role,
            "content": row["content"],
            "speaker": row.get("speaker"),
            # A labelled set's naive time is taken as UTC; only its order matters here.
            "created_at": said.replace(tzinfo=said.tzinfo or UTC) if said else None,
            "source": "eval",
            "tags": [row["role"]] if row["role"] != role else [],
        }
        return parse_event(event, settings)
    except TypeError:
        raise UsageError(f"{path}, line {number}: timestamp: a time as text is due, got {stamp!r}") from None
    except (InvalidEvent, ValueError) as error:
        raise UsageError(f"{path}, line {number}: {error}") from None


def _question(
    path: Path, number: int, row: dict[str, Any], conversation_of: dict[str, str], tenant_of: dict[str, str]
) -> LabelledQuestion:
    scope = row["scope"]
    # A conversation's scope is its own sessions, which matters where conversations share a tenant.
    if isinstance(scope, str):
        sessions = tuple(name for name, conversation in conversation_of.items() if conversation == scope)
        alone = all(tenant_of[conversation] != tenant_of[scope] for conversation in tenant_of if conversation != scope)
        tenant, sessions = tenant_of[scope], () if alone else sessions
    else:
        tenant, sessions = tenant_of[conversation_of[scope[0]]], tuple(scope)
    judged = Judged(str(row["query_id"]), _evidence(path, number, row), row.get("category"))
    return LabelledQuestion(judged, row["query"], tenant, sessions, row.get("query_context") or "")


def _evidence(path: Path, number: int, row: dict[str, Any]) -> frozenset[TurnRef]:
    given = row.get("evidence")
    items = [] if given is None else given
    where = f"{path}, line {number}: evidence"
    if not isinstance(items, list):
        raise UsageError(f"{where}: a list of {{session_id, turn_index}} is due, got {items!r}")
    for item in items:
        if not (
            isinstance(item, dict)
            and _is_text(item.get("session_id"))
            and isinstance(item.get("turn_index"), int)
            and not isinstance(item["turn_index"], bool)
        ):
            raise UsageError(f"{where}: each is {{session_id: a text, turn_index: a number}}, got {item!r}")
    return frozenset((item["session_id"], item["turn_index"]) for item in items)
