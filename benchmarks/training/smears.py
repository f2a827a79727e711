"""Scenes to train on, drawn from the smears of the malaria images.

A scene is a window of a smear, with single cells of other images of the set pasted into it, so that
stages, stains and neighbours come in more combinations than a few smears hold. Boxes say where each
concept is, so the network learns at each place and not from the label of the scene alone. Half the
windows are drawn around places that the network takes for a parasite: an image has a hundred cells,
and one false alarm among them makes it positive.

An explanation hides parts of an image by the mean training image. Half the scenes are hidden alike,
by rectangles or all but rectangles: a network that had never seen that might answer anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import avg_pool2d, interpolate

from benchmarks.datasets.malaria import CONCEPTS, Malaria, cells, entries
from benchmarks.models.compact import STRIDE

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Corners, Image

    Alarms = tuple[NDArray[np.int64], ...]

ODDS = {"red_blood_cell": 0.38, "trophozoite": 0.28, "ring": 0.22, "schizont": 0.12}
BORDER = 12  # pixels along the border of a smear, whose cut cells nobody labelled
CENTRE = 6  # pixels around the middle of a box whose places must answer
NOBODY, UNKNOWN = 0, -1  # owners of pixels beside the numbers of things


@dataclass(frozen=True, eq=False)
class Smear:
    """Hold a smear (3, height, width) and all its boxes, of whatever category."""

    image: Image
    boxes: tuple[tuple[str, Corners], ...]


@dataclass(frozen=True, eq=False)
class Material:
    """The smears and cells that scenes are drawn from; `mean` fills hidden pixels."""

    smears: tuple[Smear, ...]
    cells: dict[str, list[Image]]
    mean: Image


def smears(split: str, factor: int) -> tuple[Smear, ...]:
    data, found = Malaria(factor), []
    for example, (_, entry) in zip(data.examples(split), entries(split), strict=True):
        named = data.boxes(entry, example.image.shape[1:]).items()
        boxes = tuple((category, box) for category, listed in named for box in listed)
        found.append(Smear(example.image, boxes))
    return tuple(found)


def material(split: str, factor: int, mean: Image) -> Material:
    by_kind: dict[str, list[Image]] = {kind: [] for kind in ODDS}
    for cell in cells(split, factor):
        by_kind[cell.kind].append(cell.image)
    return Material(smears(split, factor), by_kind, mean)


def mean_image(given: tuple[Smear, ...]) -> Image:
    """Average the images of the most frequent shape."""
    shapes = [smear.image.shape for smear in given]
    usual = max(sorted(set(shapes)), key=shapes.count)
    same = [smear.image for smear in given if smear.image.shape == usual]
    return np.mean(same, axis=0, dtype=np.float32)


@dataclass(eq=False)
class Scene:
    """Hold an image in the making, the things in it and whose each of its pixels is.

    A thing is its category, its box and how many pixels it had before others came to lie on it.
    """

    image: Image
    owners: NDArray[np.int16]
    things: list[tuple[str, Corners, int]] = field(default_factory=list)

    def add(self, category: str, box: Corners, shape: NDArray[np.bool_]) -> None:
        """Add a thing of a shape as large as its box, which may reach out of the image."""
        (top, left), (bottom, right) = box
        self.things.append((category, box, int(shape.sum())))
        part = self.owners[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
        inside = shape[max(-top, 0) :, max(-left, 0) :][: part.shape[0], : part.shape[1]]
        part[inside] = len(self.things)

    def paste(self, rng: Generator, kind: str, cell: Image) -> None:
        """Paste a cell at random, its edges blended, its background brought near the image's."""
        height, width = cell.shape[1:]
        top, left = (
            int(rng.integers(max(whole - part, 0) + 1))
            for whole, part in zip(self.owners.shape, (height, width), strict=True)
        )
        part = self.image[:, top : top + height, left : left + width]
        if rng.random() < 0.6:
            ratio = field_colour(self.image[:, ::4, ::4]) / field_colour(cell[:, ::2, ::2])
            cell = cell * np.clip(ratio, 0.7, 1.5) ** rng.uniform(0.5, 1)
        cell = np.clip(cell * rng.uniform(0.92, 1.08), 0, 1)
        seen = blend(height, width, oval=rng.random() < 0.7)
        within = seen[: part.shape[1], : part.shape[2]]
        part += within * (cell[:, : part.shape[1], : part.shape[2]] - part)
        self.add(kind, ((top, left), (top + height, left + width)), seen > 0.5)

    def hide(self, where: NDArray[np.bool_], stand_in: Image) -> None:
        self.image = np.where(where, stand_in, self.image)
        self.owners[where] = NOBODY

    def targets(self, concepts: tuple[str, ...] = CONCEPTS) -> NDArray[np.int8]:
        """Return 1 where a concept is, 0 where not, -1 where nobody can say (concepts, places).

        Nobody can say off the centre of a cell, nor if about half of it is hidden.
        """
        rows, columns = (np.arange(-(-size // STRIDE)) * STRIDE for size in self.owners.shape)
        targets = np.zeros((len(concepts), len(rows), len(columns)), dtype=np.int8)
        targets[:, self.owners[::STRIDE, ::STRIDE] == UNKNOWN] = -1
        seen = np.bincount(np.maximum(self.owners, 0).ravel(), minlength=len(self.things) + 1)
        for number, (category, ((top, left), (bottom, right)), area) in enumerate(self.things, 1):
            if category not in concepts or seen[number] < 0.15 * area:
                continue
            target = targets[concepts.index(category)]
            down = abs(rows - (top + bottom) / 2)[:, None]
            along = abs(columns - (left + right) / 2)
            within = (down <= (bottom - top) / 2 + 2) & (along <= (right - left) / 2 + 2)
            target[within & (target == 0)] = -1
            if seen[number] > 0.65 * area:
                target[(down <= CENTRE) & (along <= CENTRE)] = 1
        return targets


def draw(rng: Generator, given: Material, alarms: Alarms, *, side: int, pasted: int) -> Scene:
    """Draw a scene; `alarms` holds the pixels (n, 2) of each smear to look at again.

    Three scenes of four get cells pasted into them, `pasted` on average.
    """
    which = int(rng.integers(len(given.smears)))
    smear = given.smears[which]
    room = np.array(smear.image.shape[1:]) - side
    corner = rng.integers(room + 1)
    if len(alarms[which]) and rng.random() < 0.5:
        corner = rng.choice(alarms[which]) - rng.integers(16, side - 16, 2)
    scene = window(smear, np.clip(corner, 0, room), side)
    if rng.random() < 0.75:
        for kind in rng.choice(list(ODDS), int(rng.integers(1, 2 * pasted)), p=[*ODDS.values()]):
            among = given.cells[str(kind)]
            scene.paste(rng, str(kind), turned(rng, among[int(rng.integers(len(among)))]))
    scene.image = stained(rng, scene.image)
    if rng.random() < 0.5:
        top, left = (int(rng.integers(size - side + 1)) for size in given.mean.shape[1:])
        stand_in = given.mean[:, top : top + side, left : left + side]
        flat = stand_in.mean((1, 2), keepdims=True)
        scene.hide(hidden(rng, side), flat if rng.random() < 0.3 else stand_in)
    return scene


def window(smear: Smear, corner: NDArray[np.int64], side: int) -> Scene:
    """Cut a window out of a smear, with the cells that lie in it."""
    top, left = (int(at) for at in corner)
    height, width = smear.image.shape[1:]
    owners = np.full((height, width), UNKNOWN, dtype=np.int16)
    owners[BORDER : height - BORDER, BORDER : width - BORDER] = NOBODY
    cut = np.s_[top : top + side, left : left + side]
    scene = Scene(smear.image[:, *cut].copy(), owners[cut].copy())
    for category, (start, stop) in smear.boxes:
        (t, u), (v, w) = (np.subtract(end, corner).tolist() for end in (start, stop))
        if max(t, u) < side and min(v, w) > 0:
            scene.add(category, ((t, u), (v, w)), np.ones((v - t, w - u), dtype=bool))
    return scene


def turned(rng: Generator, cell: Image) -> Image:
    """Turn, mirror or scale a cell at random."""
    cell = np.rot90(cell, int(rng.integers(4)), (1, 2))
    cell = cell[:, :, ::-1] if rng.random() < 0.5 else cell
    if rng.random() < 0.3:
        size = [max(8, round(length * rng.uniform(0.8, 1.25))) for length in cell.shape[1:]]
        given = torch.from_numpy(cell.copy())[None]
        cell = interpolate(given, size, mode="bilinear", antialias=True)[0].numpy()
    return cell


def field_colour(image: Image) -> NDArray[np.floating]:
    """Return the colour of the bright background, (3, 1, 1)."""
    return np.maximum(np.percentile(image, 92, axis=(1, 2), keepdims=True), 0.2)


def blend(height: int, width: int, *, oval: bool) -> NDArray[np.float32]:
    """Return how much of a pasted cell is seen at each pixel, less towards its edge."""
    rows = ((np.arange(height) + 0.5) * 2 / height - 1)[:, None]
    columns = (np.arange(width) + 0.5) * 2 / width - 1
    away = np.hypot(rows, columns) - 0.15 if oval else np.maximum(abs(rows), abs(columns))
    return np.clip((1 - away) / 0.2, 0, 1).astype(np.float32)


def hidden(rng: Generator, side: int) -> NDArray[np.bool_]:
    """Hide some rectangles, or all but those."""
    mask = np.zeros((side, side), dtype=bool)
    for _ in range(int(rng.integers(1, 5))):
        height, width = (int(length) for length in rng.integers(16, side // 2 + 24, 2))
        top, left = int(rng.integers(side - height + 1)), int(rng.integers(side - width + 1))
        mask[top : top + height, left : left + width] = True
    return mask if rng.random() < 0.5 else ~mask


def stained(rng: Generator, image: Image) -> Image:
    """Change stain and focus: smears differ in them more than we have smears."""
    grey = image.mean(0)
    image = np.clip(grey + (image - grey) * rng.uniform(0.6, 1.4), 1e-3, 1)
    bend = rng.uniform(0.75, 1.35) * rng.uniform(0.85, 1.18, (3, 1, 1))
    gain = rng.uniform(0.85, 1.08) * rng.uniform(0.93, 1.07, (3, 1, 1))
    image = np.clip(image ** bend.astype(np.float32) * gain, 0, 1).astype(np.float32)
    if rng.random() < 0.2:
        image = avg_pool2d(torch.from_numpy(image), 3, 1, 1, count_include_pad=False).numpy()
    return image
