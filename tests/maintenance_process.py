"""A process that compacts and indexes one table until nothing is left to do, also when old versions may have gone.

Prints what it did as JSON lines.

Arguments: the location, seconds that versions are kept, and thresholds as JSON, {"compact.MAX_FRAGMENTS": 4, …}.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from datetime import UTC, datetime, timedelta

from table_under_load import SPACE
from workers.maintenance import compact, index
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VectorStore

MODULES = {"compact": compact, "index": index}


def main(location: str, keep_seconds: float, thresholds: dict[str, int]) -> None:
    for name, value in thresholds.items():
        module, _, constant = name.partition(".")
        setattr(MODULES[module], constant, value)
    store, keep = VectorStore(location), timedelta(seconds=keep_seconds)
    stored, policy = StoredSpace(SPACE, "hashing", None), index.Policy(keep, recall_floor=0.95)
    idle = 0
    while idle < 2:
        kept = [stored.search]
        started = time.monotonic()
        compacted = compact.compact(store, SPACE, keep_versions=keep)
        between = time.monotonic()
        indexed = index.keep_indexes(store, stored, policy, now=datetime.now(UTC), save=kept.append)
        stored = StoredSpace(SPACE, "hashing", None, search=kept[-1])
        ended = time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        for job, outcome, seconds in (("compact", compacted, between - started), ("index", indexed, ended - between)):
            said = {"job": job, "did": outcome.did, "seconds": round(seconds, 1), "peak_mib": peak}
            print(json.dumps({**said, "after": dict(outcome.after)}), flush=True)
        idle = 0 if compacted.did or indexed.did else idle + 1
        time.sleep(keep_seconds if idle else 0)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), json.loads(sys.argv[3]))
