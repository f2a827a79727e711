"""How well the network of the circuit boards does, on whole boards and on parts of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.datasets import boards
from benchmarks.training.judge import judge
from hshap.metrics import wilson

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from benchmarks.core.protocol import Corners, Example, Image
    from benchmarks.models.local import Local
    from benchmarks.training.windows import Pairs
    from hshap.metrics import Interval

GAME_BOARDS = 10


@torch.no_grad()
def scores(model: Local, images: Tensor) -> NDArray[np.float64]:
    """Return the logit of each image (n, 1, height, width)."""
    batches = [model(batch) for batch in images.split(16)]
    absent, present = torch.cat(batches).double().numpy().T
    return present - absent


def pair_scores(model: Local, pairs: Pairs) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the logits of all images and of their templates after them, and their labels."""
    both = np.concatenate([scores(model, pairs.tests), scores(model, pairs.templates)])
    return both, np.arange(2 * len(pairs)) < len(pairs)


def evaluate(model: Local, pairs: Pairs, split: str) -> dict[str, Any]:
    logits, labels = pair_scores(model, pairs)
    right = (logits > 0) == labels
    files = boards.pairs(split)
    trained_on = {boards.group(pair) for pair in boards.pairs("training")}
    seen = np.array([boards.group(pair) in trained_on for pair in files] * 2)
    signed = zip(files, logits[labels].tolist(), logits[~labels].tolist(), strict=True)
    return {
        **judge(logits, labels, seed=0),
        "accuracy_on_boards_of_training": _share(right[seen]),
        "accuracy_on_other_boards": _share(right[~seen]) if not seen.all() else None,
        "sensitivity": float(right[labels].mean()),
        "specificity": float(right[~labels].mean()),
        "logits": {pair.name: [round(test, 5), round(plain, 5)] for pair, test, plain in signed},
    }


def _share(right: NDArray[np.bool_]) -> Interval:
    return wilson(int(right.sum()), len(right))


def games(model: Local, factor: int) -> dict[str, Any]:
    """Judge the network on parts of an image shown on its template, as explanations do.

    Validation images only. The boxes mark the defects; the network was trained without them.
    """
    examples = [e for e in boards.Boards(factor).examples("validation") if e.label(boards.CONCEPT)]
    # Spread evenly over the file, so that no one board decides.
    chosen = examples[:: max(1, len(examples) // GAME_BOARDS)][:GAME_BOARDS]
    alone = np.concatenate([_probabilities(model, one_defect(example)) for example in chosen])
    without = _probabilities(model, np.stack([no_defect(example) for example in chosen]))
    template = _probabilities(model, np.stack([_template(example) for example in chosen]))
    return {
        "boards": [example.name for example in chosen],
        "template": _summary(template),
        "one_defect_box": _summary(alone),
        "all_but_the_boxes": _summary(without),
    }


def one_defect(example: Example) -> Image:
    """Return one image for each box (n, 1, height, width): its pixels on the template."""
    return np.stack([_painted(example, (box,)) for box in example.objects[boards.CONCEPT]])


def no_defect(example: Example) -> Image:
    """Return the image (1, height, width) with the template in all of its boxes."""
    return np.where(example.truths[boards.CONCEPT], _template(example), example.image)


def _painted(example: Example, boxes: tuple[Corners, ...]) -> Image:
    mask = boards.filled(boxes, example.image.shape[1:])
    return np.where(mask, example.image, _template(example))


def _template(example: Example) -> Image:
    if example.counterfactual is None:
        message = f"{example.name} has no template"
        raise ValueError(message)
    return example.counterfactual


def _probabilities(model: Local, images: Image) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-scores(model, torch.from_numpy(images))))


def _summary(probabilities: NDArray[np.float64]) -> dict[str, Any]:
    quantiles = np.quantile(probabilities, [0, 0.1, 0.5, 0.9, 1]).round(6)
    return {
        "images": len(probabilities),
        "above_half_wilson_95": _share(probabilities > 0.5),
        "mean": float(probabilities.mean()),
        "quantiles_0_10_50_90_100": quantiles.tolist(),
    }
