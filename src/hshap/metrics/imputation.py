"""ROAD, remove and debias (Rong et al., 2022): pixels are removed by imputing them.

An imputed pixel carries no information of its own, and hides where pixels are missing. So the
model's score falls because of the removed content, not because of the shape of the hole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import as_image, to_numpy
from hshap.errors import ArgumentError
from hshap.metrics.ablation import Curve, Score, evaluate, image_and_map, ranks
from hshap.metrics.inputs import as_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from hshap._util.types import Array, Grid, Heat, Mask

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def road(  # noqa: PLR0913, model, image and map, then how they are used
    score: Score,
    image: ArrayLike,
    heat: ArrayLike,
    shares: Sequence[float] = SHARES,
    *,
    noise: float = 0.01,
    batch_size: int = 16,
    seed: int = 0,
) -> Curve:
    """Return the scores with the highest shares of the pixels imputed from their neighbours.

    Noise with the standard deviation `noise`, in the image's units, is added to imputed pixels; at
    one seed it is the same for every map. Pass `-heat` to remove the lowest pixels first, and
    `blurred_random(heat.shape)` as a control: the curve of a good map falls faster.

    >>> image = np.full((1, 4, 4), 5.0)  # constant, so imputation changes nothing
    >>> road(lambda batch: batch.mean((1, 2, 3)), image, image[0], shares=[0.0, 0.5], noise=0.0)
    Curve(counts=array([0, 8]), scores=array([5., 5.]))
    """
    pixels, values = image_and_map(image, heat)
    counts = _as_counts(shares, values.size)
    deviation = checks.number("noise", noise, minimum=0.0)
    places = ranks(values, seed)
    grain = deviation * np.random.default_rng([seed, 1]).standard_normal(pixels.shape)

    def removed(count: int) -> Array:
        hidden = places < count
        return np.where(hidden, impute(pixels, hidden) + grain, pixels).astype(pixels.dtype)

    return Curve(counts, evaluate(score, map(removed, counts.tolist()), batch_size))


def blurred_random(grid: Sequence[int], *, sigma: float = 8.0, seed: int = 0) -> Heat:
    """Return a random map from 0 to 1: noise after a Gaussian blur of `sigma` pixels.

    The blur wraps around the edges.

    >>> blurred_random((6, 8), sigma=1.0).shape
    (6, 8)
    """
    shape = tuple(checks.integer("grid", side, minimum=1) for side in grid)
    width = checks.number("sigma", sigma, minimum=0.0)
    values = np.random.default_rng(checks.integer("seed", seed, minimum=0)).random(shape)
    for axis, side in enumerate(shape):
        gain = np.exp(-2 * (np.pi * width * np.fft.fftfreq(side)) ** 2)
        spectrum = np.moveaxis(np.fft.fft(values, axis=axis), axis, -1) * gain
        values = np.moveaxis(np.fft.ifft(spectrum).real, -1, axis)
    values -= values.min()
    return values / (values.max() or 1.0)


def impute(image: ArrayLike, removed: ArrayLike, *, tolerance: float = 1e-4) -> Heat:
    """Return an image in which each removed pixel is the weighted mean of its neighbours.

    In two dimensions the four direct neighbours weigh 1/6 each and the diagonal ones 1/12, as in
    ROAD; at the border, the weights of missing neighbours are left out. The linear system holds at
    every pixel up to `tolerance` times the largest absolute value.

    >>> impute([[0.0, 9.0, 9.0, 3.0]], np.array([False, True, True, False])).round(3)
    array([[0., 1., 2., 3.]])
    """
    pixels = as_image("image", image).astype(np.float64)
    kept = ~_as_removed(removed, pixels.shape[1:])
    limit = checks.number("tolerance", tolerance, minimum=1e-12) * np.abs(pixels).max()
    return _solve(pixels, kept, float(limit))


def _solve(image: Heat, kept: Mask, limit: float) -> Heat:
    """Start from the solution at half the resolution, so that only local errors remain."""
    if kept.all():
        return image
    sums, counts = image * kept, kept.astype(np.float64)
    for axis in range(kept.ndim):
        sums, counts = _halved(sums, axis + 1), _halved(counts, axis)
    start = _solve(sums / np.maximum(counts, 1.0), counts > 0, limit)
    for axis, side in enumerate(kept.shape, 1):
        start = start.repeat(2, axis=axis).take(range(side), axis=axis)
    return _refine(np.where(kept, image, start), ~kept, limit)


def _halved(values: Heat, axis: int) -> Heat:
    """Sum pairs of neighbours along an axis."""
    return np.add.reduceat(values, list(range(0, values.shape[axis], 2)), axis=axis)


def _refine(image: Heat, removed: Mask, limit: float) -> Heat:
    """Solve by conjugate gradients, which need at most as many steps as unknowns."""
    axes = tuple(range(1, image.ndim))
    weight = _neighbours(np.ones((1, *removed.shape)))
    rest = np.where(removed, _neighbours(image) - weight * image, 0.0)
    direction, length = rest, np.sum(rest**2, axes, keepdims=True)
    for _ in range(np.count_nonzero(removed)):
        if np.max(np.abs(rest) / weight) <= limit:
            break
        change = np.where(removed, weight * direction - _neighbours(direction), 0.0)
        step = _ratio(length, np.sum(direction * change, axes, keepdims=True))
        image = image + step * direction
        rest = rest - step * change
        before, length = length, np.sum(rest**2, axes, keepdims=True)
        direction = rest + _ratio(length, before) * direction
    return image


def _neighbours(image: Heat) -> Heat:
    """Return the weighted sum of each pixel's neighbours: (1, 2, 1) on each axis, less the centre.

    On two axes, direct neighbours weigh 2 and diagonal ones 1; the sum of all weights is 12.
    """
    total = image
    for axis in range(1, image.ndim):
        line = np.moveaxis(total, axis, 0)
        blurred = 2.0 * line
        blurred[1:] += line[:-1]
        blurred[:-1] += line[1:]
        total = np.moveaxis(blurred, 0, axis)
    return total - 2.0 ** (image.ndim - 1) * image


def _ratio(part: Heat, whole: Heat) -> Heat:
    # In a channel that is solved already, both are 0.
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _as_removed(value: ArrayLike, grid: Grid) -> Mask:
    removed = to_numpy("removed", value)
    if removed.dtype != np.bool_ or removed.shape != grid or removed.all():
        message = (
            f"removed marks {np.count_nonzero(removed)} pixels of {removed.dtype} and of shape "
            f"{removed.shape}; pass a bool mask of shape {grid} that leaves at least one pixel"
        )
        raise ArgumentError(message)
    return removed


def _as_counts(shares: Sequence[float], pixels: int) -> NDArray[np.int64]:
    values = as_values("shares", shares)
    if values[0] < 0 or values[-1] >= 1 or not (np.diff(values) > 0).all():
        message = f"shares must rise from 0 to below 1, got {checks.shown(shares)}; sort them"
        raise ArgumentError(message)
    # At least one pixel must stay, to impute the others from.
    return np.minimum(np.rint(values * pixels).astype(np.int64), pixels - 1)
