"""How well the network of the malaria images does, on whole smears and on single cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.datasets.malaria import CONCEPTS, Malaria, cells
from benchmarks.training.judge import judge

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Example, Image
    from benchmarks.models.compact import Compact


@torch.no_grad()
def scores(model: Compact, images: list[Image]) -> NDArray[np.float64]:
    """Return the logits (n, concepts) of images of any shapes."""
    return np.stack([model(torch.from_numpy(image)[None])[0].double().numpy() for image in images])


def on_smears(model: Compact, split: str, *, factor: int, seed: int) -> dict[str, Any]:
    examples: list[Example] = list(Malaria(factor).examples(split))
    found = scores(model, [example.image for example in examples])
    by_concept = {
        concept: judge(
            found[:, column],
            np.array([example.label(concept) for example in examples]),
            seed,
        )
        for column, concept in enumerate(CONCEPTS)
    }
    named = {
        example.name: dict(zip(CONCEPTS, logits.round(4).tolist(), strict=True))
        for example, logits in zip(examples, found, strict=True)
    }
    return by_concept | {"scores": named}


def on_cells(model: Compact, split: str, mean: Image, *, factor: int, seed: int) -> dict[str, Any]:
    """Judge single cells, each alone in the middle of the mean image: an explanation's view."""
    given = list(cells(split, factor))
    top, left = (size // 2 - 48 for size in mean.shape[1:])
    field_ = mean[:, top : top + 96, left : left + 96]
    images = []
    for cell in given:
        image = field_.copy()
        height, width = (min(size, 96) for size in cell.image.shape[1:])
        down, along = (96 - height) // 2, (96 - width) // 2
        image[:, down : down + height, along : along + width] = cell.image[:, :height, :width]
        images.append(image)
    found = scores(model, images)
    kinds = np.array([cell.kind for cell in given])
    return {
        concept: judge(found[:, column], kinds == concept, seed)
        for column, concept in enumerate(CONCEPTS)
    }
