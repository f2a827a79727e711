"""Maps that know nothing of the model: a method that scores no better has shown nothing."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.core.protocol import Method
from hshap._util.smoothing import gaussian
from hshap.metrics import blurred_random

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Image, Map, Subject

COLOURS, FAINTEST = 3, 1e-4  # principal colours, and their least share of the largest variance
OUTLIERS = 0.001  # the share of pixels at either end of a channel that may be outliers
WIDEST, STEPS = 4.0, 8  # standard deviations from the mean that are told apart, and steps to there
FEWEST = 0.003  # added to shares of pixels: a single pixel does not take all the weight


def random(subject: Subject, image: Image) -> Map:
    """Draw every pixel by itself, another map for every image."""
    key = zlib.crc32(np.ascontiguousarray(image).tobytes())
    return np.random.default_rng((subject.seed, key)).random(image.shape[1:])


def centre(subject: Subject, image: Image) -> Map:
    """Return a bell over the middle, where photographs often have their subject."""
    del subject
    down, right = (np.linspace(-2, 2, length) for length in image.shape[1:])  # 2 sigma each way
    return np.exp(-0.5 * (down[:, None] ** 2 + right**2))


def sobel(subject: Subject, image: Image) -> Map:
    """Return how strong the edges of the grey image are."""
    del subject
    grey = np.pad(image.mean(axis=0, dtype=np.float64), 1, mode="edge")
    return np.hypot(_slope(grey), _slope(grey.T).T)


def difference(subject: Subject, image: Image) -> Map:
    """Return the difference from the baseline, which is enough where the baseline tells all."""
    return np.abs(image - subject.baseline).sum(axis=0, dtype=np.float64)


def rare_colours(subject: Subject, image: Image) -> Map:
    """Return 1 / (s + 0.003), where s is the share of pixels whose colour is at least as rare.

    How rare a colour is follows from a histogram along the image's principal colours. Small things
    that a classifier looks for mostly have a rare colour, so this finds many of them without a
    model, and dots that the model ignores, too.
    """
    del subject
    values = image.reshape(len(image), -1).astype(np.float64)
    low, high = np.quantile(values, [OUTLIERS, 1.0 - OUTLIERS], axis=1, keepdims=True)
    width = np.where(high > low, high - low, np.inf)
    values = np.clip(values, low - width, high + width)
    centred = values - values.mean(axis=1, keepdims=True)
    variances, axes = np.linalg.eigh(centred @ centred.T / centred.shape[1])
    kept = np.flatnonzero(variances > variances[-1] * FAINTEST)[-COLOURS:]
    if not len(kept):
        return np.zeros(image.shape[1:])
    places = axes[:, kept].T @ centred / np.sqrt(variances[kept])[:, None]
    steps = np.rint(np.clip(places / WIDEST, -1.0, 1.0) * STEPS).astype(np.intp) + STEPS
    shape = (2 * STEPS + 1,) * len(steps)
    cell = np.ravel_multi_index(tuple(steps), shape)
    counts = np.bincount(cell, minlength=math.prod(shape))
    density = gaussian(counts.reshape(shape), 1.0, range(len(shape))).ravel()
    order = np.argsort(density, kind="stable")
    shares = np.cumsum(counts[order]) / counts.sum()
    last = np.searchsorted(density[order], density, side="right") - 1
    return (1.0 / (shares[last] + FEWEST))[cell].reshape(image.shape[1:])


def blurred(subject: Subject, image: Image) -> Map:
    """Return smooth noise, ROAD's control: a hole of such a shape alone may already mislead."""
    key = zlib.crc32(np.ascontiguousarray(image).tobytes())
    return blurred_random(image.shape[1:], seed=subject.seed + key)


def _slope(grey: NDArray[np.float64]) -> NDArray[np.float64]:
    change = grey[2:] - grey[:-2]
    return (change[:, :-2] + 2 * change[:, 1:-1] + change[:, 2:]) / 8


METHODS = (
    Method("random", "control", random),
    Method("centre", "control", centre),
    Method("Sobel", "control", sobel),
    Method("difference", "control", difference),
    Method("blurred random", "control", blurred),
)
