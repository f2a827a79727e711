"""Rare colours: a guide inside leaves for models without gradients, from the image alone.

Small things that a classifier looks for mostly have a colour that is rare in the image. So a pixel
counts the more, the fewer pixels have a colour as rare as its own.
`docs/decisions/0039-rare-colours-guide-maps-without-gradients.md` has the trials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util.smoothing import gaussian
from hshap.evaluators.evidence import FAILED, MOST_PIXELS, RARITY, levels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Heat, Image
    from hshap.evaluators.evidence import Guide

AXES = 3
"""Principal axes of the colours that are told apart."""

WIDEST = 4.0
"""Standard deviations from the mean colour, along each axis, that are told apart."""

STEPS = 8
"""Steps of a principal axis from the mean to `WIDEST`; densities are smoothed by one step."""

FEWEST = 0.003
"""Added to shares of pixels, so that a single pixel does not take all the weight."""

SIGNAL = 2
"""Dimensions of `(channels, length)`."""

MOST_VALUES = 2**24
"""Images with more values, over all channels, have no guide: it would take gigabytes."""


def guides_by_rarity(pixels: Image, without: Sequence[Guide]) -> tuple[Guide, ...]:
    """Return the guides of rare colours for each target, or those of `without`.

    A guide that is there stays, and so does the reason of a backward pass that failed. The rule was
    tried on images, so signals along one axis have none.
    """
    lacks = [one.levels is None and not one.origin.startswith(FAILED) for one in without]
    is_large = pixels[0].size > MOST_PIXELS or pixels.size > MOST_VALUES
    heat = None if pixels.ndim == SIGNAL or is_large or not any(lacks) else rarity(pixels)
    if heat is None:
        return tuple(without)
    found = levels(heat)
    return tuple(
        one._replace(levels=found, origin=RARITY) if lack else one
        for one, lack in zip(without, lacks, strict=True)
    )


def rarity(pixels: Image) -> Heat | None:
    """Return how much each pixel of `(channels, *grid)` counts; None if all have one colour.

    That is 1 / (s + 0.003), where s is the share of pixels whose colour is at least as rare. How
    rare a colour is follows from a histogram along its principal axes.

    >>> image = np.zeros((1, 20, 20))
    >>> image[0, 4, 5] = 1.0
    >>> heat = rarity(image)
    >>> bool(heat[4, 5] > 100 * heat[0, 0])
    True
    """
    places = _places(pixels.reshape(len(pixels), -1).astype(np.float64))
    if places is None:
        return None
    steps = np.rint(np.clip(places / WIDEST, -1.0, 1.0) * STEPS).astype(np.intp) + STEPS
    shape = (2 * STEPS + 1,) * len(steps)
    cell = np.ravel_multi_index(tuple(steps), shape)
    counts = np.bincount(cell, minlength=int(np.prod(shape)))
    density = gaussian(counts.reshape(shape), 1.0, range(len(shape))).ravel()
    at_least = _share_at_most(density, counts)
    return (1.0 / (at_least + FEWEST))[cell].reshape(pixels.shape[1:])


def _places(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return colours in standard deviations from the mean along their principal axes.

    None if they do not vary, or are not finite.
    """
    if not np.isfinite(values).all() or not np.ptp(values, axis=1).any():
        return None
    centred = values - values.mean(axis=1, keepdims=True)
    variances, axes = np.linalg.eigh(centred @ centred.T / centred.shape[1])
    kept = np.flatnonzero(variances > variances[-1] * 1e-9)[-AXES:]
    return axes[:, kept].T @ centred / np.sqrt(variances[kept])[:, None]


def _share_at_most(density: NDArray[np.float64], counts: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return, for each cell, the share of pixels in cells of at most its density."""
    order = np.argsort(density, kind="stable")
    shares = np.cumsum(counts[order]) / counts.sum()
    last = np.searchsorted(density[order], density, side="right") - 1
    return shares[last]
