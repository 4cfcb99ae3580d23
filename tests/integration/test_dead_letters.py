"""Dead letters: who becomes one, what it tells, and what replaying and dropping very many of them costs."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from click.testing import CliRunner

from producers.errors import PoisonError, UsageError
from producers.settings import Settings
from stepped import Stepped, failing, turn
from workers.commands.dead import dead
from workers.dead_letters import Choice, DeadLetters
from workers.ledger import Entry

pytestmark = pytest.mark.integration


@pytest.fixture
def system(shared_settings: Settings) -> Stepped:
    return Stepped(shared_settings.model_copy(update={"batch_wait": 0.5}))


@pytest.fixture
def letters(system: Stepped) -> DeadLetters:
    return DeadLetters(system.client, system.settings)


def refuse(texts: Sequence[str]) -> None:
    if any("poison" in text for text in texts):
        raise PoisonError("the model refuses this text")


def not_finite(system: Stepped, patched: pytest.MonkeyPatch) -> list[str]:
    """Make the vector of each text with the word poison NaN; returns the list of all texts that are embedded."""
    embedder = system.pipeline.active.embedder
    embed = embedder.embed_passages
    embedded: list[str] = []

    def embed_passages(texts: Sequence[str]) -> np.ndarray:
        embedded.extend(texts)
        vectors = embed(texts)
        vectors[["poison" in text for text in texts]] = np.nan
        return vectors

    patched.setattr(embedder, "embed_passages", embed_passages)
    return embedded


def invalid_event(system: Stepped, patched: pytest.MonkeyPatch) -> None:
    """Have content of more than 20 bytes refused, as an entry of another program or limit is."""
    system.settings = system.settings.model_copy(update={"max_content_bytes": 20})
    system.reinstall()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda system, patched: failing(system, patched, refuse), "PoisonError: the model refuses this text"),
        (not_finite, "PoisonError: embedder hashing-v1: the vector of a text of 25 characters is zero or not finite"),
        (invalid_event, "not a valid turn event: content: 25 bytes, over the limit of 20"),
    ],
    ids=["refused", "NaN", "not valid"],
)
def test_of_256_turns_with_one_poison_255_are_stored_and_the_one_after_the_fix(
    system: Stepped,
    letters: DeadLetters,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Stepped, pytest.MonkeyPatch], object],
    reason: str,
) -> None:
    usual = system.settings
    with monkeypatch.context() as patched:
        spoil(system, patched)
        system.push(*[turn(f"turn {n}", n) for n in range(200)], turn("this turn holds a poison.", 200))
        system.push(*[turn(f"turn {n}", n) for n in range(201, 256)])
        system.step()
        assert system.queue.count == 1, "all of it is one batch"
        system.work()
        assert system.counts() == (255, 255, 255)
        assert system.left() == (0, 0)
        (letter,) = letters.all()
        assert letter.reason.startswith(reason)
        assert (letter.turn_index or 200, letter.deliveries, letter.deaths) == (200, 1, 1)
    system.settings = usual
    system.reinstall()
    assert letters.replay() == 1
    system.settle()
    assert system.counts() == (256, 256, 256)
    assert (letters.count(), system.left()) == (0, (0, 0))


def test_many_poison_turns_in_one_batch_cost_no_second_embedding_of_the_others(
    system: Stepped, letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded = not_finite(system, monkeypatch)
    system.push(*[turn(f"{'poison' if n % 20 == 7 else 'turn'} {n}", n) for n in range(256)])
    system.settle()
    assert system.counts() == (243, 243, 243)
    assert [letter.turn_index for letter in letters.all()] == list(range(7, 256, 20))
    good = [text for text in embedded if text.startswith("turn")]
    assert len(good) == len(set(good)) == 243
    probes = embedded.count("dimension")
    assert 1 <= probes <= 2, "the word that shows the embedder to work, once in each part of the batch with poison"
    assert len(embedded) == 256 + probes


def test_a_revision_that_is_poison_leaves_the_revision_before_it(
    system: Stepped, letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        not_finite(system, patched)
        system.push(turn("first"), turn("poison"), turn("other", 1))
        system.settle()
    assert system.counts() == (2, 2, 2)
    assert letters.replay() == 1
    system.settle()
    assert sorted(system.pipeline._catalog.recent_contents(9)) == ["other", "poison"]


def test_a_letter_that_dies_again_after_a_replay_keeps_its_first_time_and_counts_its_deaths(
    system: Stepped, letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(system, monkeypatch, refuse)
    system.push(turn("poison"))
    system.settle()
    (first,) = letters.all()
    for deaths in (2, 3):
        letters.replay()
        system.settle()
        (again,) = letters.all()
        assert (again.deaths, again.deliveries) == (deaths, 1)
        assert (again.accepted_ms, again.first_died_ms) == (first.accepted_ms, first.first_died_ms)
        assert again.died_ms > first.died_ms


def bury(system: Stepped, count: int, reason: Callable[[int], str], size: int = 0) -> list[str]:
    """Put letters where a worker puts them; returns their ids, oldest first."""
    pipeline = system.client.pipeline(transaction=False)
    for n in range(count):
        payload = turn(f"turn {n}" + "x" * size, n).to_json()
        entry = Entry(id=f"1-{n}", payload=payload, order=f"{1:019d}-{n:019d}")
        pipeline.xadd(system.keys.dead, system.ledger.letter(entry, reason(n), 1))
    return [entry_id.decode() for entry_id in pipeline.execute()]


def cli(system: Stepped, *args: str, ok: bool = True) -> str:
    done = CliRunner().invoke(dead, [*args, "--data-dir", str(system.settings.data_dir)], env=_environment(system))
    assert (done.exit_code == 0) is ok, done.output
    return done.output


def _environment(system: Stepped) -> dict[str, str]:
    return {"SCOPE_RECALL_REDIS_URL": system.settings.redis_location, "COLUMNS": "200"}


def test_letters_are_counted_by_reason_with_first_and_last_time(system: Stepped, letters: DeadLetters) -> None:
    bury(system, 30, lambda n: f"a text of {n * 1000:,} characters" if n % 3 else "no turn event")
    groups = letters.by_reason()
    assert [(group.reason, group.count) for group in groups] == [("a text of N characters", 20), ("no turn event", 10)]
    assert 0 < groups[0].first_died_ms <= groups[0].died_ms
    lines = [json.loads(line) for line in cli(system, "list", "--by-reason", "--json").splitlines()]
    assert [line["count"] for line in lines] == [20, 10]
    listed = [json.loads(line) for line in cli(system, "list", "--json", "--limit", "5").splitlines()]
    assert len(listed) == 5
    assert listed[0]["deaths"] == 1
    shown = cli(system, "list", "--limit", "5")
    assert "a text of N characters" in shown, "more than are shown are told of by reason"
    assert "5 of 30 dead letters" in shown


def test_letters_are_replayed_and_dropped_by_id_by_reason_or_all(system: Stepped, letters: DeadLetters) -> None:
    ids = bury(system, 10, lambda n: "HTTP 400" if n < 4 else "other")
    assert "replayed 4, 6 left" in cli(system, "replay", "--reason", "http 400")
    assert "dropped 1, 5 left" in cli(system, "drop", ids[9])
    for wrong in (["drop"], ["replay", ids[8], "--all"], ["drop", "--all", "--reason", "x"]):
        assert "name the ids" in cli(system, *wrong, ok=False)
    for missing in ("1-1", "all", "-", "99999999999999999999-1"):
        with pytest.raises(UsageError, match=f"no dead letter {missing}"):
            letters.drop(Choice(ids=[ids[8], missing]))
    assert letters.count() == 5, "a list with a mistake in it changes nothing"
    assert "dropped 5, 0 left" in cli(system, "drop", "--all")
    system.settle()
    assert system.counts() == (4, 4, 4)


def test_replaying_all_ends_though_each_letter_dies_again_at_once(system: Stepped, letters: DeadLetters) -> None:
    bury(system, 150, lambda n: "poison")
    before = [letter.id for letter in letters.all()]
    seen = []
    for letter in letters.all():
        seen.append(letter.id)
        bury(system, 1, lambda n: "died again")
    assert seen == before


def test_going_over_very_many_letters_holds_a_page_of_them_in_memory(system: Stepped, letters: DeadLetters) -> None:
    for _ in range(12):
        bury(system, 100, lambda n: f"reason {n}", size=20_000)
    tracemalloc.start()
    assert letters.by_reason()[0].count == 1200
    assert letters.replay(Choice(reason="reason 7")) == 12 * 11
    assert letters.drop() == 1200 - 132
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 << 20, f"{peak:,} bytes; all of them are 24 MB"
    assert (letters.count(), system.left()) == (0, (132, 0))
