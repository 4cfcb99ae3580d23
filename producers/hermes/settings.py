"""The plug-in's own settings, in `$HERMES_HOME/scope-recall.json`. Reads and writes that file.

All have a default that works with a `scope-recall up` on the same machine. Where Redis and the data dir are is taken
from the `SCOPE_RECALL_*` environment of Hermes, as by every other producer, unless the file says otherwise.
"""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from producers.api_file import api_url
from producers.errors import SettingsError
from producers.settings import ENV_PREFIX, Settings, load_settings

FILE = "scope-recall.json"
FOLDER = "scope-recall"
"""What the plug-in keeps itself, inside the home: Hermes' own backup takes it along."""
KEY_VARIABLE = f"{ENV_PREFIX}SERVICE_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8420"
APPEND_SECONDS = 2.0
"""What `sync_turn` waits at high water before the turn goes to the spool: Hermes gives all of them 5 s at its end."""


class HermesSettings(BaseModel):
    """Frozen; texts are read as numbers and truth values where those are due, since Hermes' set-up asks for texts."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    transport: Literal["stream", "http"] = Field(
        "stream", description="How turns leave: onto the Redis stream, or to the service over HTTP."
    )
    url: str = Field("", description="The service's URL; empty: the one that `scope-recall up` runs on this machine.")
    redis_url: str = Field("", description="Redis for the stream; empty: that of `scope-recall up` on this machine.")
    data_dir: str = Field("", description="scope-recall's data dir; empty: its default.")
    tenant: str = Field(
        "", max_length=256, description="One tenant for all people, kept apart by agent id; empty: a tenant each."
    )
    budget_ms: int = Field(1500, ge=50, le=7000, description="Longest wait for recall before a turn, in ms.")
    k: int = Field(5, ge=1, le=50, description="Turns recalled before a turn.")
    min_score: float = Field(0.0, ge=0, le=1, description="Confidence below which a turn is not recalled; 0: all.")
    redact: bool = Field(True, description="Replace what looks like a key or a password before it leaves.")

    def common(self) -> Settings:
        """The settings that all producers share, as this plug-in uses them. Raises `SettingsError`."""
        found = load_settings(data_dir=self.data_dir or None, redis_url=self.redis_url or None)
        wait = min(found.append_timeout, APPEND_SECONDS)
        return found.model_copy(update={"append_timeout": wait, "spool": True})

    def service_url(self, data_dir: Path) -> str:
        """Where the service listens, as far as this machine knows."""
        return (self.url or api_url(data_dir) or DEFAULT_URL).rstrip("/")


def load(home: Path) -> HermesSettings:
    """Of a Hermes home; the defaults where there is no file. Raises `SettingsError` naming file, setting and value."""
    path = home / FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        values = {}
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise SettingsError(f"{path}: not valid JSON: {error}") from None
    return _parse(values, path)


def save(values: dict[str, Any], home: Path) -> HermesSettings:
    """Put `values` over what the file says; an empty text takes a setting back to its default. Raises `SettingsError`.

    The file is replaced as a whole: a reader never sees half of it.
    """
    path = home / FILE
    kept = load(home).model_dump(exclude_unset=True)
    kept = {name: value for name, value in (kept | values).items() if value is not None and value != ""}
    parsed = _parse(kept, path)
    text = json.dumps(parsed.model_dump(exclude_unset=True), indent=2, ensure_ascii=False) + "\n"
    home.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
    return parsed


def schema() -> list[dict[str, Any]]:
    """The fields as `hermes memory setup` asks for them."""
    fields: list[dict[str, Any]] = []
    for name, info in HermesSettings.model_fields.items():
        field = {"key": name, "description": info.description, "default": _shown(info.default)}
        if name == "transport":
            field["choices"] = ["stream", "http"]
        if name == "redact":
            field["choices"] = ["true", "false"]
        fields.append(field)
    key = {"key": "api_key", "description": "The service's key, if it asks for one.", "env_var": KEY_VARIABLE}
    return [*fields, key | {"secret": True, "required": False}]


def _shown(default: Any) -> Any:
    return str(default).lower() if isinstance(default, bool) else default


def _parse(values: Any, path: Path) -> HermesSettings:
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: a JSON object is due, such as {{}}")
    for name in values:
        if name not in HermesSettings.model_fields:
            near = difflib.get_close_matches(name, HermesSettings.model_fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(HermesSettings.model_fields)}"
            raise SettingsError(f"{path}: unknown setting {name!r}{hint}")
    try:
        return HermesSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise SettingsError(f"{path}: setting {name} = {first['input']!r}: {first['msg']}") from None
