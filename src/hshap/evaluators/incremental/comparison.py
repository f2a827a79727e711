"""The self-check: scores from patches against those of a full forward pass. Needs torch."""

from __future__ import annotations

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
    from hshap.evaluators.incremental.traced_network import Network

CROP_SIDE = 160
"""Side in pixels of the crop on which large images are compared."""

TOLERANCE = 1e-4
"""Largest difference from a full forward pass, relative to its largest score."""


def agree(patched: Heat, full: Heat, epsilon: float) -> bool:
    """Tell whether scores from patches are those of a full pass, up to rounding."""
    allowed = max(TOLERANCE, 8 * epsilon) * float(np.abs(full).max(initial=1e-6))
    return float(np.abs(patched - full).max(initial=0.0)) <= allowed


def precision(module: torch.nn.Module) -> float:
    """Return the coarsest relative precision among a module's parameters."""
    types = {p.dtype for p in module.parameters() if p.is_floating_point()}
    return max((torch.finfo(kind).eps for kind in types), default=0.0)


class OnCrop(NamedTuple):
    """Scores of a crop from patches and in full, and the bytes of its activations for a pixel."""

    found: Heat
    expected: Heat
    bytes_per_pixel: float


def scores_on_crop(network: Network, row: Row, cache: ActivationCache) -> OnCrop:
    """Return the scores of a crop of the image: from a patch, from strips, and twice in full.

    The middle of the crop shows the image, the rest its stand-in. Fails if the network does not
    take images of other sizes.
    """
    grid = row.canvas.grid
    sides = tuple(min(side, CROP_SIDE) for side in grid)
    crop = (
        slice(None),
        *(slice((n - m) // 2, (n + m) // 2) for n, m in zip(grid, sides, strict=True)),
    )
    start, size = tuple(m // 4 for m in sides), tuple(max(1, m // 2) for m in sides)
    middle = (
        slice(None),
        slice(None),
        *(slice(a, a + m) for a, m in zip(start, size, strict=True)),
    )
    anchor = cache.tensor(row.canvas.stand_ins(row.kept, row.draw)[crop])
    image = cache.tensor(row.canvas.image[crop])
    patch = Patch(image[middle], (start,), anchor)
    # Before the patches run, so that they cannot change the input that they are compared on.
    painted = patch.full()
    outside, _ = network.activations(anchor)
    inside, _ = network.activations(image)
    whole, stop = network.whole(inside), tuple(a + n for a, n in zip(start, size, strict=True))
    with torch.inference_mode():
        patched = network.run(patch, outside)
        framed, _ = network.run_boxes([(start, stop)], [whole], outside, image)
        full = network.module(painted)
    found = np.concatenate([as_scores(patched, 1), as_scores(framed, 1)])
    expected = np.repeat(as_scores(full, 1), 2, axis=0)
    return OnCrop(found, expected, size_of(outside) / prod(sides))
