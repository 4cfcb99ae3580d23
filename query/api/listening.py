"""The addresses that the query service listens on. Does I/O: one socket, and the catalog when others could reach it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

from producers.errors import Busy, UsageError
from query.api.access import HOW_TO_CREATE, is_loopback


def listen(host: str, port: int, has_keys: Callable[[], bool]) -> socket.socket:
    """A socket listening on `host`; port 0 picks a free one.

    Raises `Busy` when the port is taken, `UsageError` when the address cannot be used, and when others could reach it
    although there is no key.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # What is checked is the address that is bound, whatever a name means later.
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        address = str(found[0][4][0])
        if not is_loopback(address) and not has_keys():
            raise UsageError(
                f"--host {host}: others can reach this address, and without keys they could read every tenant's "
                f"memory. {HOW_TO_CREATE}; or serve on 127.0.0.1"
            )
        listener = socket.create_server((address, port), family=family)
        # asyncio does it only for sockets it knows to be TCP; without it an answer waits 40 ms for an acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, UnicodeError) as error:  # UnicodeError: a host that cannot be a name: "a..b"
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        reason = error.strerror if isinstance(error, OSError) else None
        raise (Busy if taken else UsageError)(
            f"--host {host} --port {port}: cannot listen there: {reason or error}. Name an address of this machine "
            "and a free port (api_port, SCOPE_RECALL_API_PORT); --port 0 picks one"
        ) from None


def url_of(listener: socket.socket) -> str:
    """The URL of what `listener` serves."""
    address, port = listener.getsockname()[:2]
    return f"http://[{address}]:{port}" if listener.family == socket.AF_INET6 else f"http://{address}:{port}"


def only_this_machine(listener: socket.socket) -> bool:
    """Whether nobody else can reach `listener`."""
    return is_loopback(listener.getsockname()[0])
