"""The query service under load: 100 clients that push and 20 that recall for a minute. Prints, asserts that none fails.

What a client may get beside an answer is documented back-pressure: 429 or 503 with Retry-After, which it obeys. In the
end every turn that was accepted is stored, once.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from test_throughput import WORDS

from system import READY_SECONDS, Cli, up

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

PUSHING = 100
RECALLING = 20
SECONDS = 60.0
BACK_PRESSURE = (429, 503)


@dataclass
class Tally:
    """What one kind of client got: answers by status, failures by name, milliseconds of each good answer."""

    answers: Counter[str] = field(default_factory=Counter)
    milliseconds: list[float] = field(default_factory=list)

    def line(self, name: str) -> str:
        cuts = statistics.quantiles(self.milliseconds, n=100)
        slow = " ".join(f"p{at} {cuts[at - 1]:.0f}" for at in (50, 95, 99))
        return f"{name}: {len(self.milliseconds) / SECONDS:.0f} a second, ms {slow}; {dict(self.answers)}"


Ask = Callable[[httpx.AsyncClient, int], Awaitable[httpx.Response]]


async def client_loop(url: str, ask: Ask, tally: Tally, until: float) -> None:
    # One connection pool each: a pool that all share costs a client more than the service does, and each is one agent.
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False) as client:
        await ask_until(client, ask, tally, until)


async def ask_until(client: httpx.AsyncClient, ask: Ask, tally: Tally, until: float) -> None:
    number = 0
    while time.monotonic() < until:
        started = time.monotonic()
        try:
            answer = await ask(client, number)
        except httpx.HTTPError as error:
            tally.answers[type(error).__name__] += 1
            continue
        tally.answers[str(answer.status_code)] += 1
        if answer.status_code in BACK_PRESSURE:
            await asyncio.sleep(float(answer.headers["retry-after"]))
            continue
        assert answer.is_success, answer.text
        number += 1
        tally.milliseconds.append((time.monotonic() - started) * 1000)


def pusher(name: int) -> Ask:
    rng = random.Random(name)

    async def push(client: httpx.AsyncClient, number: int) -> httpx.Response:
        said = " ".join(rng.choices(WORDS, k=rng.randint(20, 80)))
        turn = {"tenant": f"t{name % 10}", "session_id": f"c{name}", "turn_index": number, "role": "user"}
        return await client.post("/v1/turns", json=turn | {"content": f"{number} {said}"})

    return push


def recaller(name: int) -> Ask:
    rng = random.Random(name)

    async def recall(client: httpx.AsyncClient, number: int) -> httpx.Response:
        asked = " ".join(rng.choices(WORDS, k=8))
        return await client.post("/v1/recall", json={"query": asked, "tenant": f"t{name % 10}"})

    return recall


async def load(url: str) -> tuple[Tally, Tally]:
    pushed, recalled = Tally(), Tally()
    until = time.monotonic() + SECONDS
    await asyncio.gather(
        *(client_loop(url, pusher(n), pushed, until) for n in range(PUSHING)),
        *(client_loop(url, recaller(n), recalled, until) for n in range(RECALLING)),
    )
    return pushed, recalled


@pytest.mark.parametrize(("embedder", "reranker"), [("hashing", "none"), ("minilm", "auto")])
def test_a_hundred_push_and_twenty_recall(tmp_path: Path, embedder: str, reranker: str) -> None:
    models = {"SCOPE_RECALL_EMBEDDER": embedder, "SCOPE_RECALL_RERANKER": reranker}
    cli = Cli(tmp_path / "data", models | {"SCOPE_RECALL_SERVE": "true", "SCOPE_RECALL_API_PORT": "0"})
    with up(cli):
        url = cli.run("status", "--json").json["api"]["url"]
        until = time.monotonic() + READY_SECONDS
        while (answer := httpx.get(f"{url}/readyz", timeout=60)).status_code != 200:  # models are still loaded
            assert time.monotonic() < until, answer.text
        pushed, recalled = asyncio.run(load(url))
        print(f"\n{embedder}, {PUSHING} pushing, {RECALLING} recalling, {SECONDS:.0f} s")
        print(pushed.line("push"))
        print(recalled.line("recall"))
        started = time.monotonic()
        drained = cli.run("drain", "--json", timeout=600)
        print(f"all of it can be recalled {time.monotonic() - started:.0f} s later")
        assert drained.code == 0, drained.out
        stored = cli.run("status", "--json").json["catalog"]["turns"]
        assert stored == len(pushed.milliseconds) + 1, "and the canary"
    allowed = {"202", "200", *map(str, BACK_PRESSURE)}
    assert set(pushed.answers) | set(recalled.answers) <= allowed
