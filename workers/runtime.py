"""What stays resident in a worker process: settings, connection, encoder and stores. Built once, before the first job.

RQ calls jobs by name with JSON arguments, so this is where a job finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event

import redis

from producers.errors import SettingsError
from producers.settings import Settings
from workers.embedding.port import Embedder
from workers.embedding.registry import load_embedder
from workers.ingest import Pipeline
from workers.stores.catalog import Catalog
from workers.stores.lance_connection import WRITER_CACHE
from workers.stores.space import Space
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VectorStore
from workers.upkeep import Upkeep

DEFAULT_CHUNK_TOKENS = 512
"""A model that reads more at once still finds better in chunks of this size: one vector cannot say many things."""


class GiveBack(Exception):
    """The batch goes back to the stream and its delivery does not count: the waiting was cut short, nothing failed."""


class StepAside(Exception):
    """Live turns have come: the backfill batch is queued again, in front, and what it has computed is kept."""


@dataclass(frozen=True)
class Runtime:
    """The resident parts."""

    settings: Settings
    client: redis.Redis
    consumer: str
    stopping: Event
    pipeline: Pipeline | None
    """None in a maintenance worker, which embeds nothing."""
    upkeep: Upkeep | None
    """None likewise."""

    def wait(self, seconds: float) -> None:
        """Sleep; raises `GiveBack` as soon as the worker is asked to stop."""
        if self.stopping.wait(seconds):
            raise GiveBack("the worker is stopping")


_runtime: Runtime | None = None


def install(resident: Runtime) -> None:
    """Make `resident` what `runtime()` returns in this process."""
    global _runtime
    _runtime = resident


def runtime() -> Runtime:
    """The resident parts of this worker process."""
    if _runtime is None:
        raise RuntimeError("this job runs outside a scope-recall worker: start one with `scope-recall worker`")
    return _runtime


def space_of(embedder: Embedder, settings: Settings) -> Space:
    """The space that these settings and this embedder make.

    Raises `SettingsError` when a chunk would be longer than what the embedder reads, or share all of itself.
    """
    tokens = settings.chunk_tokens or min(embedder.max_tokens, DEFAULT_CHUNK_TOKENS)
    if tokens > embedder.max_tokens:
        raise SettingsError(
            f"chunk_tokens {tokens} is over what embedder {embedder.name} reads at once, {embedder.max_tokens} tokens; "
            "lower it, or leave it unset"
        )
    overlap = settings.chunk_overlap
    if "chunk_overlap" not in settings.model_fields_set:
        overlap = min(overlap, tokens // 4)
    elif overlap >= tokens:
        raise SettingsError(f"chunk_overlap {overlap} must be below chunk_tokens {tokens}")
    return Space(embedder.name, embedder.dimension, tokens, overlap)


def following(active: StoredSpace | None, settings: Settings) -> Settings:
    """The settings, with embedder and chunk sizes as the active space has them where nobody set them. Pure."""
    if active is None:
        return settings
    made_by = {
        "embedder": active.setting,
        "chunk_tokens": active.space.chunk_tokens,
        "chunk_overlap": active.space.chunk_overlap,
    }
    unsaid = {name: value for name, value in made_by.items() if name not in settings.model_fields_set}
    return settings.model_copy(update=unsaid)


def build_ingest(settings: Settings, client: redis.Redis) -> tuple[Pipeline, Upkeep]:
    """Load the encoder, open the stores, and make sure that the catalog's vectors are this encoder's."""
    catalog = Catalog.open(settings.catalog_location, create=True)
    settings = following(catalog.spaces.active(), settings)
    embedder = load_embedder(settings.embedder, settings)
    space = space_of(embedder, settings)
    catalog.spaces.adopt(StoredSpace(space, settings.embedder, embedder.scripts))
    vectors = VectorStore(settings.vectors_location, WRITER_CACHE)
    vectors.connect()  # loads LanceDB, seconds of work, before this worker holds a batch that others could store
    return Pipeline(catalog, vectors, embedder, space), Upkeep(client, settings, vectors, space)
