"""`scope-recall serve`: the query service, in the foreground."""

from __future__ import annotations

import signal
import socket

import click
import uvicorn

from producers.terminal import DONE, Terminal, command, examples
from query.api.access import listen, url_of
from query.api.app import create_app

GRACE_SECONDS = 10
"""What requests under way get when the service is stopped; twice the time that a recall takes by default."""


class Server(uvicorn.Server):
    """uvicorn's server; says once that it accepts connections."""

    def __init__(self, config: uvicorn.Config, terminal: Terminal, url: str) -> None:
        super().__init__(config)
        self._terminal = terminal
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._terminal.note(f"serving on {self._url}")
        if self._terminal.json:
            self._terminal.emit({"url": self._url})


@command(
    short_help="Run the query service: recall over HTTP.",
    epilog=examples("scope-recall serve", "SCOPE_RECALL_API_KEY=... scope-recall serve --host 0.0.0.0"),
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address; others than loopback need an api_key.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8420, show_default=True, help="Port; 0 picks a free one."
)
def serve(terminal: Terminal, host: str, port: int) -> int:
    """Answer recalls over HTTP until SIGTERM or Ctrl-C: POST /v1/recall, GET /healthz.

    It reads the stores only, and may start before anything is stored. Models are loaded at the first question and stay.
    """
    listener = listen(host, port, terminal.settings)
    config = uvicorn.Config(
        create_app(terminal.settings),
        log_config=None,  # its logs go where ours go
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = Server(config, terminal, url_of(listener))
    # uvicorn raises the signal again once it has stopped, which would end the process by it: exit 0 is the promise.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    server.run(sockets=[listener])
    return DONE
