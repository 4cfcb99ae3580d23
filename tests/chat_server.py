"""An OpenAI-compatible chat server in a thread, for tests; misbehaves as it is told. Opens a local port."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

MODEL = "fake"
ANSWER = "Noted, 记住了 🦓."


class ChatServer(ThreadingHTTPServer):
    """Answers with `ANSWER` in pieces; `behave` takes the place of that when set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.behave: Callable[[_Handler], None] = streams()
        self.released = threading.Event()
        """Ends every hang."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def prompt(self) -> str:
        """All that the last request said to the model."""
        return "\n".join(message["content"] for message in self.requests[-1]["messages"])


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer
    protocol_version: ClassVar[str] = "HTTP/1.1"

    def do_POST(self) -> None:
        self.server.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.server.keys.append(self.headers["authorization"])
        self.server.behave(self)

    def do_GET(self) -> None:
        self.answer(200, {"data": [{"id": MODEL}, {"id": "other"}]})

    def answer(self, code: int, body: Any, **headers: str) -> None:
        """One whole answer; bytes go as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        kind = "text/html" if isinstance(body, bytes) else "application/json"
        for name, value in {"content-type": kind, "content-length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def begin(self) -> None:
        """A stream begins."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def send(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def handle(self) -> None:
        """A client that has given up is no news."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


def delta(text: str, **fields: Any) -> bytes:
    """One event of a stream."""
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None, **fields}]}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


def streams(*events: bytes, cut: int = 7, pause: float = 0.0) -> Callable[[_Handler], None]:
    """Stream these events, or `ANSWER` word by word, in chunks of `cut` bytes, whatever they cut through."""
    said = [delta(word + " ") for word in ANSWER.split()[:-1]] + [delta(ANSWER.split()[-1], finish_reason="stop")]
    data = b"".join(events or [*said, b"data: [DONE]\n\n"])

    def behave(handler: _Handler) -> None:
        handler.begin()
        for start in range(0, len(data), cut):
            handler.send(data[start : start + cut])
            time.sleep(pause)
        handler.end()

    return behave


def fails(code: int, body: Any = None, **headers: str) -> Callable[[_Handler], None]:
    """Answer with a status."""
    return lambda handler: handler.answer(
        code, {"error": {"message": "it is broken"}} if body is None else body, **headers
    )


def hangs(*events: bytes) -> Callable[[_Handler], None]:
    """Stream these events, if any, and then say nothing."""

    def behave(handler: _Handler) -> None:
        if events:
            handler.begin()
            handler.send(b"".join(events))
        handler.server.released.wait(30)
        handler.close_connection = True

    return behave


def breaks_off(*events: bytes) -> Callable[[_Handler], None]:
    """Stream these events and close the connection in the middle."""

    def behave(handler: _Handler) -> None:
        handler.begin()
        handler.send(b"".join(events))
        handler.close_connection = True

    return behave


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """A server in a thread, stopped at the end."""
    with ChatServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()
