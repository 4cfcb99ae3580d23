"""A real rerank endpoint on this machine, for the tests of the HTTP reranker. Does network I/O on the loopback."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


class RerankServer(ThreadingHTTPServer):
    """Scores a text by the words it shares with the query; `answer` overrides, `dialect` is the field it knows."""

    daemon_threads = True
    dialect = "documents"
    status = 200
    delay = 0.0
    answer: object = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/rerank"


class _Handler(BaseHTTPRequestHandler):
    server: RerankServer
    protocol_version: ClassVar[str] = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        self.server.keys.append(self.headers["Authorization"])
        time.sleep(self.server.delay)
        texts = body.get(self.server.dialect)
        if texts is None or self.server.status != 200:
            status, payload = (422 if texts is None else self.server.status), {"error": "unknown field or broken"}
        else:
            status, payload = 200, self.server.answer if self.server.answer is not None else self._rank(body, texts)
        data = json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data)
        except ConnectionError:
            self.close_connection = True  # the client gave up at its deadline

    def _rank(self, body: dict[str, Any], texts: list[str]) -> Any:
        words = set(body["query"].split())
        scored = sorted(((len(words & set(text.split())), index) for index, text in enumerate(texts)), reverse=True)
        if self.server.dialect == "texts":
            return [{"index": index, "score": score} for score, index in scored]
        return {"results": [{"index": index, "relevance_score": score} for score, index in scored]}

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


@contextmanager
def running_server() -> Iterator[RerankServer]:
    """A server in a thread, stopped at the end."""
    server = RerankServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
