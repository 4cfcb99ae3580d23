"""`scope-recall serve`: the query service, in the foreground."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import closing
from pathlib import Path

import click
import uvicorn

from producers.api_file import Announcement, announce, api_url
from producers.errors import Busy
from producers.logs import get_logger
from producers.settings import Settings
from producers.terminal import DONE, Terminal, command, examples
from query.api.app import create_app
from query.api.listening import listen, only_this_machine, url_of
from workers.queues import use_prefix
from workers.stores.catalog import Catalog
from workers.supervision.tree_state import mark_ready

GRACE_SECONDS = 10
"""What requests under way get when the service is stopped; twice the time that a recall takes by default."""
KEEP_ALIVE_SECONDS = 75
"""An idle connection is kept: longer than proxies keep theirs, so that none is closed while a request is on its way."""
WAIT_SECONDS = 5.0
"""Between two tries at a port that is taken."""

log = get_logger(__name__)


class Server(uvicorn.Server):
    """uvicorn's server; says once that it accepts connections, and where."""

    def __init__(self, config: uvicorn.Config, terminal: Terminal, url: str) -> None:
        super().__init__(config)
        self._terminal = terminal
        self._url = url
        self._announcement: Announcement | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        data_dir = self._terminal.settings.data_dir
        self._announce(data_dir)
        mark_ready(data_dir, "serve")
        self._terminal.note(f"serving on {self._url}")
        if self._terminal.json:
            self._terminal.emit({"url": self._url})

    def withdraw(self) -> None:
        """Nobody is to look for it here any more."""
        if self._announcement is not None:
            self._announcement.close()

    def _announce(self, data_dir: Path) -> None:
        try:
            self._announcement = announce(data_dir, self._url)
        except OSError as error:  # a full disk: the service can work, and who knows its URL can ask
            log.warning("api_file_not_written", reason=error.strerror)
            return
        if self._announcement is None:
            self._terminal.note(
                f"warning: another service of {data_dir} answers at {api_url(data_dir)}: clients on this machine find "
                "that one, and this one only where their url names it"
            )


@command(
    short_help="Run the query service: push and recall over HTTP.",
    epilog=examples("scope-recall serve", "scope-recall serve --host 0.0.0.0 --port 8421"),
)
@click.option("--host", "api_host", help="Address; others than loopback need a key.  [default: 127.0.0.1]")
@click.option("--port", "api_port", type=click.IntRange(0, 65535), help="Port; 0 picks a free one.  [default: 8420]")
@click.option("--wait", is_flag=True, hidden=True, help="Wait for a port that is taken.")
def serve(terminal: Terminal, wait: bool) -> int:
    """Take turns, answer recalls and forget over HTTP until SIGTERM or Ctrl-C; docs/service.md has the routes.

    `up` runs it already. It may start before anything is stored. Models are loaded once there is something, and stay.
    """
    use_prefix(terminal.settings)
    listener = _listener(terminal, wait=wait)
    config = uvicorn.Config(
        create_app(terminal.settings, loopback=only_this_machine(listener)),
        log_config=None,  # its logs go where ours go
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on what a caller says of its address
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = Server(config, terminal, url_of(listener))
    # uvicorn raises the signal again once it has stopped, which would end the process by it: exit 0 is the promise.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    try:
        server.run(sockets=[listener])
    finally:
        server.withdraw()
    return DONE


def _listener(terminal: Terminal, *, wait: bool) -> socket.socket:
    settings = terminal.settings
    while True:
        try:
            return listen(settings.api_host, settings.api_port, lambda: _has_keys(settings))
        except Busy as error:
            if not wait:
                raise
            terminal.note(f"error: {error}, --no-serve leaves it out; trying again every {WAIT_SECONDS:g} s")
            time.sleep(WAIT_SECONDS)


def _has_keys(settings: Settings) -> bool:
    with closing(Catalog.open(settings.catalog_location, create=True)) as catalog:
        return catalog.api_keys.ever(good=True)
