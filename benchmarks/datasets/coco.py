"""COCO photographs with the boxes of 80 classes, and a published detector, FastestDet.

128 images of COCO train2017 (CC BY 4.0). The score of a class is its highest confidence in any cell
of the detector, obj^0.6 * cls^0.4: an image is positive exactly if some cell is. The network, 1 MB
of ONNX, sees pixels of 0 to 1 with blue first; `Detector` takes red first, as images are kept.

One question is asked of each image: the first class in the order of `labels.csv` that the detector
finds and whose boxes cover a part of the image that is neither tiny nor most of it. Images at even
positions of their sorted names are for choosing, those at odd positions for judging.
"""

from __future__ import annotations

import csv
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image as Pictures

from benchmarks.core.folders import data_folder
from benchmarks.core.protocol import Example
from benchmarks.datasets.boards import filled
from benchmarks.methods.common import package

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.core.protocol import Corners, Image

SIDE = 352
FOUND = 0.5  # the score from which on a class counts as found
LEAST, MOST = 0.005, 0.4  # of the image, covered by the boxes of the class
OBJECT, FIRST_CLASS = 0, 5  # channels of the detector's output; the four between are its boxes
HALVES = ("choosing", "judging")
SOURCE = "https://huggingface.co/datasets/lightly-ai/coco128_yolo"
RENAMED = {
    "pottedplant": "potted plant",
    "diningtable": "dining table",
    "sofa": "couch",
    "tvmonitor": "tv",
    "motorbike": "motorcycle",
    "aeroplane": "airplane",
}


class Detector:
    """The detector as a function: images (n, 3, 352, 352) become scores (n, 80)."""

    def __init__(self) -> None:
        onnxruntime = package("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        path = _folder() / "fastestdet" / "FastestDet.onnx"
        self.session = onnxruntime.InferenceSession(str(path), options)
        self.input = self.session.get_inputs()[0].name

    def __call__(self, images: NDArray[Any]) -> NDArray[np.float32]:
        return np.stack([self._scores(image) for image in images])

    def _scores(self, image: NDArray[Any]) -> NDArray[np.float32]:
        blue_first = np.ascontiguousarray(image[None, ::-1], np.float32)
        # The file takes one image at a time; its output is (85, 22, 22).
        cells = self.session.run(None, {self.input: blue_first})[0]
        cells = cells.reshape(-1, *cells.shape[-2:])
        confidence = cells[OBJECT] ** 0.6 * cells[FIRST_CLASS:] ** 0.4
        return confidence.max(axis=(1, 2))


@cache
def classes() -> tuple[str, ...]:
    """Return the names of the 80 classes, as `labels.csv` writes them."""
    names = (_folder() / "fastestdet" / "coco.names").read_text().split("\n")
    return tuple(RENAMED.get(name.strip(), name.strip()) for name in names if name.strip())


def questions(half: str, detector: Detector) -> Iterator[tuple[Example, int]]:
    """Yield the images of a half in which a class is found, each with that class."""
    if half not in HALVES:
        message = f"half is {half!r}; pass one of {', '.join(HALVES)}"
        raise ValueError(message)
    names = sorted(path.name for path in (_folder() / "images").glob("*.jpg"))
    labels = _labels()
    for name in names[HALVES.index(half) :: 2]:
        asked = _question(name, labels.get(name, {}), detector)
        if asked is not None:
            yield asked


def _question(
    name: str, boxes: dict[str, tuple[Corners, ...]], detector: Detector
) -> tuple[Example, int] | None:
    image = _image(_folder() / "images" / name)
    scores = detector(image[None])[0]
    for concept, corners in boxes.items():
        truth = filled(corners, (SIDE, SIDE))
        number = classes().index(concept)
        if scores[number] >= FOUND and LEAST <= truth.mean() <= MOST:
            return Example(name, image, {concept: corners}, {concept: truth}), number
    return None


def _image(path: Path) -> Image:
    with Pictures.open(path) as picture:
        small = picture.convert("RGB").resize((SIDE, SIDE), Pictures.Resampling.BILINEAR)
    return np.moveaxis(np.asarray(small, np.float32) / np.float32(255), -1, 0).copy()


def _labels() -> dict[str, dict[str, tuple[Corners, ...]]]:
    """Return the boxes of each class of each image, in the order of the file."""
    found: dict[str, dict[str, tuple[Corners, ...]]] = {}
    with (_folder() / "labels.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            boxes = row["boxes_relative_x0_y0_x1_y1"].split()
            found.setdefault(row["file"], {})[row["class"]] = tuple(map(_corners, boxes))
    return found


def _corners(box: str) -> Corners:
    """Return a box outwards to whole pixels, within the image."""
    left, top, right, bottom = (float(side) * SIDE for side in box.split(","))
    start = max(int(top), 0), max(int(left), 0)
    return start, (min(int(np.ceil(bottom)), SIDE), min(int(np.ceil(right)), SIDE))


def _folder() -> Path:
    return data_folder("coco128", "fastestdet/FastestDet.onnx", SOURCE)
