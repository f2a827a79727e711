"""The self-check: scores from patches against those of a full forward pass. Needs torch."""

from __future__ import annotations

import time
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.traced_network import size_of
from hshap.evaluators.outputs import as_scores

if TYPE_CHECKING:
    from hshap._util.types import Heat
    from hshap.evaluators.canvas import Row
    from hshap.evaluators.incremental.activation_cache import ActivationCache
    from hshap.evaluators.incremental.drawing import Corners, Sides
    from hshap.evaluators.incremental.traced_network import Network

CROP_SIDE = 160
"""Side in pixels of the crop on which large images are compared."""

TOLERANCE = 1e-4
"""Largest difference from a full forward pass, relative to its largest score."""


CLEARLY = 1000
"""By how many errors two inputs must differ, so that a share of 0.1 % of one in the other shows."""

ROUNDING = 8
"""The error that scores have at least, in units of the relative precision."""


def agree(patched: Heat, full: Heat, epsilon: float) -> bool:
    """Tell whether scores from patches are those of a full pass, up to rounding."""
    allowed = max(TOLERANCE, ROUNDING * epsilon) * float(np.abs(full).max(initial=1e-6))
    return float(np.abs(patched - full).max(initial=0.0)) <= allowed


def precision(module: torch.nn.Module) -> float:
    """Return the coarsest relative precision among a module's parameters."""
    types = {p.dtype for p in module.parameters() if p.is_floating_point()}
    return max((torch.finfo(kind).eps for kind in types), default=0.0)


class OnCrop(NamedTuple):
    """Scores of two inputs, `found` from batches of both and `expected` in full, each alone.

    `found` has those from patches first, then those from strips. Memory of the activations and time
    of a full pass are given for a pixel.
    """

    found: Heat
    expected: Heat
    bytes_per_pixel: float
    seconds_per_pixel: float

    def passes(self, epsilon: float) -> bool:
        """Tell whether all scores are those of a full pass, up to rounding."""
        return agree(self.found, self._in_full, epsilon)

    def tells_mates_apart(self, epsilon: float) -> bool:
        """Tell whether the two inputs score so differently that mixing them would be seen.

        A share of one input in the score of the other is an error of that share of the difference
        between both. So the share is at most the error divided by the difference.
        """
        error = float(np.abs(self.found - self._in_full).max(initial=0.0))
        least = ROUNDING * epsilon * float(np.abs(self.expected).max(initial=1e-6))
        apart = float(np.abs(self.expected[0] - self.expected[1]).max(initial=0.0))
        return apart > CLEARLY * max(error, least)

    @property
    def _in_full(self) -> Heat:
        return np.tile(self.expected, (2, 1))


def scores_on_crop(network: Network, row: Row, cache: ActivationCache) -> OnCrop:
    """Return the scores of two inputs of the size of a crop of the image.

    Each shows one box of the crop, and the stand-in elsewhere. Fails if the network does not take
    images of other sizes.
    """
    grid = row.canvas.grid
    sides = tuple(min(side, CROP_SIDE) for side in grid)
    crop = (
        slice(None),
        *(slice((n - m) // 2, (n + m) // 2) for n, m in zip(grid, sides, strict=True)),
    )
    boxes = _two_boxes(sides)
    anchor = cache.tensor(row.canvas.stand_ins(row.kept, row.draw)[crop])
    image = cache.tensor(row.canvas.image[crop])
    shown = [image[(slice(None), slice(None), *map(slice, *box))] for box in boxes]
    patch = Patch(torch.cat(shown), tuple(start for start, _ in boxes), anchor)
    # Before the patches run, so that they cannot change the inputs that they are compared on.
    painted = patch.full()
    outside, _ = network.activations(anchor)
    inside, _ = network.activations(image)
    whole = network.whole(inside)
    with torch.inference_mode():
        patched = network.run(patch, outside)
        framed, _ = network.run_boxes(boxes, [whole] * 2, outside, image)
        alone = [_timed(network.module, each) for each in painted.split(1)]
    return OnCrop(
        found=np.concatenate([as_scores(patched, 2), as_scores(framed, 2)]),
        expected=np.concatenate([scores for scores, _ in alone]),
        bytes_per_pixel=size_of(outside) / prod(sides),
        seconds_per_pixel=min(seconds for _, seconds in alone) / prod(sides),
    )


def _two_boxes(sides: Sides) -> list[Corners]:
    """Return boxes of half of each side: one near the origin, one near the opposite corner."""
    size, margin = [max(1, m // 2) for m in sides], [m // 8 for m in sides]
    far = [m - n - space for m, n, space in zip(sides, size, margin, strict=True)]
    return [
        (tuple(start), tuple(a + n for a, n in zip(start, size, strict=True)))
        for start in (margin, far)
    ]


def _timed(module: torch.nn.Module, tensor: torch.Tensor) -> tuple[Heat, float]:
    started = time.perf_counter()
    outputs = module(tensor)
    return as_scores(outputs, 1), time.perf_counter() - started
