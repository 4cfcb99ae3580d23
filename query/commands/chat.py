"""`scope-recall chat`: talk with a model that remembers."""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from producers.client import Producer
from producers.errors import InvalidEvent, ModelError, UsageError
from producers.settings import Settings
from producers.terminal import CANNOT_RUN, DONE, IN_PART, Terminal, command, examples, plain
from query.agent.loop import INTERRUPTED, Chat, Display, Exchange
from query.agent.memory import DEFAULT_TENANT, Memory, Recalled
from query.agent.model import ChatModel
from query.agent.session import Session

SHOWN_HITS = 5
SHOWN_CHARS = 100
"""Of each recalled turn."""
PROMPT = "> "


def _text_of(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{path}: not UTF-8: {error}") from None


@command(
    short_help="Talk with a model that remembers.",
    epilog=examples(
        "scope-recall chat --base-url http://127.0.0.1:11434/v1 --model qwen3",
        'scope-recall chat --base-url http://127.0.0.1:8080/v1 --model local --once "上次我们决定了什么？"',
    ),
)
@click.option("--base-url", "chat_url", metavar="URL", help="OpenAI-compatible server; often ends in /v1.")
@click.option("--model", "chat_model", metavar="NAME", help="The model to ask.")
@click.option("--api-key", "chat_api_key", help="The server's key; better set SCOPE_RECALL_CHAT_API_KEY.")
@click.option("--tenant", help="Whose memory it is.  [default: default]")
@click.option("--session", help="Go on with this session; without it a new one begins.")
@click.option("--once", metavar="QUESTION", help="Ask one question and end; the answer is all of standard output.")
@click.option(
    "--prompt-template",
    type=click.Path(path_type=Path),
    callback=_text_of,
    help="File with the prompt's template: $question, $memory, $date, …",
)
@click.option("-k", type=click.IntRange(1, 1000), default=5, show_default=True, help="Turns to recall.")
@click.option("--timeout", "chat_timeout", type=float, help="Seconds that the model may say nothing.")
@click.option("--service-url", help="Query service to use; without it the one of this data dir, if it runs.")
def chat(terminal: Terminal, tenant: str | None, session: str | None, once: str | None, k: int) -> int:
    """Answer each line with a model, the turns that it recalls, and the session's own last turns; keep both sides.

    Ctrl-C stops an answer, Ctrl-D ends the chat. With --json (and --once): {"answer", "recalled", "stored", …}.
    """
    settings = terminal.settings
    if terminal.json and once is None:
        raise UsageError("chat: --json needs --once QUESTION")
    session_id = _new_session() if session is None else session
    is_remote = settings.service_url is not None
    owner = DEFAULT_TENANT if tenant is None else tenant
    live = Session(settings, owner, session_id, is_new=session is None, is_remote=is_remote)
    with (
        _ended_by_sigterm(),
        ChatModel(settings) as model,
        Memory(settings, tenant if is_remote else owner, session_id, k) as memory,
        _producer(settings) as producer,
    ):
        loop = Chat(settings, live, memory, model, producer)
        return _answer_once(terminal, loop, live, once) if once is not None else _talk(terminal, loop, live, producer)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """In order, so that what has come of an answer is kept."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(IN_PART))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _producer(settings: Settings) -> Producer:
    return Producer(settings.service_url, api_key=settings.service_api_key, settings=settings)


def _new_session() -> str:
    return f"chat-{datetime.now().astimezone():%Y-%m-%d-%H%M}-{secrets.token_hex(3)}"


class Shown(Display):
    """What is recalled goes to standard error, what the model says to standard output as it comes."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._is_thinking = False
        self.has_spoken = False

    def recalled(self, recalled: Recalled) -> None:
        for hit in recalled.hits[:SHOWN_HITS]:
            text = " ".join(plain(hit.content).split())
            short = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
            self._terminal.note(f"  recalled {plain(hit.session_id)}:{hit.turn_index} {hit.role}: {short}", style="dim")
        if len(recalled.hits) > SHOWN_HITS:
            self._terminal.note(f"  … and {len(recalled.hits) - SHOWN_HITS} more", style="dim")
        for line in recalled.degraded:
            self._terminal.note(f"  degraded: {line}", style="yellow")

    def thinks(self) -> None:
        if not self._is_thinking:
            self._terminal.note("  (thinking)", style="dim")
        self._is_thinking = True

    def says(self, text: str) -> None:
        self.has_spoken = True
        if not self._terminal.json:
            click.echo(plain(text) if sys.stdout.isatty() else text, nl=False)
            sys.stdout.flush()


def _talk(terminal: Terminal, loop: Chat, session: Session, producer: Producer) -> int:
    """Line by line until the end of the input."""
    if sys.stdin is None:
        raise UsageError("chat: standard input is closed; ask by --once QUESTION")
    is_person = sys.stdin.isatty()
    if is_person:
        with suppress(ImportError):
            import readline  # noqa: F401  # arrow keys and a history of lines in input()
        where = plain(f"session {session.id} of tenant {session.tenant}")
        terminal.note(f"{where}; Ctrl-C stops an answer, Ctrl-D ends", style="dim")
    code = DONE
    has_warned = False
    while (line := _next_line(is_person=is_person)) is not None:
        if not line.strip():
            continue
        try:
            exchange = _shown(terminal, loop, line)
        except InvalidEvent as error:
            terminal.note(f"error: {error}", style="red")
            code = IN_PART
            continue
        code = max(code, min(IN_PART, _code(exchange)))
        if producer.waiting and not has_warned:
            has_warned = True
            terminal.note("note: Redis is away; what is said waits on this machine until it is back", style="yellow")
    return code


def _next_line(*, is_person: bool) -> str | None:
    while True:
        try:
            if is_person:
                return input(PROMPT).encode(errors="replace").decode()
            line = sys.stdin.buffer.readline()
            return line.decode(errors="replace").rstrip("\r\n") if line else None
        except EOFError:
            click.echo(err=True)
            return None
        except KeyboardInterrupt:
            click.echo("\nCtrl-D ends the chat", err=True)
        except UnicodeDecodeError:
            click.echo("that was not UTF-8; please type it again", err=True)


def _shown(terminal: Terminal, loop: Chat, question: str) -> Exchange:
    """Ask, and show the answer and what went wrong."""
    display = Shown(terminal)
    exchange = loop.ask(question, display)
    if display.has_spoken and not terminal.json:
        click.echo()
    for trouble in exchange.troubles:
        terminal.note(f"error: {trouble}", style="red")
    if exchange.error is not None and not terminal.json:
        kept = "; what was said so far is kept" if exchange.answer_stored else ""
        terminal.note(f"error: {exchange.error}{kept}", style="red")
    if exchange.error is None and exchange.tag:
        why = "Ctrl-C" if exchange.tag == INTERRUPTED else exchange.finish
        terminal.note(f"({exchange.tag}: {why})", style="yellow")
    return exchange


def _code(exchange: Exchange) -> int:
    if isinstance(exchange.error, ModelError | UsageError):
        return CANNOT_RUN
    whole = exchange.error is None and exchange.tag is None and not exchange.troubles
    return DONE if whole else IN_PART


def _answer_once(terminal: Terminal, loop: Chat, session: Session, question: str) -> int:
    if not question.strip():
        raise UsageError("--once: empty; ask something")
    exchange = _shown(terminal, loop, question)
    if terminal.json:
        terminal.emit(_as_json(exchange, session))
    return _code(exchange)


def _as_json(exchange: Exchange, session: Session) -> dict[str, Any]:
    hits = exchange.recalled.hits
    result: dict[str, Any] = {
        "answer": exchange.answer,
        "recalled": [
            {
                "session_id": hit.session_id,
                "turn_index": hit.turn_index,
                "role": hit.role,
                "content": hit.content,
                "score": hit.score,
            }
            for hit in hits
        ],
        "recalled_by": exchange.recalled.by,
        "stored": {"user": exchange.question_stored, "assistant": exchange.answer_stored},
        "tenant": session.tenant,
        "session_id": session.id,
        "turn_index": exchange.turn_index,
        "finish_reason": exchange.finish,
        "tag": exchange.tag,
        "degraded": [*exchange.recalled.degraded, *exchange.troubles],
    }
    if exchange.error is not None:
        result |= {"error": str(exchange.error), "type": type(exchange.error).__name__}
    return result
