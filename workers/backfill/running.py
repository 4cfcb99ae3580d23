"""One import at a time on a data dir: two would give the same turns different places. Does I/O: a lock file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from producers.errors import NotReady
from producers.settings import Settings

LOCK = "backfill.lock"


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Held while an import runs, and let go by the kernel when it dies. Raises `NotReady` when another one runs."""
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = settings.data_dir / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise NotReady(
                f"another import runs on {settings.data_dir} (pid {holder}): wait for it, or stop it; what it has "
                "imported is recorded"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)
