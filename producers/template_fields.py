"""The fields that a line of a template names, `$name` or `${name}`. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from string import Template


def fields_of(number: int, line: str, known: Collection[str]) -> list[str]:
    """The names in order. Raises ValueError for a `$` that begins none, and for one that is not among `known`."""
    if not Template(line).is_valid():
        raise ValueError(f"line {number}: a $ that begins no field; write $$ for a dollar sign")
    names = [found["named"] or found["braced"] for found in Template.pattern.finditer(line) if not found["escaped"]]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean ${near[0]}?" if near else f"there are {', '.join('$' + one for one in known)}"
            raise ValueError(f"line {number}: unknown field ${name}; {hint}")
    return names
