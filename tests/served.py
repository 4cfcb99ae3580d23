"""The query service for tests: a small real data dir, and a real server in its own process over it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx

from producers.api_file import api_url
from producers.events import TurnEvent
from producers.settings import Settings, load_settings
from system import Cli
from workers.embedding.registry import load_embedder
from workers.ingest import Arrival, Pipeline
from workers.runtime import space_of
from workers.stores.api_keys import DEFAULT_RIGHTS, Right
from workers.stores.catalog import Catalog
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VectorStore

LOOPBACK = "http://127.0.0.1"
"""Base URL of a test's client: without a key the service answers under no other name."""
LOGGED = {"event", "level", "timestamp", "request_id", "method", "path", "status", "ms", "key"}
"""All that a log line of a request holds."""
TURNS = [
    ("acme", "ops", "the proxy listens on port 8080"),
    ("acme", "food", "lunch is at noon"),
    ("acme", "desk", "the printer is on the second floor"),
    ("other", "ops", "our proxy uses port 9999"),
]
"""(tenant, session, content)"""


def settings_of(data_dir: Path) -> Settings:
    """As `Cli` has them."""
    return load_settings(data_dir=data_dir, embedder="hashing", reranker="none")


def fill(data_dir: Path, turns: list[tuple[str, str, str]] = TURNS) -> None:
    """Store the turns as a worker would."""
    settings = settings_of(data_dir)
    embedder = load_embedder(settings.embedder, settings)
    space = space_of(embedder, settings)
    with closing(Catalog.open(settings.catalog_location, create=True)) as catalog:
        catalog.spaces.adopt(StoredSpace(space, settings.embedder, embedder.scripts))
        pipeline = Pipeline(catalog, VectorStore(settings.vectors_location), embedder, space)
        for order, (tenant, session, content) in enumerate(turns):
            said = {"tenant": tenant, "session_id": session, "turn_index": 0, "role": "user", "content": content}
            pipeline.store([Arrival(TurnEvent.model_validate(said), f"{order:04}")])


def make_key(data_dir: Path, tenant: str, *rights: Right) -> tuple[str, str]:
    """(id, text) of a new key."""
    with closing(Catalog.open(settings_of(data_dir).catalog_location, create=True)) as catalog:
        key, text = catalog.api_keys.create(tenant, rights or DEFAULT_RIGHTS)
    return key.id, text


@contextmanager
def served(data_dir: Path, *arguments: str, end: int = signal.SIGTERM, **environment: str) -> Iterator[httpx.Client]:
    """A client of `scope-recall serve` on a free port; checks what it says and that it ends cleanly."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "query.cli", "serve", "--port", "0", "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=Cli(data_dir, environment).full_environment(),
        text=True,
    )
    assert process.stdout
    try:
        first = process.stdout.readline()
        assert first, process.communicate()
        url = json.loads(first)["url"]
        assert api_url(data_dir) == url
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
            yield client
    finally:
        process.send_signal(end)
        out, err = process.communicate(timeout=40)
    assert process.returncode == 0, err
    first, *logged = err.splitlines()
    assert (out, first) == ("", f"serving on {url}"), err
    for line in map(json.loads, logged):  # a request that failed for the service's own reason, and none of its words
        assert line.keys() <= LOGGED, line
        assert (line["event"], line["status"]) == ("request", 503)
    assert api_url(data_dir) is None
