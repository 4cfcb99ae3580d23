"""The agent loop: keep what was said, recall, ask the model, keep its answer. Does I/O through its parts.

    question → stream → recall → prompt → model, piece by piece → stream

The question is on the stream before the model is asked, so that it is remembered even if no answer comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from producers.client import Producer
from producers.errors import ModelAway, ScopeRecallError
from producers.events import Role, TurnEvent, parse_event
from producers.prompt_template import PromptTemplate
from producers.said_before import said_before
from producers.settings import Settings
from query.agent.answer_reader import Piece
from query.agent.memory import Memory, Recalled
from query.agent.model import ChatModel
from query.agent.prompt import messages_for
from query.agent.session import Session

SOURCE = "chat"
INTERRUPTED = "interrupted"
"""Tag of an answer that its reader cut short."""
INCOMPLETE = "incomplete"
"""Tag of one that broke off, or that reached a limit."""
CUT_REASONS = ("length", "max_tokens", "content_filter", "tool_calls", "function_call", "error", "abort")
"""What a model says that stopped for another reason than being done; of tools it was offered none."""


class Display(Protocol):
    """Who watches."""

    def recalled(self, recalled: Recalled) -> None: ...
    def thinks(self) -> None: ...
    def says(self, text: str) -> None: ...


@dataclass
class Exchange:
    """A question and what became of it."""

    question: str
    turn_index: int
    answer: str = ""
    recalled: Recalled = field(default_factory=Recalled)
    question_stored: bool = False
    answer_stored: bool = False
    """Accepted: by the stream, or by this machine's spool."""
    finish: str | None = None
    tag: str | None = None
    """What keeps the answer from being whole."""
    error: ScopeRecallError | None = None
    """Why there is no answer, or only a part of one."""
    troubles: list[str] = field(default_factory=list)
    """What was not stored, and why."""


class Chat:
    """One person's chat with one model."""

    def __init__(
        self, settings: Settings, session: Session, memory: Memory, model: ChatModel, producer: Producer
    ) -> None:
        self._settings = settings
        self._template = PromptTemplate.parse(settings.prompt_template)
        self._session = session
        self._memory = memory
        self._model = model
        self._producer = producer

    def ask(self, question: str, display: Display) -> Exchange:
        """Answer `question`. What goes wrong with the model is in the exchange's `error`.

        Raises `InvalidEvent` when the question cannot be a turn. Ctrl-C ends the answer and keeps what has come; so do
        a reader who has gone and the end of the program, which are raised again.
        """
        index = self._session.next_index()
        history = self._session.history(self._settings.chat_history_chars)
        event = self._event(index, "user", question)
        exchange = Exchange(event.content, index)
        exchange.question_stored = self._store(event, exchange)
        try:
            before = said_before(history.turns)
            exchange.recalled = self._memory.recall(question, before, held=history.reach + 1)
            display.recalled(exchange.recalled)
            self._answer(exchange, history.turns, display)
        except KeyboardInterrupt:
            exchange.tag = INTERRUPTED
        except ScopeRecallError as error:
            exchange.error = error
            exchange.tag = INCOMPLETE
        except (OSError, SystemExit):
            exchange.tag = INTERRUPTED
            raise
        finally:
            self._keep_answer(exchange)
        return exchange

    def _keep_answer(self, exchange: Exchange) -> None:
        if exchange.answer.strip():
            tags = (exchange.tag,) if exchange.tag else ()
            event = self._event(exchange.turn_index + 1, "assistant", exchange.answer, tags)
            exchange.answer_stored = self._store(event, exchange)

    def _answer(self, exchange: Exchange, history: Sequence[TurnEvent], display: Display) -> None:
        values = {
            "question": exchange.question,
            "memory": exchange.recalled.context,
            "date": datetime.now().astimezone().date().isoformat(),
            "tenant": self._session.tenant,
            "session": self._session.id,
        }
        messages = messages_for(self._template, values, history)
        room = self._settings.max_content_bytes
        with closing(self._model.answer(messages)) as pieces:
            for piece in pieces:
                if piece.thought:
                    display.thinks()
                room -= len(piece.text.encode())
                if room < 0:
                    exchange.finish = "max_content_bytes"
                    break
                self._take(exchange, piece, display)
        if exchange.finish in (*CUT_REASONS, "max_content_bytes"):
            exchange.tag = INCOMPLETE
        if not exchange.answer.strip():
            why = f" (it stopped for: {exchange.finish})" if exchange.finish not in (None, "stop") else ""
            raise ModelAway(f"model {self._model.name}: an empty answer{why}; ask again")

    @staticmethod
    def _take(exchange: Exchange, piece: Piece, display: Display) -> None:
        if piece.text:
            exchange.answer += piece.text
            display.says(piece.text)
        exchange.finish = piece.finish or exchange.finish

    def _event(self, index: int, role: Role, content: str, tags: Sequence[str] = ()) -> TurnEvent:
        said: dict[str, Any] = {
            "tenant": self._session.tenant,
            "session_id": self._session.id,
            "turn_index": index,
            "role": role,
            "content": content.replace("\x00", "\N{REPLACEMENT CHARACTER}"),
            "created_at": datetime.now(UTC),
            "source": SOURCE,
            "tags": tuple(tags),
            "metadata": {"model": self._model.name} if role == "assistant" else {},
        }
        return parse_event(said, self._settings)

    def _store(self, event: TurnEvent, exchange: Exchange) -> bool:
        """Whether the turn is accepted; the chat goes on without."""
        self._session.add(event)
        try:
            self._producer.push(event)
        except ScopeRecallError as error:
            exchange.troubles.append(f"the {event.role}'s turn was not stored: {error}")
            return False
        return True
