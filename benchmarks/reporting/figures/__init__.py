"""The figures, each drawn from committed results alone: `benchmarks/run figures [NAME...]`.

Slow work, and work that needs the cache, is in a figure's `compute`, which writes its data to the
results: `benchmarks/run figures NAME --compute`. Only panels that show photographs also read them
from their data set, since photographs are never committed as data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

from benchmarks.core.folders import MissingDataError
from benchmarks.core.protocol import UnknownNameError
from benchmarks.reporting.figures import (
    ablation_curves,
    ablation_examples,
    cascade,
    degradation,
    demos,
    expected_visits,
    f1_runtime,
    gallery,
    glance,
    maps,
    multi_label,
    partition,
    partitions,
    quality_evaluations,
    randomisation,
    style,
)
from benchmarks.reporting.figures.data import NoResultsError, figure_file

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Drawing:
    """Hold how a figure is drawn, and how its own data is computed, if it has any."""

    draw: Callable[[], Any]
    compute: Callable[[], None] | None = None


FIGURES: dict[str, Drawing] = {
    "glance": Drawing(glance.draw),
    "f1_runtime": Drawing(f1_runtime.draw),
    "quality_evaluations": Drawing(quality_evaluations.draw),
    "ablation_curves": Drawing(ablation_curves.draw),
    "partition": Drawing(partition.draw),
    "partitions": Drawing(partitions.draw, partitions.compute),
    "expected_visits": Drawing(expected_visits.draw, expected_visits.compute),
    "ablation_examples": Drawing(ablation_examples.draw, ablation_examples.compute),
    "degradation": Drawing(degradation.draw, degradation.compute),
    "multi_label": Drawing(multi_label.draw, multi_label.compute),
    "randomisation": Drawing(randomisation.draw, maps.collect_sanity),
    "cascade": Drawing(cascade.draw),
    "gallery": Drawing(gallery.draw),
    "gallery_more": Drawing(partial(gallery.draw, part=1)),
    "first": Drawing(gallery.first),
    **{
        f"demos_{task}": Drawing(partial(demos.draw, task), partial(maps.collect, task))
        for task in demos.TASKS
    },
    "demos_synthetic_more": Drawing(partial(demos.draw, "synthetic", part=1)),
}


def draw(names: list[str]) -> None:
    """Draw the named figures, or all; one whose results are missing is skipped, and says so."""
    for name in _known(names):
        _attempt(name, lambda name=name: _written(name))


def compute(names: list[str]) -> None:
    """Compute the own data of the named figures, or of all."""
    for name in _known(names):
        made = FIGURES[name].compute
        if made is not None:
            _attempt(name, made)
        elif names:
            print(f"{name} needs nothing beside the committed results.")


def _known(names: list[str]) -> list[str]:
    for name in names:
        if name not in FIGURES:
            message = f"no figure is called {name!r}; there are {', '.join(FIGURES)}"
            raise UnknownNameError(message)
    return names or list(FIGURES)


def _attempt(name: str, act: Callable[[], Any]) -> None:
    try:
        act()
    except (NoResultsError, MissingDataError) as reason:
        print(f"{name} is skipped: {reason}.")


def _written(name: str) -> None:
    with mpl.rc_context(style.SETTINGS):
        path = figure_file(f"{name}.png")
        style.save(FIGURES[name].draw(), path)
    print(f"{name}: {path.stat().st_size / 1000:.0f} kB")
