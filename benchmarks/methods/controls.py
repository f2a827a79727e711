"""Maps that know nothing of the model: a method that scores no better has shown nothing."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.core.protocol import Method
from hshap.metrics import blurred_random

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Image, Map, Subject


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
