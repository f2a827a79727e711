"""What each constant of the default call earns: the same call without it, or with another value.

Run `benchmarks/run constants`. Only images for choosing are asked: COCO, platelets, boards and the
crosses of the demo. A difference is the mean AUPRC of the default call less that of the call
without the constant, so a positive one says what the constant earns. One that earns less than 0.02
on every set, and saves no evaluations, should go.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch

import hshap
from benchmarks.core import markdown, results
from benchmarks.core.provenance import provenance, versions
from benchmarks.experiments.default_questions import questions
from hshap import demo, metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Asked = tuple[Any, Any, int, NDArray[Any], NDArray[Any]]

SETS = {"coco-choosing": 10, "platelets-validation": 10, "boards-validation": 10, "crosses": 4}
SEARCH, CONTEXTS = "hshap.games.search.best_first", "hshap.games.contexts"
MAPS = "hshap.explanation.maps"
NEVER = 10**9


def _as_it_is(labels: Any, *_: Any) -> Any:
    return labels


@dataclass(frozen=True)
class Constant:
    """A constant, what it does, its value, and the call without it."""

    name: str
    does: str
    value: str
    instead: str
    patches: tuple[tuple[str, Any], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()


def _other(name: str, does: str, place: str, value: Any, instead: Any) -> Constant:
    return Constant(name, does, str(value), str(instead), ((f"{place}.{name}", instead),))


CONSTANTS = (
    Constant(
        "MOST_EVALUATIONS",
        "the default budget",
        "200",
        "100",
        options=(("search", partial(hshap.BestFirst, max_evaluations=100)),),
    ),
    _other("SECOND_PAIR", "evaluations until contexts are mixed", CONTEXTS, 50, NEVER),
    Constant(
        "contexts",
        "games in other contexts at all",
        "2 to 6",
        "1, the paper's",
        options=(("search", partial(hshap.BestFirst, contexts=1)),),
    ),
    _other("CLEAR", "scores of a detector", SEARCH, 0.05, -1.0),
    _other("WORTH", "contexts that say little are not asked", SEARCH, 0.1, 0.0),
    _other("TOGETHER", "regions split at once", SEARCH, 4, 1),
    _other("WIDTH", "smoothing, in sides of a region", MAPS, 0.5, 0.0),
    _other("BORDER", "smoothing where no region can be split, in sides", MAPS, 0.01, 0.0),
    Constant(
        "MIN_AREA",
        "pixels of the smallest region",
        "25",
        "4",
        options=(("partition", partial(hshap.Superpixels, 4)),),
    ),
    Constant(
        "MAX_AREA",
        "pixels of an area without edges",
        "400",
        "100",
        options=(("partition", partial(hshap.Superpixels, max_area=100)),),
    ),
    Constant(
        "POSITION",
        "compact regions",
        "10",
        "0",
        options=(("partition", partial(hshap.Superpixels, position=0.0)),),
    ),
    Constant(
        "faint edges",
        "edges of noise and light are removed",
        "2 constants",
        "none",
        (("hshap.partitions.segmentation.without_faint_edges", _as_it_is),),
    ),
)


def run() -> None:
    """Explain every set without each constant, and write the table."""
    torch.set_num_threads(1)
    asked = {name: list(_asked(name, most)) for name, most in SETS.items()}
    usual = {name: _means(name, some) for name, some in asked.items()}
    rows = []
    for constant in CONSTANTS:
        with ExitStack() as stack:
            for place, instead in constant.patches:
                stack.enter_context(patch(place, instead))
            without = {
                name: _means(name, some, **dict(constant.options)) for name, some in asked.items()
            }
        rows.append(
            {
                "name": constant.name,
                "does": constant.does,
                "value": constant.value,
                "instead": constant.instead,
                "earns": {n: round(usual[n][0] - without[n][0], 4) for n in SETS},
                "saves": {n: round(without[n][1] - usual[n][1], 1) for n in SETS},
            }
        )
        print(rows[-1], flush=True)
    content = {
        "task": "constants",
        **provenance(),
        "versions": versions(),
        "usual": usual,
        "images": {name: len(some) for name, some in asked.items()},
        "rows": rows,
    }
    results.write_experiment(content, page(content))


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    sets = list(content["images"])
    head = ["constant", "does", "value", "instead", *sets, "evaluations saved"]
    lines = [
        (
            row["name"],
            row["does"],
            row["value"],
            "never" if row["instead"] == str(NEVER) else row["instead"],
            *(f"{row['earns'][name]:+.2f}" for name in sets),
            f"{fmean(row['saves'].values()):.0f}",
        )
        for row in content["rows"]
    ]
    usual = ", ".join(
        f"{name} {content['usual'][name][0]:.2f} ({content['images'][name]} images)"
        for name in sets
    )
    source = f"AUPRC of the default call: {usual}. Commit {content['commit']}, {content['date']}."
    return f"{markdown.table(head, lines)}\n\n{source}\n"


def _asked(name: str, most: int) -> Iterator[Asked]:
    """Yield model, baseline, target, image and truth."""
    if name == "crosses":
        samples, network = demo.bundled(), demo.load()
        for image, truth in islice(zip(samples["images"], samples["truths"], strict=True), most):
            yield network, None, 1, image.astype(np.float32) / 255, truth
        return
    for one in islice(questions(name), most):
        own = one.example.counterfactual if one.subject.template else None
        yield one.fronts["function"], own, one.target, one.example.image, one.truth


def _means(name: str, asked: list[Asked], **options: Callable[[], Any]) -> tuple[float, float]:
    """Return the mean AUPRC and the mean number of evaluations."""
    scores, costs = [], []
    for model, own, target, image, truth in asked:
        given = {key: make() for key, make in options.items()}
        if own is not None:
            given.pop("partition", None)  # cells around the differences from the template
            given["baseline"] = hshap.Fixed(own)
        found = hshap.Explainer(model, **{"search": hshap.BestFirst(), **given}).explain(
            image, target
        )
        scores.append(metrics.average_precision(found.attribution(), truth))
        costs.append(found.evaluations)
    print(f"{name}: {fmean(scores):.3f}, {fmean(costs):.0f} evaluations", flush=True)
    return fmean(scores), fmean(costs)
