"""The methods that are compared, in the order of the tables.

Packages are imported when a method runs, so a missing package only costs its own rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.core.protocol import UnknownNameError
from benchmarks.methods import (
    authors,
    bpt,
    budgeted,
    cells,
    controls,
    gradients,
    lime_segments,
    ours,
    partition,
)
from benchmarks.methods.ours import ours_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.core.protocol import Method

METHODS: tuple[Method, ...] = (
    *ours.METHODS,
    *authors.METHODS,
    *gradients.METHODS,
    *partition.METHODS,
    *lime_segments.METHODS,
    *bpt.METHODS,
    *cells.METHODS,
    *controls.METHODS,
)

BUDGETED: tuple[Method, ...] = budgeted.METHODS
EVERY = (*METHODS, *BUDGETED)

__all__ = ["BUDGETED", "EVERY", "METHODS", "methods_of", "named", "ours_at"]


def methods_of(task: str) -> tuple[Method, ...]:
    """Return the methods of a task; photographs also have those at equal evaluations."""
    return METHODS if task.startswith("synthetic") else EVERY


def named(names: Iterable[str]) -> tuple[Method, ...]:
    """Return the methods of these names, in the order given."""
    known = {method.name: method for method in EVERY}
    wanted = list(names)
    missing = [name for name in wanted if name not in known]
    if missing:
        message = f"no method is called {missing[0]!r}; there are {', '.join(known)}"
        raise UnknownNameError(message)
    return tuple(known[name] for name in wanted)
