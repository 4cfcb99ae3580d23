"""docker-compose.yml: valid for Docker Compose, and every command and setting in it is one that this project has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from producers.settings import ENV_PREFIX, Settings
from query.cli import main

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = sorted(name for name, service in SERVICES.items() if str(service["image"]).startswith("scope-recall-hermes"))


def compose_schema() -> dict[str, Any]:
    """The Compose specification's own JSON schema, as the check-jsonschema package ships it."""
    path = distribution("check-jsonschema").locate_file("check_jsonschema/builtin_schemas/vendor/compose-spec.json")
    schema: dict[str, Any] = json.loads(Path(str(path)).read_text(encoding="utf-8"))
    return schema


def assert_parses(arguments: list[str]) -> None:
    """Parse without running; click raises UsageError at an unknown option or a value of the wrong type."""
    root = click.Context(main, info_name="scope-recall")
    command = main.get_command(root, arguments[0])
    assert command is not None, f"scope-recall has no command {arguments[0]!r}"
    command.make_context(arguments[0], arguments[1:], parent=root)


def assert_parses_group(arguments: list[str]) -> None:
    """The same for a command of a group."""
    group = main.get_command(click.Context(main), arguments[0])
    assert isinstance(group, click.Group)
    command = group.commands[arguments[1]]
    command.make_context(arguments[1], arguments[2:])


def test_the_file_is_valid_against_the_compose_specification() -> None:
    schema = compose_schema()
    jsonschema.validators.validator_for(schema).check_schema(schema)
    jsonschema.validate(COMPOSE, schema)


def test_the_schema_refuses_a_misspelt_key() -> None:
    broken = {"services": {"redis": {"image": "redis:8", "helthcheck": {}}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, compose_schema())


def test_all_parts_of_the_system_are_there() -> None:
    assert set(SERVICES) == {"redis", "intake", "worker", "maintenance", "scheduler", "serve"}
    assert set(OURS) == set(SERVICES) - {"redis"}


@pytest.mark.parametrize("name", OURS)
def test_command_and_health_check_parse_with_the_command_line(name: str) -> None:
    assert_parses(SERVICES[name]["command"])
    how, program, *arguments = SERVICES[name]["healthcheck"]["test"]
    assert (how, program, arguments[0]) == ("CMD", "python", "-c")
    compile(arguments[1], "healthcheck", "exec")
    if name == "serve":
        assert f"http://127.0.0.1:{SERVICES[name]['command'][-1]}/healthz" in arguments[1]


def test_the_health_check_of_a_part_is_whether_redis_answers(live_settings: Settings) -> None:
    script = SERVICES["worker"]["healthcheck"]["test"][-1]
    answers = []
    for given in (live_settings.as_environment(), {"SCOPE_RECALL_REDIS_URL": "redis://127.0.0.1:1/0"}):
        command = [sys.executable, "-c", script]
        answers.append(subprocess.run(command, env=os.environ | given, capture_output=True, check=False).returncode)
    assert answers == [0, 1]


@pytest.mark.parametrize("name", OURS)
def test_every_service_of_ours_is_the_same_image_on_the_same_stores(name: str) -> None:
    service, first = SERVICES[name], SERVICES[OURS[0]]
    for key in ("image", "build", "volumes", "restart", "stop_grace_period"):
        assert service[key] == first[key], key
    assert {**first["environment"], **service["environment"]} == service["environment"]
    assert service["depends_on"] == {"redis": {"condition": "service_healthy"}}
    assert service["init"] is True
    assert service["environment"][f"{ENV_PREFIX}DATA_DIR"] == service["volumes"][0].partition(":")[2]


def test_every_setting_named_in_compose_file_and_dockerfile_exists() -> None:
    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("docker-compose.yml", "Dockerfile"))
    named = set(re.findall(rf"{ENV_PREFIX}([A-Z_]+)", text))
    assert {"REDIS_URL", "DATA_DIR"} <= named
    assert {name.lower() for name in named} <= set(Settings.model_fields)


def test_redis_keeps_accepted_turns_on_disk_and_never_evicts() -> None:
    program, *options = SERVICES["redis"]["command"]
    assert program == "redis-server"
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert given["--appendonly"] == "yes"
    assert given["--appendfsync"] == "always"
    assert given["--aof-use-rdb-preamble"] == "no", "or forgotten turns stay in its file"
    assert given["--maxmemory-policy"] == "noeviction"
    assert "/data" in {volume.partition(":")[2] for volume in SERVICES["redis"]["volumes"]}


def test_only_this_host_reaches_a_published_port() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_query_service_asks_for_a_key_and_the_file_says_how_to_make_one() -> None:
    serve = SERVICES["serve"]["command"]
    assert serve[serve.index("--host") + 1] == "0.0.0.0", "which the service refuses without a key"
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    made = re.search(r"docker compose run --rm serve (keys create --tenant NAME)", text)
    assert made is not None
    assert_parses_group(made[1].split())


def test_every_volume_used_is_declared() -> None:
    used = {volume.partition(":")[0] for service in SERVICES.values() for volume in service["volumes"]}
    assert used == set(COMPOSE["volumes"])


def test_the_image_does_not_run_as_root() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    users = re.findall(r"^USER (\S+)$", dockerfile, flags=re.MULTILINE)
    assert users
    assert users[-1] not in ("root", "0")
    assert 'ENTRYPOINT ["scope-recall"]' in dockerfile
