"""Read blood smears with malaria, BBBC041, in the layout of the public download.

Ljosa et al. 2012, image set BBBC041v1 of the Broad Bioimage Benchmark Collection: Giemsa-stained
smears with a box around each cell that lies whole in the image, and the stage of each parasite.
The whole set or any subset of its images will do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image as Pictures

from benchmarks.core.folders import data_folder
from benchmarks.core.protocol import Example

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.core.protocol import Corners, Image

CONCEPTS = ("trophozoite", "ring")
SOURCE = (
    "the Broad Bioimage Benchmark Collection, image set BBBC041v1 "
    "(https://bbbc.broadinstitute.org/BBBC041)"
)
KINDS = ("red_blood_cell", "trophozoite", "ring", "schizont")
SHARES = {"training": "train", "validation": "valid", "test": "holdout"}


@dataclass(frozen=True)
class Malaria:
    """Give the smears averaged over blocks of `factor` x `factor` pixels.

    A parasite is 135 pixels wide at first: a factor of 4 leaves all that its stage shows, at a
    sixteenth of the cost. Pixels at the right and bottom that do not fill a block are cut off.
    """

    factor: int = 4
    name: str = "malaria"
    concepts: tuple[str, ...] = CONCEPTS

    def examples(self, split: str) -> Iterator[Example]:
        """Give the test images as published; of the others, a third is kept for validation."""
        for folder, entry in entries(split):
            yield self._example(folder, entry)

    def _example(self, folder: Path, entry: dict[str, Any]) -> Example:
        name = file_name(entry)
        image = averaged(read(folder / "images" / name), self.factor)
        boxes = self.boxes(entry, image.shape[1:])
        objects = {concept: boxes.get(concept, ()) for concept in self.concepts}
        truths = {concept: filled(found, image.shape[1:]) for concept, found in objects.items()}
        group = ", ".join(sorted(set(boxes) - {"red blood cell"})) or "no parasite"
        return Example(name, image, objects, truths, group=group)

    def boxes(
        self, entry: dict[str, Any], shape: tuple[int, ...]
    ) -> dict[str, tuple[Corners, ...]]:
        """Return the boxes of every category, not of the concepts alone, in averaged pixels."""
        found: dict[str, tuple[Corners, ...]] = {}
        for item in entry["objects"]:
            category = item["category"]
            box = _scaled(item["bounding_box"], self.factor, shape)
            found[category] = (*found.get(category, ()), box)
        return found


def entries(split: str) -> list[tuple[Path, dict[str, Any]]]:
    """Return the folder and the annotation of each image of a split, in the order of names.

    Of the published training images, each third one with a trophozoite and each third one
    without is for validation: explanations choose their thresholds there, which takes both kinds.
    """
    if split not in SHARES:
        message = f"split is {split!r}; pass one of {', '.join(SHARES)}"
        raise ValueError(message)
    file = "test.json" if split == "test" else "training.json"
    folder = data_folder("bbbc041", file, SOURCE)
    listed = sorted(json.loads((folder / file).read_text()), key=file_name)
    if split != "test":
        listed = [entry for entry, held in _held_out(listed) if held == (split == "validation")]
    return [(folder, entry) for entry in listed]


def _held_out(listed: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], bool]]:
    seen = {True: 0, False: 0}
    for entry in listed:
        kind = any(item["category"] == CONCEPTS[0] for item in entry["objects"])
        yield entry, seen[kind] % 3 == 1
        seen[kind] += 1


def file_name(entry: dict[str, Any]) -> str:
    """Return the name alone: some copies write /images/name, some images/name."""
    return entry["image"]["pathname"].rsplit("/", 1)[-1]


def read(path: Path) -> NDArray[np.uint8]:
    """Read an image as bytes (height, width, 3)."""
    with Pictures.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def averaged(pixels: NDArray[np.uint8], factor: int) -> Image:
    """Average blocks of bytes (height, width, 3) to floats in [0, 1], channels first."""
    rows, columns = pixels.shape[0] // factor, pixels.shape[1] // factor
    whole = pixels[: rows * factor, : columns * factor]
    # Sums of bytes are exact, so that the mean is the same everywhere.
    sums = whole.reshape(rows, factor, columns, factor, 3).sum((1, 3), dtype=np.int64)
    means = sums / (255 * factor**2)
    return np.ascontiguousarray(means.transpose(2, 0, 1).astype(np.float32))


def _scaled(box: dict[str, dict[str, int]], factor: int, shape: tuple[int, ...]) -> Corners:
    """Round outwards to whole pixels, within the image: no part of a cell is left out."""
    low, high = box["minimum"], box["maximum"]
    top, left = (min(low[axis] // factor, size - 1) for axis, size in zip("rc", shape, strict=True))
    bottom, right = (
        min(-(-high[axis] // factor), size) for axis, size in zip("rc", shape, strict=True)
    )
    return (top, left), (max(bottom, top + 1), max(right, left + 1))


def filled(boxes: tuple[Corners, ...], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return the mask of the pixels within any of the boxes."""
    mask = np.zeros(shape, dtype=bool)
    for (top, left), (bottom, right) in boxes:
        mask[top:bottom, left:right] = True
    return mask


@dataclass(frozen=True, eq=False)
class Cell:
    """Hold one cell (3, height, width) cut out along its box, as large as in the smears."""

    kind: str
    image: Image


def cells(split: str, factor: int = 4) -> Iterator[Cell]:
    """Give cells cut from other images of the same set, class by class, in the order of names."""
    share = SHARES[split]
    source = SOURCE + ", its boxes cut out as {train,valid,holdout}/<class>/*.jpg"
    folder = data_folder("bbbc041_cells", share, source)
    for kind in KINDS:
        for path in sorted((folder / share / kind).glob("*.jpg")):
            yield Cell(kind, averaged(read(path), factor))
