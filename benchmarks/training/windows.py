"""Windows of the circuit boards to train on, labelled by comparing each image with its template.

No boxes are used. A window shows parts of an image on its template, as an explanation does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import max_pool2d

from benchmarks.datasets import boards

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

# Edges of a pair stray by up to 1.5 pixels at factor 2. A pixel that differs from all
# pixels within 2 is a defect; one that differs from all within 1 may be; the rest counts as equal.
SURE_REACH, DOUBT_REACH, CONTRAST = 2, 1, 0.3
SURE_PIXELS = 5  # fewer may still be an edge astray

CROP = 160
TILE = 16  # places of a tile are pooled and labelled together
MARGIN = 12  # a defect this near to a tile may be seen from it


@dataclass(frozen=True, eq=False)
class Pairs:
    """Hold aligned images (n, 1, height, width) and where they differ, surely or perhaps."""

    tests: Tensor
    templates: Tensor
    sure: Tensor
    doubt: Tensor

    def __len__(self) -> int:
        return len(self.tests)


@dataclass(frozen=True, eq=False)
class Shown:
    """The images that the network is shown, and the visible and hidden differences in them."""

    images: Tensor
    sure: Tensor
    hidden: Tensor
    doubt: Tensor


def read_pairs(split: str, factor: int) -> Pairs:
    """Read all pairs of a split, without their boxes."""
    files = boards.pairs(split)
    tests = np.stack([boards.read_image(pair.test, factor) for pair in files])
    templates = np.stack([boards.read_image(pair.template, factor) for pair in files])
    return compare(torch.from_numpy(tests), torch.from_numpy(templates))


def compare(tests: Tensor, templates: Tensor) -> Pairs:
    """Mark where the images of each pair differ by more than an edge astray."""
    sure = beyond(tests, templates, SURE_REACH) > CONTRAST
    doubt = beyond(tests, templates, DOUBT_REACH) > CONTRAST
    return Pairs(tests, templates, sure, doubt | sure)


def beyond(one: Tensor, other: Tensor, reach: int) -> Tensor:
    """Return how far each pixel of either image lies outside the values near it in the other."""
    outside = [
        difference
        for first, second in ((one, other), (other, one))
        for difference in (first - highest(second, reach), -highest(-second, reach) - first)
    ]
    return torch.stack(outside).amax(dim=0)


def highest(images: Tensor, reach: int) -> Tensor:
    return max_pool2d(images, 2 * reach + 1, stride=1, padding=reach)


def show(pairs: Pairs, visible: Tensor) -> Shown:
    """Paint the visible pixels of the test images on their templates, as an explanation does."""
    images = torch.where(visible, pairs.tests, pairs.templates)
    return Shown(images, pairs.sure & visible, pairs.sure & ~visible, pairs.doubt & visible)


def in_all_ways(pairs: Pairs, seed: int) -> Shown:
    """Show each pair as the test image, as the template, and in parts that the seed draws."""
    parts = rectangles(tuple(pairs.tests.shape), np.random.default_rng(seed))
    shown = [show(pairs, mask) for mask in (torch.ones_like(parts), torch.zeros_like(parts), parts)]
    fields = ("images", "sure", "hidden", "doubt")
    return Shown(*(torch.cat([getattr(part, field) for part in shown]) for field in fields))


def rectangles(shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Draw masks of the visible pixels: all, none, some rectangles, or all but some."""
    visible = np.zeros(shape, dtype=bool)
    height, width = shape[-2:]
    for mask in visible[:, 0]:
        start = rng.random() < 0.5
        mask[:] = start
        if rng.random() < 0.5:
            continue
        for _ in range(rng.integers(1, 7)):
            tall, wide = np.exp(rng.uniform(np.log(8), np.log(CROP), 2)).astype(int)
            row, column = rng.integers(-tall + 1, height), rng.integers(-wide + 1, width)
            mask[max(row, 0) : row + tall, max(column, 0) : column + wide] = not start
    return torch.from_numpy(visible)


def crops(pairs: Pairs, rows: NDArray[np.int64], rng: np.random.Generator) -> Pairs:
    """Cut a window out of each pair, and turn or mirror it."""
    stacked = torch.stack([_crop(pairs, int(row), rng) for row in rows])
    tests, templates, sure, doubt = stacked.unbind(dim=1)
    return Pairs(tests[:, None], templates[:, None], sure[:, None] > 0, doubt[:, None] > 0)


def _crop(pairs: Pairs, row: int, rng: np.random.Generator) -> Tensor:
    height, width = pairs.tests.shape[2:]
    top, left = rng.integers(height - CROP + 1), rng.integers(width - CROP + 1)
    parts = (pairs.tests, pairs.templates, pairs.sure, pairs.doubt)
    window = torch.stack([part[row, 0, top : top + CROP, left : left + CROP] for part in parts])
    turned = torch.rot90(window, int(rng.integers(4)), dims=(1, 2))
    return turned.flip(2) if rng.random() < 0.5 else turned


def tile_labels(shown: Shown) -> tuple[Tensor, Tensor]:
    """Say of each tile (n, rows, columns) whether it shows a defect, and whether that is known.

    A defect cut by the border of the mask is neither shown nor hidden, so its tile is left out.
    """
    seen = tile_sums(shown.sure)
    present = (seen >= SURE_PIXELS) & (seen >= 2 * tile_sums(shown.hidden))
    near = max_pool2d(shown.doubt.float(), TILE + 2 * MARGIN, TILE, MARGIN)[:, 0]
    absent = near == 0
    return present, present | absent


def window_labels(present: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Say of each window (n,) whether any of its tiles shows a defect, and if that is known."""
    some = present.flatten(1).any(dim=1)
    return some, some | known.flatten(1).all(dim=1)


def tile_sums(mask: Tensor) -> Tensor:
    return tiles(mask[:, 0].float(), TILE).sum(dim=-1)


def tiles(maps: Tensor, side: int) -> Tensor:
    """Cut maps (n, height, width) into tiles (n, rows, columns, side * side)."""
    count, height, width = maps.shape
    cut = maps.reshape(count, height // side, side, width // side, side)
    return cut.transpose(2, 3).flatten(3)
