"""Who may reach the query service: the addresses it listens on and the key it asks for. Does I/O: one socket."""

from __future__ import annotations

import hmac
import ipaddress
import socket

from producers.errors import UsageError
from producers.settings import ENV_PREFIX, Settings

KEY_VARIABLE = f"{ENV_PREFIX}API_KEY"


def listen(host: str, port: int, settings: Settings) -> socket.socket:
    """A socket listening on `host`; port 0 picks a free one.

    Raises `UsageError` when the address cannot be used, and when others could reach it although no key is set.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # What is checked is the address that is bound, whatever a name means later.
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        address = str(found[0][4][0])
        # A link-local IPv6 address carries its interface: fe80::1%eth0.
        if settings.api_key is None and not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            raise UsageError(
                f"--host {host}: others can reach this address, and without a key they could read every tenant's "
                f"memory. Set {KEY_VARIABLE} to a long random key, or serve on 127.0.0.1"
            )
        return socket.create_server((address, port), family=family)
    except (OSError, UnicodeError) as error:  # UnicodeError: a host that cannot be a name: "a..b"
        reason = error.strerror if isinstance(error, OSError) else None
        raise UsageError(
            f"--host {host} --port {port}: cannot listen there: {reason or error}. "
            "Name an address of this machine and a free port; --port 0 picks one"
        ) from None


def url_of(listener: socket.socket) -> str:
    """The URL of what `listener` serves."""
    address, port = listener.getsockname()[:2]
    return f"http://[{address}]:{port}" if listener.family == socket.AF_INET6 else f"http://{address}:{port}"


def key_matches(header: str | None, api_key: str) -> bool:
    """Whether an `Authorization` header carries the key (RFC 6750); takes the same time wherever they differ."""
    scheme, _, given = (header or "").partition(" ")
    # Header text is the bytes that came, read as Latin-1.
    same = hmac.compare_digest(given.strip().encode("latin-1"), api_key.encode())
    return same and scheme.lower() == "bearer"
