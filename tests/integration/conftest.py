"""A stepped system on a real Redis, with a short lease."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from producers.settings import Settings
from stepped import Stepped


@pytest.fixture
def system(live_settings: Settings) -> Stepped:
    return Stepped(live_settings.model_copy(update={"lease": 1.0, "batch_wait": 0.0}))


@pytest.fixture
def make_system(live_settings: Settings) -> Callable[..., Stepped]:
    return lambda **changes: Stepped(live_settings.model_copy(update={"lease": 1.0, "batch_wait": 0.0, **changes}))
