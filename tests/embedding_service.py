"""An OpenAI-compatible embedding service in a thread, for tests. Opens a local port."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from workers.embedding.hashing import HashingEmbedder

Answer = tuple[int, Any, dict[str, str]]
"""Status code, body (bytes as they are, anything else as JSON), headers."""


class Service(ThreadingHTTPServer):
    """An OpenAI-compatible service over the hashing embedder; `behave` answers in its place when set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behave: Callable[[list[str]], Answer | None] = lambda texts: None
        self.sizes: list[int] = []
        self.authorization: str | None = None
        self.cut_answers = False
        """Close each connection in the middle of the answer."""
        self.seconds_a_byte = 0.0
        """Send answers byte by byte, this far apart."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/"


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        texts = body["input"]
        self.server.sizes.append(len(texts))
        self.server.authorization = self.headers.get("authorization")
        code, answer, headers = self.server.behave(texts) or (200, answer_for(texts), {})
        payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(code if self.path == "/v1/embeddings" else 404)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self._send(payload[: len(payload) // 2] if self.server.cut_answers else payload)

    def _send(self, payload: bytes) -> None:
        while payload and self.server.seconds_a_byte:
            self.wfile.write(payload[:1])
            payload = payload[1:]
            time.sleep(self.server.seconds_a_byte)
        self.wfile.write(payload)

    def handle(self) -> None:
        """A client that has given up is no news."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Tests are quiet."""


def answer_for(texts: list[str]) -> dict[str, Any]:
    vectors = HashingEmbedder().embed_passages(texts) * 3  # a service need not normalise
    items = [{"index": at, "embedding": vector.tolist()} for at, vector in enumerate(vectors)]
    return {"data": items[::-1]}  # nor keep the order


@contextmanager
def running_service() -> Iterator[Service]:
    with Service() as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield service
        service.shutdown()
