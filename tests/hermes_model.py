"""A loopback model server for the real Hermes: OpenAI's chat completions, streamed or not. Opens a local port."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Call = tuple[str, dict[str, Any]]
"""A tool's name and arguments."""


class Model(ThreadingHTTPServer):
    """Answers each request as `reply` says: a text, or a tool call; and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply: Callable[[list[dict[str, Any]]], str | Call] = lambda messages: "Noted."
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def prompts(self, text: str) -> list[str]:
        """All that was sent, as JSON, of each request whose last user message holds `text`."""
        return [json.dumps(request, ensure_ascii=False) for request in self.requests if text in _last(request)]


def _last(request: dict[str, Any]) -> str:
    said = [message for message in request["messages"] if message["role"] == "user"]
    return json.dumps(said[-1]["content"], ensure_ascii=False) if said else ""


class _Handler(BaseHTTPRequestHandler):
    server: Model

    def do_GET(self) -> None:
        self._send(json.dumps({"object": "list", "data": [{"id": "fake", "object": "model"}]}).encode())

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.path.endswith("/chat/completions"):  # Hermes asks which kind of server this is
            self.send_error(404)
            return
        self.server.requests.append(request)
        reply = self.server.reply(request["messages"])
        message: dict[str, Any] = {"role": "assistant", "content": reply if isinstance(reply, str) else None}
        if not isinstance(reply, str):
            function = {"name": reply[0], "arguments": json.dumps(reply[1])}
            message["tool_calls"] = [{"index": 0, "id": "call_1", "type": "function", "function": function}]
        reason = "stop" if isinstance(reply, str) else "tool_calls"
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        base = {"id": "chatcmpl-1", "created": 1, "model": "fake", "usage": usage}
        if request.get("stream"):
            chunks = [
                {**base, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": message}]},
                {**base, "object": "chat.completion.chunk", "choices": [_end(reason)]},
            ]
            lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]
            self._send("".join(lines).encode(), "text/event-stream")
        else:
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self._send(json.dumps({**base, "object": "chat.completion", "choices": [choice]}).encode())

    def _send(self, payload: bytes, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def handle(self) -> None:
        """A client that has given up is no news."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Tests are quiet."""


def _end(reason: str) -> dict[str, Any]:
    return {"index": 0, "delta": {}, "finish_reason": reason}


@contextmanager
def running_model() -> Iterator[Model]:
    with Model() as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        yield model
        model.shutdown()
