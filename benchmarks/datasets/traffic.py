"""Read the LISA traffic lights from their public copy: positive iff a green one is in the frame.

As in the paper only day frames count, and its split of training and test is that of the set itself:
`dayTrain` against `daySequence1` and `daySequence2`. The paper says nothing of validation. Ours
keeps whole clips apart, since neighbouring frames of one clip are all but the same image.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from PIL import Image

from benchmarks.core.folders import MissingDataError, data_folder
from benchmarks.core.protocol import Example

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.core.protocol import Corners

SOURCE = "https://www.kaggle.com/datasets/mbornoe/lisa-traffic-light-dataset (Jensen et al. 2016)"
CONCEPT = "go"
GO_TAGS = frozenset({"go", "goForward", "goLeft"})

TRAINING = "dayTrain"
VALIDATION_CLIPS = ("dayClip12", "dayClip13")
TEST = ("daySequence1", "daySequence2")
BOXES = "frameAnnotationsBOX.csv"
TAG = "Annotation tag"
FRAME = "Filename"
SIDES = (
    "Upper left corner Y",
    "Upper left corner X",
    "Lower right corner Y",
    "Lower right corner X",
)


@dataclass(frozen=True)
class Traffic:
    """Read day frames, averaged over blocks of `factor` x `factor` pixels.

    A frame without any annotated light is a negative, as is one whose lights are red or yellow.
    The group of an example is the clip it comes from.
    """

    factor: int = 1

    name: ClassVar[str] = "traffic"
    concepts: ClassVar[tuple[str, ...]] = (CONCEPT,)

    def examples(self, split: str) -> Iterator[Example]:
        root = data_folder("lisa", "Annotations", SOURCE)
        for part in _parts(root, split):
            boxes = _green(_inside(root, "Annotations") / part / BOXES)
            for path in _frames(root, part):
                yield _example(path, boxes.get(path.name, ()), self.factor)


def _parts(root: Path, split: str) -> Sequence[str]:
    """Return the folders of a split, relative to the frames as well as to the annotations."""
    kept = tuple(f"{TRAINING}/{clip}" for clip in VALIDATION_CLIPS)
    if split == "training":
        clips = sorted(_inside(root, TRAINING).glob("dayClip*"), key=_number)
        parts = [f"{TRAINING}/{clip.name}" for clip in clips]
        if not parts:
            raise _not_whole(_inside(root, TRAINING))
        return [part for part in parts if part not in kept]
    known = {"validation": kept, "test": TEST}
    if split not in known:
        message = f"split={split!r} is not known; pass training, {', '.join(known)}"
        raise ValueError(message)
    return known[split]


def _number(clip: Path) -> int:
    return int(clip.name.removeprefix("dayClip"))


def _inside(root: Path, name: str) -> Path:
    """Return a folder of the set, which the public copy holds inside one of the same name."""
    doubled = root / name / name
    return doubled if doubled.exists() else root / name


def _frames(root: Path, part: str) -> list[Path]:
    outer, _, clip = part.partition("/")
    folder = _inside(root, outer) / clip / "frames"
    frames = sorted(folder.glob("*.jpg"))
    if not frames:
        raise _not_whole(folder)
    return frames


def _not_whole(folder: Path) -> MissingDataError:
    return MissingDataError(f"no frames in {folder}: the copy is not whole. Get it from {SOURCE}")


def _green(path: Path) -> dict[str, list[Corners]]:
    """Return the boxes of green lights by the name of their frame, in pixels of the full frame."""
    found: dict[str, list[Corners]] = {}
    # Some copies went through a spreadsheet, which leaves commas and a byte order mark.
    with path.open(newline="", encoding="utf-8-sig") as file:
        separator = ";" if ";" in file.readline() else ","
        file.seek(0)
        for row in csv.DictReader(file, delimiter=separator):
            if row[TAG] in GO_TAGS:
                frame = row[FRAME].rpartition("/")[2]
                found.setdefault(frame, []).append(_corners(row))
    return found


def _corners(row: dict[str, Any]) -> Corners:
    top, left, bottom, right = (int(float(row[side])) for side in SIDES)
    return (top, left), (bottom, right)


def _example(path: Path, boxes: Sequence[Corners], factor: int) -> Example:
    image = _averaged(_pixels(path), factor)
    objects = tuple(_scaled(box, factor, image.shape[1:]) for box in boxes)
    truth = np.zeros(image.shape[1:], dtype=bool)
    for (top, left), (bottom, right) in objects:
        truth[top:bottom, left:right] = True
    return Example(
        name=path.stem,
        image=image,
        objects={CONCEPT: objects},
        truths={CONCEPT: truth},
        group=path.stem.partition("--")[0],
    )


def _pixels(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def _averaged(pixels: NDArray[np.uint8], factor: int) -> NDArray[np.float32]:
    """Return (3, height, width) in [0, 1] from bytes (height, width, 3)."""
    height, width, channels = pixels.shape
    if factor < 1 or height % factor or width % factor:
        message = f"factor={factor} must divide the frame's {height} x {width} pixels"
        raise ValueError(message)
    blocks = pixels.reshape(height // factor, factor, width // factor, factor, channels)
    # Sums of bytes are exact, so a factor of 1 gives the same pixels as any other reader.
    sums = blocks.sum(axis=(1, 3), dtype=np.uint32).transpose(2, 0, 1)
    return np.ascontiguousarray(sums, np.float32) / np.float32(255 * factor**2)


def _scaled(box: Corners, factor: int, grid: tuple[int, ...]) -> Corners:
    """Return the blocks that a box touches: never none, so that a small light keeps its label."""
    start = [min(max(side, 0) // factor, end - 1) for side, end in zip(box[0], grid, strict=True)]
    stop = [
        min(max(-(-side // factor), first + 1), end)
        for side, first, end in zip(box[1], start, grid, strict=True)
    ]
    return (start[0], start[1]), (stop[0], stop[1])
