"""Read DeepPCB: printed circuit boards with defects, each beside its template without them.

The template is an ideal baseline for h-Shap: the same scene without the concept. It is aligned by
eye more than by rule: edges stray by up to about three of its 640 pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.core.folders import data_folder
from benchmarks.core.protocol import Example

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.core.protocol import Corners, Image

CONCEPT = "defect"
SOURCE = "https://github.com/tangsanli5201/DeepPCB"
LISTS = {"training": "trainval.txt", "validation": "trainval.txt", "test": "test.txt"}

# The last sixth of each group is held out. Crops are numbered along their board, so neighbours stay
# together; holding out whole groups would not do, as a drilled hole of one board looks like the
# pin-hole of another to a network that has not seen it.
VALIDATION_SHARE = 6


class Pair(NamedTuple):
    """Hold where the files of one pair lie."""

    name: str
    test: Path
    template: Path
    boxes: Path


@dataclass(frozen=True)
class Boards:
    """DeepPCB, its images (1, height, width) averaged over blocks of factor x factor pixels."""

    factor: int = 2
    name: str = "boards"
    concepts: tuple[str, ...] = (CONCEPT,)

    def examples(self, split: str) -> Iterator[Example]:
        """Give each pair as two examples: the image with defects, then its template."""
        for pair in pairs(split):
            image = read_image(pair.test, self.factor)
            template = read_image(pair.template, self.factor)
            boxes = tuple(shrink(box, self.factor) for box in read_boxes(pair.boxes))
            truth = filled(boxes, image.shape[1:])
            yield Example(f"{pair.name}_test", image, {CONCEPT: boxes}, {CONCEPT: truth}, template)
            nowhere = np.zeros_like(truth)
            yield Example(
                f"{pair.name}_temp", template, {CONCEPT: ()}, {CONCEPT: nowhere}, template
            )


def pairs(split: str) -> list[Pair]:
    """List the pairs of a split, always in the same order."""
    if split not in LISTS:
        message = f"no split {split!r}; there are {', '.join(LISTS)}"
        raise ValueError(message)
    folder = data_folder("deeppcb", "PCBData/trainval.txt", SOURCE) / "PCBData"
    lines = (folder / LISTS[split]).read_text().splitlines()
    listed = [_pair(folder, *line.split()) for line in lines if line.strip()]
    if split == "test":
        return listed
    listed.sort(key=lambda pair: pair.name)
    groups = [list(members) for _, members in groupby(listed, group)]
    cuts = [len(members) - len(members) // VALIDATION_SHARE for members in groups]
    kept = (slice(cut) if split == "training" else slice(cut, None) for cut in cuts)
    return [pair for members, rows in zip(groups, kept, strict=True) for pair in members[rows]]


def _pair(folder: Path, image: str, boxes: str) -> Pair:
    stem = image.removesuffix(".jpg")
    test, template = folder / f"{stem}_test.jpg", folder / f"{stem}_temp.jpg"
    return Pair(stem.rsplit("/", 1)[-1], test, template, folder / boxes)


def group(pair: Pair) -> str:
    """Return the name of the board, or of the boards of one kind, that a pair was cut from."""
    return pair.test.parents[1].name


def read_image(path: Path, factor: int) -> Image:
    """Read a grey image (1, height, width) in [0, 1], one pixel for each whole block."""
    from PIL import Image as Picture

    with Picture.open(path) as picture:
        pixels = np.asarray(picture.convert("L"))
    height, width = (side // factor for side in pixels.shape)
    blocks = pixels[: height * factor, : width * factor].reshape(height, factor, width, factor)
    # Sums of bytes are exact, so that one division decides every value on every machine.
    total = blocks.sum(axis=(1, 3), dtype=np.uint32)
    return (total / (255 * factor**2)).astype(np.float32)[None]


def read_boxes(path: Path) -> list[tuple[int, int, int, int]]:
    """Read the boxes (left, top, right, bottom) of a file, without the type of defect."""
    lines = path.read_text().splitlines()
    rows = [[int(number) for number in line.split()] for line in lines if line.strip()]
    return [(left, top, right, bottom) for left, top, right, bottom, _ in rows]


def shrink(box: tuple[int, int, int, int], factor: int) -> Corners:
    """Divide a box by the factor, outwards to whole pixels."""
    left, top, right, bottom = box
    return (top // factor, left // factor), (-(-bottom // factor), -(-right // factor))


def filled(boxes: Iterable[Corners], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return the union of the boxes as a mask."""
    mask = np.zeros(shape, dtype=bool)
    for (top, left), (bottom, right) in boxes:
        mask[top:bottom, left:right] = True
    return mask
