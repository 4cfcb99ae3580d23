"""The query service's routes, in memory, for tests of its clients; fails as it is told. Opens a local port."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from producers.errors import InvalidEvent
from producers.events import Identity, valid_event

Answer = tuple[int, Any, dict[str, str]]
"""Status, JSON, headers."""
HIT = {"session_id": "s", "turn_index": 3, "role": "user", "content": "said", "created_at": None, "new_field": [1]}
SESSION = {"session_id": "s", "turns": 2, "first": None, "last": "2026-01-31T09:00:00+00:00", "agents": ["a"]}
GROUP = {"day": None, "turns": 2, "times": 3}


class Service:
    """What it has got, and how it is to behave."""

    def __init__(self) -> None:
        self.url = ""
        self.reset()

    def reset(self) -> None:
        """As if it had just been started."""
        self.turns: dict[Identity, str] = {}
        self.bodies: list[Any] = []
        self.keys: list[str | None] = []
        self.first: list[Answer] = []
        """Answers given before the service does what it should."""
        self.most_turns = 10_000
        self.slow = 0.0
        """Seconds before each answer."""

    def push(self, body: dict[str, Any]) -> Answer:
        turns = body.get("turns", [body])
        if len(turns) > self.most_turns:
            return 413, {"title": "Too large", "status": 413, "error": f"turns: at most {self.most_turns}"}, {}
        results: list[dict[str, Any]] = []
        for turn in turns:
            try:
                event = valid_event(json.dumps(turn))
            except InvalidEvent as error:
                results.append({"status": "rejected", "field": "content", "reason": str(error)})
                continue
            if "refuse" in event.content:
                results.append({"status": "rejected", "field": "content", "reason": "it is not liked"})
                continue
            self.turns[event.identity] = event.content
            results.append({"status": "accepted", "key": event.key})
        return 202, {"results": results}, {}

    def recall(self, body: dict[str, Any]) -> Answer:
        if body.get("k") == 0:
            return 422, {"title": "Unprocessable", "status": 422, "error": "k: input should be at least 1, got 0"}, {}
        return 200, {"query": body["query"], "hits": [HIT], "context": f"<{body['query']}>", "later": {"x": 1}}, {}

    def forget(self, body: dict[str, Any]) -> Answer:
        if body.get("dry_run"):
            return 200, {"turns": len(self.turns), "sessions": 1, "dry_run": True}, {}
        gone = len(self.turns)
        self.turns.clear()
        return 200, {"turns": gone, "chunks": gone, "verified": True}, {}


def asked_in_path(request: Request) -> dict[str, Any]:
    """What a GET asks: its parameters, each a list."""
    return {name: request.query_params.getlist(name) for name in request.query_params} | request.path_params


def app_of(service: Service) -> FastAPI:
    app = FastAPI()

    def route(path: str, handle: Callable[[dict[str, Any]], Answer], method: str = "POST") -> None:
        async def answer(request: Request) -> Response:
            body = await request.json() if method == "POST" else asked_in_path(request)
            service.bodies.append(body)
            service.keys.append(request.headers.get("authorization"))
            await asyncio.sleep(service.slow)
            code, found, headers = service.first.pop(0) if service.first else handle(body)
            return JSONResponse(found, code, headers)

        app.add_api_route(path, answer, methods=[method], response_model=None)

    route("/v1/turns", service.push)
    route("/v1/recall", service.recall)
    route("/v1/forget", service.forget)
    route("/v1/sessions", lambda _: (200, {"sessions": [SESSION], "total": 7}, {}), "GET")
    turns = {"turns": [HIT], "total": 3, "left_out": 2}
    route("/v1/sessions/{session_id:path}/turns", lambda _: (200, turns, {}), "GET")
    route("/v1/count", lambda _: (200, {"turns": 2, "times": 3, "by": "day", "groups": [GROUP]}, {}), "GET")
    route(
        "/v1/status", lambda _: (200, {"degraded": ["a disk"], "catalog": {"turns": 7}, "api": {"url": "x"}}, {}), "GET"
    )
    return app


@contextmanager
def fake_service() -> Iterator[Service]:
    """A service in a thread, stopped at the end."""
    service = Service()
    with served(app_of(service)) as service.url:
        yield service


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The URL of an app that runs in a thread, stopped at the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    # asyncio sets it only on sockets that were made with IPPROTO_TCP; without it each answer takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join()
        listener.close()


@contextmanager
def raw_server(behave: Callable[[socket.socket, int], None]) -> Iterator[str]:
    """The URL of a server that treats its n-th connection, from 0, as `behave` says, and then closes it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        for number in range(1000):
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection, number), daemon=True).start()

    def serve(connection: socket.socket, number: int) -> None:
        with connection:
            try:
                connection.recv(65536)
                behave(connection, number)
            except OSError:
                return

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
