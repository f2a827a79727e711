"""The cost of explaining synthetic images: the authors' package, peers, and hshap."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hshap
from benchmarks.core.meter import Meter, metered, timed
from benchmarks.core.protocol import Method
from benchmarks.core.tasks import Synthetic, fitted
from benchmarks.datasets.synthetic import draw
from benchmarks.methods import bpt, cells, named, partition
from benchmarks.methods.common import probability
from hshap import metrics
from hshap.demo import bundled, load

if TYPE_CHECKING:
    from benchmarks.core.protocol import Example, Image, Map, Subject

CELL = 4
IMAGES, MANY = 10, 100
TOLERANCE = 0.15


def one_by_one() -> dict[str, Any]:
    """Explain images with 6 crosses by every method in turn: seconds, evaluations and F1 of each.

    Methods take turns on each image, so that other work of the machine slows all of them.
    """
    task = Synthetic(each=IMAGES)
    subject = replace(task.subject(), size=CELL)
    examples = [e for e in task.positives("fresh", quick=False) if e.group != "1 cross"]
    rows: dict[str, list[dict[str, float]]] = {}
    for number, example in enumerate(examples):
        for method in _methods():
            found = _cost(subject, method, example, task.concept)
            if number:  # the first warms up
                rows.setdefault(method.name, []).append(found)
    return {
        "images": len(examples) - 1,
        "methods": {
            name: {key: float(np.median([row[key] for row in mine])) for key in mine[0]}
            | {"f1_mean": float(np.mean([row["f1"] for row in mine]))}
            for name, mine in rows.items()
        },
    }


def in_one_call() -> dict[str, Any]:
    """Explain 100 images in one call and one by one, beside as many bare forward passes."""
    rng = np.random.default_rng(0)
    images = [draw(rng, crosses=int(rng.integers(1, 7))).image for _ in range(MANY)]
    model, baseline = load(), hshap.Fixed(bundled()["mean"])
    explainer = hshap.Explainer(
        model,
        baseline=baseline,
        partition=hshap.Bisection(CELL),
        search=hshap.DepthFirst(0.0),
    )
    explainer.explain(images[0], target=probability)
    found, at_once = timed(
        lambda: list(explainer.explain_many((image, probability) for image in images))
    )
    _, alone = timed(lambda: [explainer.explain(i, target=probability) for i in images])
    evaluations = sum(e.evaluations for e in found)
    batch = torch.from_numpy(np.stack(images[:32]))
    with torch.inference_mode():
        model(batch)
        _, passes = timed(lambda: [model(batch) for _ in range(evaluations // 32)])
    bare = passes * evaluations / (evaluations // 32 * 32)
    return {
        "at_once": at_once,
        "one_by_one": alone,
        "bare": bare,
        "evaluations": evaluations,
        "ratio": alone / at_once,
        "share": bare / at_once,
    }


def _methods() -> tuple[Method, ...]:
    return (
        *named(["h-shap 0.1.6 tau=0", "h-shap quadtree tau=0", "h-shap bisection"]),
        Method("h-shap superpixels", "hshap", _superpixels),
        *named(["PartitionExplainer 500", "captum FeatureAblation", "captum KernelShap"]),
        # Its default of 25 permutations takes 25 times as long.
        Method(
            "captum ShapleyValueSampling, 1 permutation",
            "captum",
            partial(cells.explain, kind="ShapleyValueSampling", n_samples=1),
        ),
        bpt.at(500),
        partition.at(100),
    )


def _superpixels(subject: Subject, image: Image) -> Map:
    explainer = hshap.Explainer(
        subject.model,
        baseline=hshap.Fixed(subject.baseline),
        partition=hshap.Superpixels(),
        search=hshap.DepthFirst(TOLERANCE),
    )
    return explainer.explain(image, target=probability).saliency()


def _cost(subject: Subject, method: Method, example: Example, concept: str) -> dict[str, float]:
    at_hand = fitted(subject, example)
    meter = Meter(at_hand.model).eval()
    with metered(meter) as cost:
        heat = method.explain(replace(at_hand, model=meter), example.image.copy())
    return {
        "seconds": float(cost["seconds"]),
        "evaluations": float(cost["evaluations"]),
        "f1": float(metrics.f1(heat, example.truths[concept])),
    }
