"""Does a method depend on the model at all? Randomise the weights, and compare the maps.

Full randomisation is the paper's appendix E; cascading (Adebayo et al., 2018) makes one layer after
the other random, from the output back to the input, so that its last step is the full one. Both
are run on the synthetic images. A similarity near 0 is the goal: the map is gone with the trained
weights. Controls that never ask the model keep a similarity of 1.
"""

from __future__ import annotations

import multiprocessing
from collections import defaultdict
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import rankdata

from benchmarks.core import markdown, results
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.results import interval
from benchmarks.core.runner import explain
from benchmarks.core.tasks import SEED, Synthetic, fitted
from benchmarks.methods import METHODS, named

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from benchmarks.core.protocol import Example, Method, Subject

IMAGES = 6  # with 6 crosses
MEASURES = ("absolute", "spearman", "cosine")
STEPS = ("trained", "fc_3", "fc_2", "fc_1", "conv_2", "conv_1")


def randomised(model: nn.Module, layers: tuple[str, ...], seed: int) -> nn.Module:
    """Return a copy of the model in which the named layers are as before any training."""
    copy = deepcopy(model)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for name in layers:
            copy.get_submodule(name).reset_parameters()
    return copy.eval()


def similarity(one: NDArray[Any], other: NDArray[Any]) -> dict[str, float]:
    """Compare two maps by rank correlation and by cosine; a constant map is like nothing.

    A map that is turned upside down still shows the same: so the size of the correlation counts.
    """
    ranks = [rankdata(heat, axis=None) for heat in (one, other)]
    spearman = _cosine(*(rank - rank.mean() for rank in ranks))
    cosine = _cosine(one.ravel(), other.ravel())
    return dict(zip(MEASURES, (abs(spearman), spearman, cosine), strict=True))


def run(workers: int, methods: tuple[str, ...] = ()) -> None:
    """Explain trained and randomised networks, and write how similar their maps are.

    With names of methods, only their rows are made anew.
    """
    chosen = named(methods) or METHODS
    jobs = [(method.name, index) for method in chosen for index in range(IMAGES)]
    worked, failed = defaultdict(list), {}
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for answer in pool.imap(_one, jobs):
            print(f"{answer['method']}: done", flush=True)
            # A failed method has no map: it must not pass for one whose map is gone.
            if answer["failed"]:
                failed[answer["method"]] = answer["failed"]
            else:
                worked[answer["method"]].append(answer["steps"])
    found = {
        name: {
            measure: [
                interval([steps[s][measure] for steps in images]) for s in range(1, len(STEPS))
            ]
            for measure in MEASURES
        }
        | provenance()
        for name, images in worked.items()
    }
    old = results.read_summary("sanity") if methods else {"similarity": {}, "failed": {}}
    content = {
        "task": "sanity",
        "images": IMAGES,
        "seed": SEED,
        "steps": STEPS[1:],
        "versions": versions(),
        "similarity": old["similarity"] | found,
        "failed": {n: why for n, why in old["failed"].items() if n not in found} | failed,
    }
    results.write_experiment(content, page(content))


def page(content: dict[str, Any]) -> str:
    """Return the size of the rank correlation after each step, for each method."""
    rows = [
        (name, *(f"{step[0]:.2f}" for step in one["absolute"]), f"{one['commit']}, {one['date']}")
        for name, one in content["similarity"].items()
    ]
    return markdown.table(["method", *content["steps"], "commit"], rows) + "\n"


def _one(job: tuple[str, int]) -> dict[str, Any]:
    torch.set_num_threads(1)
    name, index = job
    method = next(m for m in METHODS if m.name == name)
    task = Synthetic(each=IMAGES)
    subject, example = task.subject(), _example(task, index)
    at_hand = fitted(subject, example)
    maps, failed = zip(
        *(_map(method, at_hand, example, index, step) for step in range(len(STEPS))), strict=True
    )
    steps = [similarity(maps[0], heat) for heat in maps]
    return {"method": name, "steps": steps, "failed": next(filter(None, failed), None)}


def _example(task: Synthetic, index: int) -> Example:
    crowded = (e for e in task.positives("test", quick=False) if e.group != "1 cross")
    return next(islice(crowded, index, None))


def _map(
    method: Method, subject: Subject, example: Example, index: int, step: int
) -> tuple[NDArray[Any], str | None]:
    # Other weights for each image: one random network may by chance agree with the trained one.
    model = randomised(subject.model, STEPS[1 : step + 1], SEED + index)
    there = replace(subject, model=model, layer=model.conv_2)
    row = explain(method, there, example, "cross")
    return row["_heat"], row.get("failed") or row.get("cannot")


def _cosine(one: NDArray[Any], other: NDArray[Any]) -> float:
    length = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / length) if length else 0.0
