"""Read BCCD, photographs of blood with a box around each cell: positive iff it shows a platelet.

Public repository Shenggan/BCCD_Dataset (MIT licence), in its VOC layout: Giemsa-stained smears of
640 x 480 pixels with boxes of red cells, white cells and platelets. The splits are the published
ones. The whole set or any subset of its images will do.

Boxes are taken as published, and they are loose: a platelet often fills half of its box. Platelets
that touch red cells or the border often have no box. All test and validation images and most
training images were looked at with their boxes before any network or method ran, and `LEFT_OUT`
lists the clear errors.

Some fields of view were photographed twice, and the published splits share them. `LEFT_OUT` also
lists the training and validation images whose field overlaps that of a test image, as far as phase
correlation at a quarter of the size finds them; a small overlap escapes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from benchmarks.core.folders import data_folder
from benchmarks.core.protocol import Example
from benchmarks.datasets.malaria import averaged, filled, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.core.protocol import Corners, Image

CONCEPT = "platelet"
KINDS = {"Platelets": CONCEPT, "RBC": "red blood cell", "WBC": "white blood cell"}
SOURCE = "https://github.com/Shenggan/BCCD_Dataset, its folder BCCD"
LISTS = {"training": "train", "validation": "val", "test": "test"}
SIDES = ("ymin", "xmin", "ymax", "xmax")

WHITE_CELL = "a white cell has the box of a platelet"
NO_BOX = "a platelet lies free in the field, no platelet has a box"
SAME_FIELD = "its field overlaps that of a test image"
LEFT_OUT = {
    "BloodImage_00133": WHITE_CELL,
    "BloodImage_00248": SAME_FIELD,
    "BloodImage_00281": NO_BOX,
    "BloodImage_00283": NO_BOX,
    "BloodImage_00335": NO_BOX,
    "BloodImage_00236": SAME_FIELD,
    "BloodImage_00261": SAME_FIELD,
    "BloodImage_00298": NO_BOX,
    "BloodImage_00386": NO_BOX,
    "BloodImage_00135": WHITE_CELL,
    "BloodImage_00157": NO_BOX,
    "BloodImage_00391": NO_BOX,
}


@dataclass(frozen=True)
class Platelets:
    """Give the photographs averaged over blocks of `factor` x `factor` pixels.

    A platelet is 40 pixels wide at first: a factor of 2 leaves its colour and grain, at a quarter
    of the cost.
    """

    factor: int = 2
    name: str = "platelets"
    concepts: tuple[str, ...] = (CONCEPT,)

    def examples(self, split: str) -> Iterator[Example]:
        """Give the images of a published split without those of `LEFT_OUT`, by name."""
        for folder, name in files(split):
            if name not in LEFT_OUT:
                yield self.example(folder, name)

    def example(self, folder: Path, name: str) -> Example:
        """Read one image and the boxes of its platelets."""
        image = averaged(read(folder / "JPEGImages" / f"{name}.jpg"), self.factor)
        boxes = self.boxes(folder, name, image).get(CONCEPT, ())
        truth = filled(boxes, image.shape[1:])
        return Example(name, image, {CONCEPT: boxes}, {CONCEPT: truth})

    def boxes(self, folder: Path, name: str, image: Image) -> dict[str, tuple[Corners, ...]]:
        """Return the boxes of every kind of cell, in averaged pixels."""
        tree = ET.parse(folder / "Annotations" / f"{name}.xml")  # noqa: S314, local data
        found: dict[str, tuple[Corners, ...]] = {}
        for item in tree.iterfind("object"):
            kind = KINDS[item.findtext("name", "")]
            sides = [float(item.findtext(f"bndbox/{side}", "")) for side in SIDES]
            box = _scaled([int(side) for side in sides], self.factor, image.shape[1:])
            found[kind] = (*found.get(kind, ()), box)
        return found


def files(split: str) -> list[tuple[Path, str]]:
    """Return the folder and the name of each image of a published split, by name."""
    if split not in LISTS:
        message = f"split is {split!r}; pass one of {', '.join(LISTS)}"
        raise ValueError(message)
    file = f"ImageSets/Main/{LISTS[split]}.txt"
    folder = data_folder("bccd", file, SOURCE)
    return [(folder, name) for name in sorted((folder / file).read_text().split())]


def _scaled(sides: list[int], factor: int, shape: tuple[int, ...]) -> Corners:
    """Round outwards to whole pixels, within the image."""
    (height, width), (top, left, bottom, right) = shape, sides
    top, left = min(top // factor, height - 1), min(left // factor, width - 1)
    bottom, right = min(-(-bottom // factor), height), min(-(-right // factor), width)
    return (top, left), (max(bottom, top + 1), max(right, left + 1))
