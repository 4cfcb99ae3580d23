"""A call in a process of its own: results and errors come back, and a process that dies is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from producers.errors import NotReady, SettingsError
from producers.settings import load_settings
from query.evaluation.in_child import in_child

pytestmark = pytest.mark.integration


def test_the_result_comes_back_from_another_process() -> None:
    assert in_child(os.getpid) != os.getpid()


def test_an_error_of_the_project_is_raised_as_if_here() -> None:
    with pytest.raises(SettingsError, match=r"/nowhere/x\.toml: No such file"):
        in_child(load_settings, Path("/nowhere/x.toml"))


def test_a_process_that_dies_is_named_with_how_it_ended() -> None:
    with pytest.raises(NotReady, match="the process of _exit ended: exit code 3"):
        in_child(os._exit, 3)
