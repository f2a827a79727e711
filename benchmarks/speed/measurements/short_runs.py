"""`Incremental` where it can hardly pay: runs of few evaluations on small networks."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

import hshap
from benchmarks.core.meter import timed
from benchmarks.models.zoo import made
from hshap.demo import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap.games.search import Steps

EVALUATIONS = (8, 40, 200)
LEAST, MOST, SECONDS = 3, 25, 6  # turns; as many as fit into these seconds


def ratios(name: str) -> dict[str, Any]:
    """Explain an image with and without `Incremental`, in turns: the ratios of their times.

    The search splits the same regions whatever the network says, so both do the same work.
    """
    network = load() if name == "ConvNet" else made(name)
    grid, smallest = ((100, 120), 4) if name == "ConvNet" else ((224, 224), 8)
    image = np.random.default_rng(0).random((3, *grid), dtype=np.float32)
    found: dict[str, float] = {}
    for count in EVALUATIONS:
        explainers = [
            hshap.Explainer(way, hshap.Constant(0.5), hshap.Bisection(smallest), _visits(count))
            for way in (hshap.Batched(network), hshap.Incremental(network))
        ]
        for explainer in explainers:  # warms up
            explainer.explain(image, target=1)
        started, turns = time.perf_counter(), list[float]()
        while len(turns) < LEAST or (len(turns) < MOST and time.perf_counter() - started < SECONDS):
            full, incremental = (
                timed(lambda one=one: one.explain(image, target=1))[1] for one in explainers
            )
            turns.append(incremental / full)
        found[str(count)] = median(turns)
    return {"network": name, "ratios": found, "ratio": max(found.values())}


def _visits(evaluations: int) -> Callable[..., Steps]:
    """Return a search that splits the first regions, level by level, whatever they score."""

    def search(root: hshap.Region, _draws: int = 1) -> Steps:
        level, left = [root], (evaluations - 2) // 2
        while level and left:
            asked = level[:left]
            games = yield asked
            left -= len(asked)
            level = [part for game in games for part in game.children if part.split()]
        return hshap.SearchResult(())

    return search
