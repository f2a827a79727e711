"""Photographs of cats and dogs with outlines, Oxford-IIIT Pet, for a network of ImageNet.

120 photographs of breeds that are classes of ImageNet (CC BY-SA 4.0). Outlines mark the pet, the
background and a border between them, which counts as pet. Pets are large: about a quarter of the
image. Only photographs whose breed is the network's first class are asked about. All of them are
for judging.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image as Pictures

from benchmarks.core.folders import data_folder
from benchmarks.core.protocol import Example
from benchmarks.models.efficientnet import SIDE, SQUARE, prepared, probabilities

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn

BACKGROUND = 2  # of an outline's values
SOURCE = "https://huggingface.co/datasets/ml4py/dataset-iiit-pet"


def questions(network: nn.Module, every: int = 1) -> Iterator[tuple[Example, int]]:
    """Yield the photographs that the network classifies right, each with its class.

    `every` takes each so many of the photographs in the order of their names.
    """
    folder = data_folder("pets", "labels.csv", SOURCE)
    with (folder / "labels.csv").open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["file"])
    for row in rows[::every]:
        name, number = row["file"], int(row["imagenet_index"])
        with Pictures.open(folder / "images" / name) as picture:
            image = prepared(np.asarray(picture.convert("RGB")))
        if int(probabilities(network, image).argmax()) == number:
            truth = _truth(folder / "trimaps" / name.replace(".jpg", ".png"))
            yield Example(name, image, {row["breed"]: ()}, {row["breed"]: truth}), number


def _truth(path: Path) -> NDArray[np.bool_]:
    """Return the pixels of the pet, in the square of the photograph that the network sees."""
    with Pictures.open(path) as outline:
        width, height = outline.size
        side = SQUARE * min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        square = (left, top, left + side, top + side)
        small = outline.resize((SIDE, SIDE), Pictures.Resampling.NEAREST, box=square)
    return np.asarray(small) != BACKGROUND
