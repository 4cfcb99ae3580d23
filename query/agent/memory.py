"""Recall for the chat: by the query service when one runs, else in this process. Does I/O.

A chat goes on without a memory: what went wrong is a note beside the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from producers.api_file import api_url
from producers.errors import NotReady, ScopeRecallError, ServiceRefused
from producers.events import TurnEvent
from producers.recall_answers import RecallOptions
from producers.recall_client import RecallClient
from producers.settings import Settings
from query.question import Question
from query.recall import Recaller
from query.recency import Recency
from query.recent import Recent
from workers.stores.scope import Scope

DEFAULT_TENANT: str = TurnEvent.model_fields["tenant"].default
SERVICE_RESERVE = 2.0
"""Seconds that the service gets beyond its own deadline, for the way and for waiting its turn."""
LOADING_SECONDS = 60.0
"""What it gets at its first recall, which may have to load the models."""
QUERY_CHARS = 4000
"""Of what was said, what is asked of the memory: a pasted file is no question."""


class Hit(Protocol):
    """What is shown of a recalled turn."""

    @property
    def session_id(self) -> str: ...
    @property
    def turn_index(self) -> int: ...
    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def score(self) -> float | None: ...


@dataclass(frozen=True)
class Recalled:
    """What was recalled for one question."""

    context: str = ""
    """The block for the prompt; empty when nothing was found."""
    hits: Sequence[Hit] = ()
    degraded: Sequence[str] = ()
    by: str = "none"
    """`service`, `process`, or `none`."""


class Memory:
    """One tenant's memory without what the prompt holds of the live session. Use as a context manager."""

    def __init__(self, settings: Settings, tenant: str | None, session_id: str, k: int) -> None:
        """`tenant` None: that of the service's key."""
        self._settings = settings
        self._tenant = tenant
        self._session = session_id
        self._k = k
        self._recaller: Recaller | None = None
        self._has_answered = False
        url = settings.service_url or api_url(settings.data_dir)
        self._service = RecallClient(url, api_key=settings.service_api_key) if url else None

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave_service()

    def recall(self, text: str, before: str = "", *, held: int) -> Recalled:
        """What is known about `text`, said after the lines `before`, without the live session's `held` newest turns.

        The prompt holds those. One that is still on its way is not counted where it is recalled, so that an older one
        is left out in its place. Never raises: what went wrong is in `degraded`.
        """
        text = text[:QUERY_CHARS]
        troubles: list[str] = []
        is_named = self._settings.service_url is not None
        if self._service is not None:
            try:
                return self._by_service(self._service, text, before, held)
            except ScopeRecallError as error:
                hint = " (SCOPE_RECALL_SERVICE_API_KEY)" if isinstance(error, ServiceRefused) else ""
                troubles.append(f"{error}{hint}; " + ("nothing was recalled" if is_named else "this process recalls"))
        if is_named:
            return Recalled(degraded=troubles)
        self._leave_service()  # away, or without a key: this process does it from now on, and nobody waits again
        try:
            return self._in_process(text, before, held, troubles)
        except NotReady:
            return Recalled(degraded=troubles)  # nothing has been stored yet
        except ScopeRecallError as error:
            return Recalled(degraded=[*troubles, f"nothing was recalled: {error}"])

    def _by_service(self, service: RecallClient, text: str, before: str, held: int) -> Recalled:
        seconds = self._settings.deadline_ms / 1000 + SERVICE_RESERVE
        options = RecallOptions(exclude_recent={self._session: held}, k=self._k, deadline_ms=self._settings.deadline_ms)
        if self._tenant is not None:
            options["tenant"] = self._tenant
        if before:
            options["query_context"] = before
        answer = service.recall(text, timeout=seconds if self._has_answered else LOADING_SECONDS, **options)
        self._has_answered = True
        return Recalled(answer.context, answer.hits, answer.degraded, "service")

    def _in_process(self, text: str, before: str, held: int, troubles: list[str]) -> Recalled:
        settings = self._settings
        if self._recaller is None:
            self._recaller = Recaller.open(settings)
        question = Question(
            text,
            Scope(self._tenant or DEFAULT_TENANT),
            self._k,
            max(settings.wide, self._k),
            settings.deadline_ms,
            recency=Recency(settings.recency_weight, settings.half_life_days),
            min_score=settings.min_score,
            query_context=before,
            query_context_weight=settings.query_context_weight,
            exclude_recent=(Recent(self._session, held),),
        )
        answer = self._recaller.recall(question)
        return Recalled(answer.context, answer.hits, [*troubles, *answer.degraded], "process")

    def _leave_service(self) -> None:
        if self._service is not None:
            self._service.close()
        self._service = None
