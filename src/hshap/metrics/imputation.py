"""ROAD, remove and debias (Rong et al., 2022): pixels are removed by imputing them.

An imputed pixel shows nothing of its own, and little of where pixels are missing, so the model's
score falls for what was removed and not for the shape of the hole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hshap._util import checks
from hshap._util.arrays import as_image, to_numpy
from hshap.errors import ArgumentError
from hshap.metrics.ablation import Curve, Score, evaluate, image_and_map, ranks
from hshap.metrics.inputs import as_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def road(  # noqa: PLR0913, all but two belong to the question
    score: Score,
    image: Any,
    heat: Any,
    shares: Sequence[float] = SHARES,
    *,
    noise: float = 0.01,
    batch_size: int = 16,
    seed: int = 0,
) -> Curve:
    """Return the scores with the highest shares of the pixels imputed from their neighbours.

    `noise` is the standard deviation, in the image's units, of what is added to imputed pixels; it
    is the same for every map at one seed. Pass `-heat` to remove the lowest first, and
    `blurred_random(heat.shape)` for the control: a map that beats chance must fall faster.

    >>> image = np.full((1, 4, 4), 5.0)  # nothing stands out, so nothing is lost
    >>> road(lambda batch: batch.mean((1, 2, 3)), image, image[0], shares=[0.0, 0.5], noise=0.0)
    Curve(counts=array([0, 8]), scores=array([5., 5.]))
    """
    pixels, values = image_and_map(image, heat)
    counts = _as_counts(shares, values.size)
    deviation = checks.number("noise", noise, minimum=0.0)
    places = ranks(values, seed)
    grain = deviation * np.random.default_rng([seed, 1]).standard_normal(pixels.shape)

    def removed(count: int) -> NDArray[Any]:
        hidden = places < count
        return np.where(hidden, impute(pixels, hidden) + grain, pixels).astype(pixels.dtype)

    return Curve(counts, evaluate(score, map(removed, counts.tolist()), batch_size))


def blurred_random(
    grid: Sequence[int], *, sigma: float = 8.0, seed: int = 0
) -> NDArray[np.float64]:
    """Return a map from 0 to 1 that knows nothing: noise under a Gaussian blur of `sigma` pixels.

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


def impute(image: Any, removed: Any, *, tolerance: float = 1e-4) -> NDArray[np.float64]:
    """Return an image in which each removed pixel is the weighted mean of its neighbours.

    In two dimensions the four direct neighbours weigh 1/6 each and the diagonal ones 1/12, as in
    ROAD; at the border the weights of those that exist count. The linear system is not solved to
    the last digit: it holds at every pixel to within `tolerance` times the largest absolute value.

    >>> impute([[0.0, 9.0, 9.0, 3.0]], np.array([False, True, True, False])).round(3)
    array([[0., 1., 2., 3.]])
    """
    pixels = as_image("image", image).astype(np.float64)
    kept = ~_as_removed(removed, pixels.shape[1:])
    limit = checks.number("tolerance", tolerance, minimum=1e-12) * np.abs(pixels).max()
    return _solve(pixels, kept, float(limit))


def _solve(image: NDArray[Any], kept: NDArray[np.bool_], limit: float) -> NDArray[Any]:
    """Start from the solution at half the resolution: all that is left to find is local."""
    if kept.all():
        return image
    sums, counts = image * kept, kept.astype(np.float64)
    for axis, side in enumerate(kept.shape):
        sums = np.add.reduceat(sums, np.arange(0, side, 2), axis=axis + 1)
        counts = np.add.reduceat(counts, np.arange(0, side, 2), axis=axis)
    start = _solve(sums / np.maximum(counts, 1.0), counts > 0, limit)
    for axis, side in enumerate(kept.shape, 1):
        start = start.repeat(2, axis=axis).take(range(side), axis=axis)
    return _refine(np.where(kept, image, start), ~kept, limit)


def _refine(image: NDArray[Any], removed: NDArray[np.bool_], limit: float) -> NDArray[Any]:
    """Solve by conjugate gradients, which need as many steps as unknowns at the very most."""
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


def _neighbours(image: NDArray[Any]) -> NDArray[Any]:
    """Return the weighted sum of each pixel's neighbours: (1, 2, 1) on each axis, less the centre.

    On two axes that is 2 for direct neighbours and 1 for diagonal ones, of 12 in all.
    """
    total = image
    for axis in range(1, image.ndim):
        line = np.moveaxis(total, axis, 0)
        blurred = 2.0 * line
        blurred[1:] += line[:-1]
        blurred[:-1] += line[1:]
        total = np.moveaxis(blurred, 0, axis)
    return total - 2.0 ** (image.ndim - 1) * image


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[Any]:
    # A channel that is solved has nothing left to divide by.
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _as_removed(value: Any, grid: tuple[int, ...]) -> NDArray[np.bool_]:
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
    # At least one pixel must stay for the others to be imputed from.
    return np.minimum(np.rint(values * pixels).astype(np.int64), pixels - 1)
