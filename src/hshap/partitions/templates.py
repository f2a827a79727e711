"""Templates: baselines that show the same scene as the image but for a few places.

A template has the edges of the image at the same places, as sharp as the image has them, and hardly
differs from it over most of the area. Noise, compression, a slight change of light and a shift of a
pixel or two do not change that. A colour has no edges, a blur has weaker ones, and the mean of many
images has others. `benchmarks/notes/decision-0025.md` has the trials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util.arrays import as_pixels
from hshap._util.smoothing import gaussian
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from hshap._util.types import Heat, Image

FINE, COARSE = 1.0, 2.0
"""Standard deviations, in pixels, for the sharpness of edges and for their places."""

FEW = 0.1
"""Share of the pixels that findings may change: those whose edges differ most are left out."""

SAME = 0.8
"""Least correlation between the other edges of an image and those of its template."""

SHARP = 0.9
"""Least strength of a template's strongest edges, as a share of the image's at the same pixels."""

NEAR = 0.2
"""Largest median difference, as a share of the image's range."""

STRONGEST = 0.05
"""Share of the pixels that have the strongest edges."""


def difference_of(image: Image, hidden: Image) -> Heat:
    """Return how far each pixel `(*grid)` is from the image with every pixel hidden."""
    pixels = as_pixels("image", image).astype(np.float64)
    behind = as_pixels("hidden", hidden).astype(np.float64)
    if behind.shape != pixels.shape:
        message = (
            f"hidden has shape {behind.shape}, but the image has {pixels.shape}; "
            "pass the image with every pixel hidden"
        )
        raise ArgumentError(message)
    return np.abs(pixels - behind).mean(axis=0)


def is_template(image: Image, hidden: Image) -> bool:
    """Tell whether the hidden image shows the same scene but for a few places.

    >>> rng = np.random.default_rng(0)
    >>> template = rng.random((1, 32, 32))
    >>> image = template.copy()
    >>> image[0, 4:8, 20:24] = 1.0
    >>> is_template(image, template), is_template(image, np.full_like(image, 0.5))
    (True, False)
    """
    apart = difference_of(image, hidden)
    low, high = np.percentile(image, [1, 99])
    if not apart.any() or np.median(apart) > NEAR * (high - low):
        return False
    ours, theirs = _edges(image, COARSE), _edges(hidden, COARSE)
    gaps = ((ours - theirs) ** 2).sum(axis=0)
    kept = gaps <= np.quantile(gaps, 1 - FEW)
    product = (ours * theirs).sum(axis=0)[kept].sum()
    sizes = (ours**2).sum(axis=0)[kept].sum() * (theirs**2).sum(axis=0)[kept].sum()
    return bool(product > SAME * np.sqrt(sizes)) and _is_sharp(image, hidden)


def _is_sharp(image: Image, hidden: Image) -> bool:
    """Tell whether the strongest edges of the hidden image are hardly weaker than the image's."""
    ours, theirs = (np.sqrt((_edges(one, FINE) ** 2).sum(axis=0)) for one in (image, hidden))
    strongest = theirs >= np.quantile(theirs, 1 - STRONGEST)
    return bool(theirs[strongest].mean() >= SHARP * ours[strongest].mean())


def _edges(image: Image, sigma: float) -> Heat:
    """Return the slopes `(axes * channels, *grid)` of a smoothed image along each spatial axis."""
    axes = [axis for axis in range(1, image.ndim) if image.shape[axis] > 1]
    smooth = gaussian(image, sigma, axes)
    slopes = [np.gradient(smooth, axis=axis) for axis in axes]
    return np.concatenate(slopes) if slopes else np.zeros_like(smooth)
