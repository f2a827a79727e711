"""Rare colours: a guide inside leaves for models without gradients, from the image alone.

Small things that a classifier looks for mostly have a colour that is rare in the image. So a pixel
counts the more, the fewer pixels have a colour as rare as its own. This is a guess about images and
no evidence of the model, so the games that were played may refute it.
`docs/decisions/0039-rare-colours-guide-maps-without-gradients.md` has the trials.
"""

from __future__ import annotations

from math import log, prod
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.smoothing import gaussian
from hshap.evaluators.evidence import FAILED, MOST_PIXELS, RARITY, levels
from hshap.explanation.nearby import shrunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Heat, Image
    from hshap.evaluators.evidence import Guide
    from hshap.games.game import Game

AXES = 3
"""Principal axes of the colours that are told apart."""

FAINTEST = 1e-4
"""Least variance of such an axis, as a share of the largest: below it is the noise of a camera."""

OUTLIERS = 0.001
"""Share of pixels at either end of a channel that may be outliers, such as missing values."""

WIDEST = 4.0
"""Standard deviations from the mean colour, along each axis, that are told apart."""

STEPS = 8
"""Steps of a principal axis from the mean to `WIDEST`; densities are smoothed by one step."""

FEWEST = 0.003
"""Added to shares of pixels, so that a single pixel does not take all the weight."""

BLOCKS = 50
"""Blocks along the mean side of an image that the guide is made for: it then takes little room."""

LEVELS = 15
"""Levels of the guide above 0, of the 255 that evidence has."""

SIGNAL = 2
"""Dimensions of `(channels, length)`."""

MOST_VALUES = 2**24
"""Images with more values, over all channels, have no guide: it would take gigabytes."""

REFUTED = "none: the scores do not follow rare colours"
"""The origin of a guide that the played games refute."""


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
    found = _compact(heat)
    return tuple(
        one._replace(levels=found, origin=RARITY) if lack else one
        for one, lack in zip(without, lacks, strict=True)
    )


def unless_refuted(guide: Guide, games: Sequence[Game]) -> Guide:
    """Return the guide, or none if games went against rare colours.

    A game divides the score of a region among its parts. The guide foretells the same by its sums
    over the parts, and so do their areas. It is refuted if areas foretold the scores more than
    twice as well: a few games may go against it by chance.

    >>> import hshap
    >>> from hshap.evaluators.evidence import Guide
    >>> left, right = hshap.Box((0, 0), (2, 2)), hshap.Box((0, 2), (2, 4))
    >>> values = np.array([0.0, 1.0, 0.0, 1.0])  # none, left, right, both: all of it is on the left
    >>> whole = hshap.Box((0, 0), (2, 4))
    >>> game = hshap.Game(whole, (left, right), values, hshap.shapley(values), np.zeros(2))
    >>> rare_on_the_right = np.array([[17, 17, 17, 255], [17, 17, 17, 17]], dtype=np.uint8)
    >>> unless_refuted(Guide(rare_on_the_right, RARITY), [game]).origin
    'none: the scores do not follow rare colours'
    """
    if guide.levels is None or guide.origin != RARITY:
        return guide
    weights = (guide.levels / 255.0) ** 2
    gain = sum(_gain(game, weights) for game in games)
    return guide if gain >= -log(2) else guide._replace(levels=None, origin=REFUTED)


def _gain(game: Game, weights: Heat) -> float:
    """Return by how much the guide foretells a game better than areas do, as a log likelihood."""
    shares = np.maximum(game.coefficients, 0.0)
    areas = np.array([part.area for part in game.children], dtype=np.float64)
    sums = np.array([weights[part.index].sum() for part in game.children])
    if not shares.any() or not (sums > 0).all():
        return 0.0
    ratios = (sums / sums.sum()) / (areas / areas.sum())
    return float(shares / shares.sum() @ np.log(ratios))


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
    counts = np.bincount(cell, minlength=prod(shape))
    density = gaussian(counts.reshape(shape), 1.0, range(len(shape))).ravel()
    at_least = _share_at_most(density, counts)
    return (1.0 / (at_least + FEWEST))[cell].reshape(pixels.shape[1:])


def _places(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return colours in standard deviations from the mean along their principal axes.

    None if they do not vary, or are not finite. Outliers are moved towards the others, and values
    are scaled, so that no variance is too large or too small for a number.
    """
    if not np.isfinite(values).all():
        return None
    low, high = np.quantile(values, [OUTLIERS, 1.0 - OUTLIERS], axis=1, keepdims=True)
    width = np.where(high > low, high - low, np.inf)  # a channel that is flat but for few pixels
    values = np.clip(values, low - width, high + width)
    centred = values - values.mean(axis=1, keepdims=True)
    largest = np.abs(centred).max()
    if not np.ptp(values, axis=1).any() or not 0 < largest < np.inf:
        return None
    centred /= largest
    variances, axes = np.linalg.eigh(centred @ centred.T / centred.shape[1])
    kept = np.flatnonzero(variances > variances[-1] * FAINTEST)[-AXES:]
    return axes[:, kept].T @ centred / np.sqrt(variances[kept])[:, None]


def _share_at_most(density: NDArray[np.float64], counts: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return, for each cell, the share of pixels in cells of at most its density."""
    order = np.argsort(density, kind="stable")
    shares = np.cumsum(counts[order]) / counts.sum()
    last = np.searchsorted(density[order], density, side="right") - 1
    return shares[last]


def _compact(heat: Heat) -> NDArray[np.uint8]:
    """Return a map in few levels, one for each block: it is smoothed again inside leaves."""
    step = max(1, int(heat.size ** (1 / heat.ndim) / BLOCKS))
    unit = 255 // LEVELS
    found = (np.rint(levels(shrunk(heat, step)) / unit) * unit).astype(np.uint8)
    for axis in range(heat.ndim):
        found = found.repeat(step, axis)
    return found[tuple(map(slice, heat.shape))]
