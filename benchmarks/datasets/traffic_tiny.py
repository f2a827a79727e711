"""Write a tiny copy of the LISA traffic lights, to run the whole pipeline without the real one.

A light is a dark box with a coloured disc: green at the bottom if it says go, red at the top if it
says stop. Grey clutter surrounds it, so that neither dark boxes nor brightness tell the class.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from benchmarks.datasets.traffic import BOXES, FRAME, SIDES, TAG, TEST, TRAINING, VALIDATION_CLIPS

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.core.protocol import Corners

    Light = tuple[str, Corners]

HEIGHT, WIDTH = 64, 96
BOX_HEIGHT, BOX_WIDTH = 18, 10
LAMP = 3  # radius
SPOTS = (3, 19, 35, 51, 67, 83)  # left sides that leave boxes apart
GREEN, RED = (40, 240, 120), (250, 50, 40)
GO, STOP = ("go", "goForward", "goLeft"), ("stop", "stopLeft")
ORIGIN = ("Origin file", "Origin frame number", "Origin track", "Origin track frame number")
NIGHT = "nightTrain/nightClip1"  # for readers to leave out


def write_tiny(  # noqa: PLR0913, the last two are styles of copies that exist
    folder: Path,
    *,
    clips: int,
    frames: int,
    seed: int,
    doubled: bool = True,
    separator: str = ";",
) -> None:
    """Write that many frames into each of `clips` training clips and of all held-out parts."""
    rng = np.random.default_rng(seed)
    names = [f"dayClip{number}" for number in range(1, clips + 1)]
    for part in (*(f"{TRAINING}/{name}" for name in (*names, *VALIDATION_CLIPS)), *TEST, NIGHT):
        outer, _, clip = part.partition("/")
        lights = {f"{clip or outer}--{number:05d}.jpg": _lights(rng) for number in range(frames)}
        home = (folder / outer / outer if doubled else folder / outer) / clip / "frames"
        home.mkdir(parents=True)
        for name, shown in lights.items():
            # Full colour resolution: the usual halved one would smear lamps this small.
            _draw(rng, shown).save(home / name, quality=95, subsampling=0)
        boxes = folder / "Annotations" / ("Annotations" if doubled else "") / part / BOXES
        prefix = "dayTest" if part in TEST else "dayTraining"
        _write_boxes(boxes, prefix, lights, separator)


def _lights(rng: np.random.Generator) -> list[Light]:
    """Draw the lights of a frame: half the frames say go, a quarter has no light at all."""
    kinds = ((GO,), (GO, STOP), (STOP,), ())[rng.integers(4)]
    spots = rng.choice(SPOTS, len(kinds), replace=False)
    tops = rng.integers(2, HEIGHT // 2, len(kinds))
    return [
        (
            str(rng.choice(tags)),
            ((int(top), int(left)), (int(top) + BOX_HEIGHT, int(left) + BOX_WIDTH)),
        )
        for tags, top, left in zip(kinds, tops, spots, strict=True)
    ]


def _draw(rng: np.random.Generator, lights: list[Light]) -> Image.Image:
    noise = rng.normal(150, 12, (HEIGHT, WIDTH, 1)).clip(0, 255).astype(np.uint8)
    image = Image.fromarray(np.repeat(noise, 3, axis=2))
    pen = ImageDraw.Draw(image)
    for _ in range(6):
        left, top = int(rng.integers(WIDTH)), int(rng.integers(HEIGHT))
        grey = int(rng.integers(20, 230))
        pen.rectangle((left, top, left + 9, top + 12), fill=(grey, grey, grey))
    for tag, ((top, left), (bottom, right)) in lights:
        pen.rectangle((left, top, right - 1, bottom - 1), fill=(25, 25, 25))
        row = bottom - LAMP - 2 if tag in GO else top + LAMP + 1
        column = (left + right) // 2
        reach = (column - LAMP, row - LAMP, column + LAMP - 1, row + LAMP - 1)
        pen.ellipse(reach, fill=GREEN if tag in GO else RED)
    return image


def _write_boxes(path: Path, prefix: str, lights: dict[str, list[Light]], separator: str) -> None:
    path.parent.mkdir(parents=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator)
        top, left, bottom, right = SIDES
        writer.writerow((FRAME, TAG, left, top, right, bottom, *ORIGIN))
        for number, (name, shown) in enumerate(lights.items()):
            for track, (tag, ((y0, x0), (y1, x1))) in enumerate(shown):
                origin = ("tiny.avi", number, track, number)
                writer.writerow((f"{prefix}/{name}", tag, x0, y0, x1, y1, *origin))
