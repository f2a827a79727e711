"""How well the network of the platelets does, on whole photographs and on parts of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.datasets.platelets import CONCEPT, LEFT_OUT, Platelets, files
from benchmarks.training.judge import judge
from benchmarks.training.judge_smears import scores
from hshap.metrics import wilson

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Image
    from benchmarks.models.compact import Compact

QUANTILES = (0, 0.1, 0.5, 0.9, 1)


def on_photographs(model: Compact, split: str, *, factor: int, seed: int) -> dict[str, Any]:
    """Judge a split; the scores of images that are left out are listed apart."""
    examples = list(Platelets(factor).examples(split))
    found = scores(model, [example.image for example in examples])[:, 0]
    labels = np.array([example.label(CONCEPT) for example in examples])
    named = {e.name: round(float(s), 4) for e, s in zip(examples, found, strict=True)}
    apart = _left_out(model, split, factor)
    return judge(found, labels, seed) | {"scores": named, "left_out": apart}


def _left_out(model: Compact, split: str, factor: int) -> dict[str, float]:
    data = Platelets(factor)
    listed = [data.example(folder, name) for folder, name in files(split) if name in LEFT_OUT]
    if not listed:
        return {}
    found = scores(model, [example.image for example in listed])[:, 0]
    return {e.name: round(float(s), 4) for e, s in zip(listed, found, strict=True)}


def games(model: Compact, colour: Image, *, factor: int) -> dict[str, Any]:
    """Judge parts of the positive validation images on the mean colour, as explanations show them.

    A local network finds a platelet that is shown alone, and none once all boxes are hidden.
    """
    examples = [e for e in Platelets(factor).examples("validation") if e.label(CONCEPT)]
    alone, without = [], []
    for example in examples:
        truth = example.truths[CONCEPT]
        without.append(np.where(truth, colour, example.image))
        for (top, left), (bottom, right) in example.objects[CONCEPT]:
            shown = np.zeros(truth.shape, dtype=bool)
            shown[top:bottom, left:right] = True
            alone.append(np.where(shown, example.image, colour))
    return {
        "mean_colour": _summary(model, [np.broadcast_to(colour, examples[0].image.shape).copy()]),
        "one_platelet_box": _summary(model, alone),
        "all_but_the_boxes": _summary(model, without),
    }


def _summary(model: Compact, images: list[Image]) -> dict[str, Any]:
    found = 1 / (1 + np.exp(-scores(model, images)[:, 0]))
    quantiles: NDArray[np.float64] = np.quantile(found, QUANTILES)
    return {
        "images": len(found),
        "above_half_wilson_95": wilson(int((found > 0.5).sum()), len(found)),
        "mean": float(found.mean()),
        "quantiles_0_10_50_90_100": quantiles.round(6).tolist(),
    }
