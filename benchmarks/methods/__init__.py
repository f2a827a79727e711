"""The methods that are compared, in the order of the tables.

Packages are imported when a method runs, so a missing package only costs its own rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.core.protocol import UnknownNameError
from benchmarks.methods import (
    authors,
    bpt,
    cells,
    controls,
    gradients,
    lime_segments,
    ours,
    partition,
)

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


def named(names: Iterable[str]) -> tuple[Method, ...]:
    """Return the methods of these names, in the order given."""
    known = {method.name: method for method in METHODS}
    wanted = list(names)
    missing = [name for name in wanted if name not in known]
    if missing:
        message = f"no method is called {missing[0]!r}; there are {', '.join(known)}"
        raise UnknownNameError(message)
    return tuple(known[name] for name in wanted)
