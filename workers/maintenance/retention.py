"""The job `retention`: what the rules no longer keep is hidden, then erased as a forget erases. Does I/O.

Hidden in pieces, each one transaction, so that writers go on between them; erased once at the end. A run that was
killed leaves a tombstone, which the next run of this job or of `forget` finishes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice

from producers.retention import RetentionRule
from producers.settings import Settings
from workers.maintenance import erasure_proof as proof
from workers.maintenance.erasure import Erasure
from workers.maintenance.job import JobContext, Outcome
from workers.stores.retention import Due


def apply_retention(context: JobContext) -> Outcome:
    """The job: apply `settings.retention` as of now, and finish what an earlier run left."""
    rules, kept = context.settings.retention, context.catalog.retention
    now = datetime.now(UTC)
    due = sum(one.turns for one in kept.due(rules, now))
    if not due and not kept.unfinished():
        return Outcome(None)
    turns, chunks, whole = _bury(context, rules, now, due)
    reports = Erasure(context.settings, context.catalog, context.client, lambda _: None).finish(verify=True)
    problems = list(dict.fromkeys(problem for one in reports for problem in one.problems))
    if not whole:
        problems.append("the lease was lost, so another run goes on with it")
    if not all(one.verified for one in reports) and not problems:
        problems.append("bytes of what was removed are left: `scope-recall forget --resume` names the files")
    figures = {"removed": turns, "chunks": chunks, "verified": not problems}
    did = f"removed {turns:,} turns" if turns else "finished an erasure that was interrupted"
    return Outcome(did, {"due": due}, figures, "; ".join(problems) or None)


def reason_of(due: Due, rules: Sequence[RetentionRule]) -> str:
    """Why these turns go, for people."""
    rule = rules[due.rule]
    if due.reason == "age":
        return f"older than {rule.max_age_days:g} days"
    if due.reason == "ended":
        return f"session ended more than {rule.ended_days:g} days ago"
    return f"beyond the newest {rule.max_turns:,} of a session"


def _bury(context: JobContext, rules: Sequence[RetentionRule], now: datetime, due: int) -> tuple[int, int, bool]:
    """(turns, chunks) that were hidden, and whether it came to its end."""
    evidence = _Evidence(context.settings, due)
    number: int | None = None
    turns = chunks = 0
    kept = context.catalog.retention
    for span in kept.spans() if due else ():
        for piece in kept.pieces(rules, now, span):
            if not context.lease.held:
                return turns, chunks, False
            gone = kept.bury(rules, now, span, piece, number, evidence.keep)
            if gone is not None:
                number, turns, chunks = gone.number, turns + gone.turns, chunks + gone.chunks
    return turns, chunks, True


class _Evidence:
    """Takes the contents for the proof evenly from all that goes: each one is another pass over every byte."""

    def __init__(self, settings: Settings, due: int) -> None:
        self._settings = settings
        self._share = proof.MAX_TEXTS / max(due, 1)
        self._owed = 1.0
        self._kept = 0

    def keep(self, number: int, turns: int, contents: Iterator[str]) -> None:
        """Keep the share that this piece of `turns` owes."""
        self._owed += self._share * turns
        count = min(int(self._owed), proof.MAX_TEXTS - self._kept)
        if count > 0:
            proof.keep(self._settings, number, islice(contents, count))
            self._owed -= count
            self._kept += count
