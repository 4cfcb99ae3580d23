"""What stays resident in a worker process: settings, connection, encoder and stores. Built once, before the first job.

RQ calls jobs by name with JSON arguments, so this is where a job finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event

import redis

from producers.errors import SettingsError
from producers.settings import Settings
from workers.embedding.port import Embedder
from workers.embedding.registry import load_embedder
from workers.encoding import load_model
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


@dataclass
class Share:
    """What a backfill batch may take while live turns wait, because it was its turn."""

    seconds: float = 0.0


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
    share: Share = field(default_factory=Share)
    """Of the job at hand."""

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


def stopping() -> bool:
    """Whether this process is a worker that is asked to stop."""
    return _runtime is not None and _runtime.stopping.is_set()


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


MADE_BY = ("embedder", "chunk_tokens", "chunk_overlap")
"""The settings that make a space."""


def following(active: StoredSpace | None, settings: Settings, beside: Sequence[StoredSpace] = ()) -> Settings:
    """The settings, with embedder and chunk sizes as the active space has them where nobody set them. Pure.

    What was set is taken for what was meant, unless it is what one of the spaces `beside` was made by: then reads were
    switched, or will be, and the setting is only behind.
    """
    if active is None:
        return settings
    behind = not agrees(active, settings) and any(agrees(one, settings) for one in beside)
    made_by = _made_by(active)
    taken = {name: value for name, value in made_by.items() if behind or name not in settings.model_fields_set}
    return settings.model_copy(update=taken)


def agrees(stored: StoredSpace, settings: Settings) -> bool:
    """Whether every setting that was given and makes a space is the one that made this space. Pure."""
    given = settings.model_fields_set.intersection(MADE_BY)
    return all(getattr(settings, name) == _made_by(stored)[name] for name in given)


def _made_by(stored: StoredSpace) -> dict[str, object]:
    space = stored.space
    return dict(zip(MADE_BY, (stored.setting, space.chunk_tokens, space.chunk_overlap), strict=True))


def build_ingest(settings: Settings, client: redis.Redis) -> tuple[Pipeline, Upkeep]:
    """Load the encoders, open the stores, and make sure that the catalog's vectors are these settings' own."""
    catalog = Catalog.open(settings.catalog_location, create=True)
    written = catalog.spaces.written()
    wanted = following(catalog.spaces.active(), settings, written)
    embedder = load_embedder(wanted.embedder, settings)
    # The model may have several names; the chunk sizes are those of its own space, of the active one first.
    same = sorted((one for one in written if one.space.embedder == embedder.name), key=lambda one: one.state)
    space = space_of(embedder, following(same[0], settings, written) if same else settings)
    catalog.spaces.adopt(StoredSpace(space, wanted.embedder, embedder.scripts))
    vectors = VectorStore(settings.vectors_location, WRITER_CACHE)
    vectors.connect()  # loads LanceDB, seconds of work, before this worker holds a batch that others could store
    pipeline = Pipeline(catalog, vectors, embedder, space, lambda stored: load_model(stored, settings))
    pipeline.refresh()  # the models of other spaces, also before it holds a batch
    return pipeline, Upkeep(client, settings, vectors, space)
