"""The query service as the plug-in asks it, in a thread, for tests that need no store. Opens a local port."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, Any]]


class FakeService(ThreadingHTTPServer):
    """Remembers bodies by path; `answer` decides, after `delay` seconds."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: Callable[[str, dict[str, Any]], Answer] = accept
        self.delay = 0.0
        self.authorization: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for asked, body in self.asked if asked == path and body.get("query") != "warm up"]


def accept(path: str, body: dict[str, Any]) -> Answer:
    if path == "/v1/turns":
        return 202, {"results": [{"status": "accepted", "key": "k"} for _ in body["turns"]]}
    if path == "/v1/forget":
        return 200, {"turns": 2, "chunks": 3, "verified": not body["dry_run"]}
    hit = {"session_id": "old#1", "turn_index": 4, "role": "user", "content": "said before", "created_at": None}
    return 200, {"hits": [hit], "context": "<recalled-memory>\nsaid before\n</recalled-memory>"}


class _Handler(BaseHTTPRequestHandler):
    server: FakeService

    def do_GET(self) -> None:
        self._send(200, {"status": "ok"})

    def do_POST(self) -> None:
        payload = self.rfile.read(int(self.headers["content-length"]))
        if not payload:
            return  # the client went away between head and body
        body = json.loads(payload)
        self.server.asked.append((self.path, body))
        self.server.authorization = self.headers.get("authorization")
        time.sleep(self.server.delay)
        self._send(*self.server.answer(self.path, body))

    def _send(self, code: int, answer: dict[str, Any]) -> None:
        payload = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def handle(self) -> None:
        """A client that has given up is no news."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Tests are quiet."""


@contextmanager
def fake_service() -> Iterator[FakeService]:
    with FakeService() as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield service
        service.shutdown()
