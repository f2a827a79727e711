"""Make malaria smears whose parasites have known places: more images than were photographed.

These images are made, not photographed. Each one is a smear of the set without any parasite, with
one to four trophozoites pasted over healthy cells of it. The trophozoites are cells cut from other
images of the set (`malaria.cells`). Smears and cells of the test images are those that no training
saw: the published test smears, and the cells of the holdout. Images made of one smear share its
healthy cells, so intervals over these images are narrower than over as many smears.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.core.protocol import Example
from benchmarks.datasets.malaria import Malaria, averaged, cells, entries, file_name, filled, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.random import Generator
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Corners, Image

CONCEPT, HEALTHY = "trophozoite", "red blood cell"
MOST = 4  # trophozoites in an image
TRIES = 50  # healthy cells to look at for one place


@dataclass(frozen=True)
class MadeSmears:
    """Give `each` images of every smear without a parasite, mirrored at random.

    The counterfactual of an image is its smear without the pasted cells.
    """

    each: int = 14
    factor: int = 4
    seed: int = 0
    name: str = "malaria-made"
    concepts: tuple[str, ...] = (CONCEPT,)

    def examples(self, split: str) -> Iterator[Example]:
        """Give made images for validation and test; photographs for training."""
        if split == "training":
            yield from Malaria(self.factor).examples(split)
            return
        parasites = [cell.image for cell in cells(split, self.factor) if cell.kind == CONCEPT]
        fields = list(self._fields(split))
        # Smear after smear, so that the first images already show all of them.
        for number in range(self.each):
            for name, image, healthy in fields:
                rng = np.random.default_rng((self.seed, zlib.crc32(name.encode()), number))
                yield made(rng, f"{name}-{number}", image, healthy, parasites)

    def _fields(self, split: str) -> Iterator[tuple[str, Image, tuple[Corners, ...]]]:
        """Give the name, the image and the healthy cells of each smear without a parasite."""
        for folder, entry in entries(split):
            if {item["category"] for item in entry["objects"]} == {HEALTHY}:
                name = file_name(entry)
                image = averaged(read(folder / "images" / name), self.factor)
                boxes = Malaria(self.factor).boxes(entry, image.shape[1:])
                yield name.rsplit(".", 1)[0], image, boxes[HEALTHY]


def made(
    rng: Generator, name: str, field: Image, healthy: tuple[Corners, ...], parasites: list[Image]
) -> Example:
    """Mirror a smear at random and paste parasites over some of its healthy cells."""
    before, places = mirrored(rng, field, healthy)
    image, boxes = before.copy(), ()
    for which in rng.choice(len(parasites), int(rng.integers(1, MOST + 1)), replace=False):
        cell = np.rot90(parasites[int(which)], int(rng.integers(4)), (1, 2))
        box = _free_place(rng, cell.shape[1:], places, boxes, before.shape[1:])
        if box is not None:
            paste(image, cell, box)
            boxes = (*boxes, box)
    truth = filled(boxes, image.shape[1:])
    return Example(name, image, {CONCEPT: boxes}, {CONCEPT: truth}, counterfactual=before)


def paste(image: Image, cell: Image, box: Corners) -> None:
    """Paste a cell into the image, its edges blended, its field as bright as the image's."""
    (top, left), (bottom, right) = box
    part = image[:, top:bottom, left:right]
    ratio = field_colour(image[:, ::4, ::4]) / field_colour(cell[:, ::2, ::2])
    toned = np.clip(cell * np.clip(ratio, 0.7, 1.5), 0, 1)
    part += blend(bottom - top, right - left, oval=True) * (toned - part)


def field_colour(image: Image) -> NDArray[np.floating]:
    """Return the colour of the bright background, (3, 1, 1)."""
    return np.maximum(np.percentile(image, 92, axis=(1, 2), keepdims=True), 0.2)


def blend(height: int, width: int, *, oval: bool) -> NDArray[np.float32]:
    """Return how much of a pasted cell is seen at each pixel, less towards its edge."""
    rows = ((np.arange(height) + 0.5) * 2 / height - 1)[:, None]
    columns = (np.arange(width) + 0.5) * 2 / width - 1
    away = np.hypot(rows, columns) - 0.15 if oval else np.maximum(abs(rows), abs(columns))
    return np.clip((1 - away) / 0.2, 0, 1).astype(np.float32)


def mirrored(
    rng: Generator, image: Image, boxes: tuple[Corners, ...]
) -> tuple[Image, tuple[Corners, ...]]:
    """Turn an image and its boxes upside down, or left to right, or both, or neither."""
    height, width = image.shape[1:]
    if rng.random() < 0.5:
        image = image[:, ::-1]
        boxes = tuple(((height - b, u), (height - t, v)) for (t, u), (b, v) in boxes)
    if rng.random() < 0.5:
        image = image[:, :, ::-1]
        boxes = tuple(((t, width - v), (b, width - u)) for (t, u), (b, v) in boxes)
    return np.ascontiguousarray(image), boxes


def _free_place(
    rng: Generator,
    size: tuple[int, ...],
    healthy: tuple[Corners, ...],
    taken: tuple[Corners, ...],
    shape: tuple[int, ...],
) -> Corners | None:
    """Return a box of this size around a healthy cell, within the image and off the taken ones."""
    for which in rng.permutation(len(healthy))[:TRIES]:
        (top, left), (bottom, right) = healthy[int(which)]
        down, along = (top + bottom - size[0]) // 2, (left + right - size[1]) // 2
        box = ((down, along), (down + size[0], along + size[1]))
        inside = min(down, along) >= 0 and box[1][0] <= shape[0] and box[1][1] <= shape[1]
        if inside and not any(_overlap(box, other) for other in taken):
            return box
    return None


def _overlap(one: Corners, other: Corners) -> bool:
    return all(one[0][axis] < other[1][axis] and other[0][axis] < one[1][axis] for axis in (0, 1))
