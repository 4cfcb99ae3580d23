"""The spaces as people and programs see them: which is read, how far another is, what to do. Does I/O; reads only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from producers.settings import Settings
from workers.maintenance.reembed import worse
from workers.runtime import agrees
from workers.stores.catalog import Catalog
from workers.stores.spaces import StoredSpace

ORDER = ("active", "building", "standby", "dropping")


@dataclass(frozen=True)
class Overview:
    """What there is to say."""

    spaces: list[dict[str, Any]]
    """The active one first; one that is being built with `turns`, `filled`, `share`, `turns_per_second`, `eta_s`."""
    undecided: list[str]
    """Switches that were asked for and refused, which a person has to decide."""
    advice: list[str]


def spaces_overview(catalog: Catalog, settings: Settings) -> Overview:
    """Every space in the catalog."""
    known = sorted(catalog.spaces.all(), key=lambda one: ORDER.index(one.state))
    shown = [_shown(catalog, one) for one in known]
    undecided = [worse(dict(one.plan.verdict), one.space) for one in known if one.plan.verdict]
    advice = []
    active = known[0] if known and known[0].state == "active" else None
    behind = active is not None and not agrees(active, settings) and any(agrees(one, settings) for one in known[1:])
    switched = any(one.state == "standby" for one in known)
    if active is not None and not agrees(active, settings) and not behind:
        advice.append(
            f"the settings ask for embedder {settings.embedder}, and recall reads what {active.setting} made: unless "
            "that is another name for the same model and chunks, a worker that starts now refuses to store anything. "
            f"Set SCOPE_RECALL_EMBEDDER={active.setting}, and no chunk settings or its own"
        )
    if active is not None and behind and switched:
        advice.append(
            f"recall reads {active.space.embedder} since it was switched to it, and the settings still say "
            f"{settings.embedder}: set SCOPE_RECALL_EMBEDDER={active.setting}, and no chunk settings or its own, "
            "before the space of the old one is dropped"
        )
    return Overview(shown, undecided, advice)


def _shown(catalog: Catalog, stored: StoredSpace) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "id": stored.space.id,
        "state": stored.state,
        "active": stored.state == "active",
        "since": stored.since.isoformat(timespec="seconds") if stored.since else None,
        "setting": stored.setting,
        **asdict(stored.space),
    }
    if stored.state in ("building", "standby"):
        filled, turns = catalog.filling.filled_and_turns(stored.space)
        figures |= {"turns": turns, "filled": filled, "share": round(filled / turns, 4) if turns else 1.0}
    if stored.state == "building":
        speed = stored.plan.speed
        figures |= {
            "turns_per_second": speed,
            "eta_s": round((turns - filled) / speed) if speed else None,
            "verdict": dict(stored.plan.verdict) if stored.plan.verdict else None,
        }
    return figures


def in_words(space: dict[str, Any]) -> str:
    """A space's figures on one line. Pure."""
    shape = f"{space['state']}, {space['dimension']} dimensions, chunks of {space['chunk_tokens']} tokens"
    if space["state"] != "building":
        return shape
    parts = [shape, f"{space['filled']:,} of {space['turns']:,} turns ({space['share']:.1%})"]
    parts += [f"{space['turns_per_second']:,.0f} a second"] if space["turns_per_second"] else []
    parts += [f"about {duration(space['eta_s'])} left"] if space["eta_s"] else []
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Such as 45 s, 12 min, 3.5 h. Pure."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
