"""The model's score as the highest pixels of a map are removed from the image, or inserted.

`score` takes a batch `(n, *image.shape)` and returns n numbers. Pixels are ordered by the map, the
highest first; pixels of equal value come in a random order that `seed` fixes. Pixels at or below
zero, which the map calls irrelevant, come last.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap._util import checks
from hshap._util.arrays import as_image, to_numpy
from hshap.errors import ArgumentError
from hshap.metrics.inputs import as_map

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from hshap._util.types import Array, Heat, Image

Score = Callable[["Array"], "ArrayLike"]
"""The model: takes a batch of images and returns one number for each."""

LOG_STEPS = 30


class Curve(NamedTuple):
    """The model's scores against the number of pixels that were changed.

    >>> Curve(counts=np.array([0, 2, 4]), scores=np.array([1.0, 0.5, 0.0])).scores[-1].item()
    0.0
    """

    counts: NDArray[np.int64]
    scores: Heat


def ablation_curve(  # noqa: PLR0913, model, image and map, then how they are used
    score: Score,
    image: ArrayLike,
    heat: ArrayLike,
    baseline: ArrayLike,
    counts: Sequence[int] | None = None,
    *,
    batch_size: int = 16,
    seed: int = 0,
) -> Curve:
    """Return the scores with the highest pixels replaced by the baseline, as in the paper.

    `baseline` is a number or an array that broadcasts to the image. `counts` are the numbers of
    replaced pixels, by default 0 and then about 30 numbers from 1 to all, even on a log scale.

    >>> image = np.array([[1.0, 2.0, 4.0, 8.0]])
    >>> total = lambda batch: batch.sum((1, 2))
    >>> ablation_curve(total, image, heat=[0.1, 0.0, 0.7, 0.9], baseline=0.0, counts=[0, 1, 2])
    Curve(counts=array([0, 1, 2]), scores=array([15., 7., 3.]))
    """
    pixels, values = image_and_map(image, heat)
    reference = _like(baseline, pixels)
    numbers = _log_spaced(values.size) if counts is None else _as_counts(counts, values.size)
    places = ranks(values, seed)
    images = (np.where(places < count, reference, pixels) for count in numbers)
    return Curve(numbers, evaluate(score, images, batch_size))


def deletion(  # noqa: PLR0913, model, image and map, then how they are used
    score: Score,
    image: ArrayLike,
    heat: ArrayLike,
    baseline: ArrayLike,
    *,
    steps: int = 50,
    batch_size: int = 16,
    seed: int = 0,
) -> Curve:
    """Return the scores from the image to the baseline, in even steps; a small area is good.

    >>> image = np.array([[1.0, 2.0, 4.0, 8.0]])
    >>> deletion(lambda batch: batch.sum((1, 2)), image, image[0], baseline=0.0, steps=2)
    Curve(counts=array([0, 2, 4]), scores=array([15., 3., 0.]))
    """
    counts = _evenly(as_map("heat", heat).size, steps)
    return ablation_curve(score, image, heat, baseline, counts, batch_size=batch_size, seed=seed)


def insertion(  # noqa: PLR0913, model, image and map, then how they are used
    score: Score,
    image: ArrayLike,
    heat: ArrayLike,
    baseline: ArrayLike,
    *,
    steps: int = 50,
    batch_size: int = 16,
    seed: int = 0,
) -> Curve:
    """Return the scores from the baseline to the image, in even steps; a large area is good.

    >>> image = np.array([[1.0, 2.0, 4.0, 8.0]])
    >>> insertion(lambda batch: batch.sum((1, 2)), image, image[0], baseline=0.0, steps=2)
    Curve(counts=array([0, 2, 4]), scores=array([ 0., 12., 15.]))
    """
    pixels, values = image_and_map(image, heat)
    bare, counts = _like(baseline, pixels), _evenly(values.size, steps)
    return ablation_curve(score, bare, values, pixels, counts, batch_size=batch_size, seed=seed)


def area_under(curve: Curve) -> float:
    """Return the area under a curve divided by its width, that is the mean score.

    >>> area_under(Curve(np.array([0, 2, 4]), np.array([1.0, 0.5, 0.0])))
    0.5
    """
    counts, scores = (to_numpy("curve", axis).astype(np.float64) for axis in curve)
    if not len(counts) or counts[0] >= counts[-1]:
        message = f"curve has the counts {counts.tolist()}; pass one with two different counts"
        raise ArgumentError(message)
    return float(np.trapezoid(scores, counts) / (counts[-1] - counts[0]))


def image_and_map(image: ArrayLike, heat: ArrayLike) -> tuple[Image, Heat]:
    """Return an image `(channels, *grid)` and a map on its grid."""
    pixels, values = as_image("image", image), as_map("heat", heat)
    if values.shape != pixels.shape[1:]:
        message = (
            f"heat has shape {values.shape}, but the image has {pixels.shape}; "
            f"pass a map of shape {pixels.shape[1:]}"
        )
        raise ArgumentError(message)
    return pixels, values


def ranks(heat: Heat, seed: int) -> NDArray[np.int64]:
    """Return the place of each pixel in the order of the map, 0 for the highest."""
    rng = np.random.default_rng(checks.integer("seed", seed, minimum=0))
    shuffled = rng.permutation(heat.size)
    order = shuffled[np.argsort(-heat.ravel()[shuffled], kind="stable")]
    places = np.empty(heat.size, np.int64)
    places[order] = np.arange(heat.size)
    return places.reshape(heat.shape)


def evaluate(score: Score, images: Iterable[Array], batch_size: int) -> Heat:
    """Return the score of each image; at most one batch of them is in memory."""
    size = checks.integer("batch_size", batch_size, minimum=1)
    stream, answers = iter(images), list["Heat"]()
    while batch := list(islice(stream, size)):
        answer = to_numpy("score", score(np.stack(batch)))
        usable = answer.shape == (len(batch),)
        if not usable or not np.isfinite(answer).all():
            message = (
                f"score returned {checks.shown(answer)} for {len(batch)} images; "
                f"return one finite number for each, of shape ({len(batch)},)"
            )
            raise ArgumentError(message)
        answers.append(answer.astype(np.float64))
    return np.concatenate(answers)


def _like(baseline: ArrayLike, image: Image) -> Image:
    values = as_map("baseline", baseline)
    try:
        return np.broadcast_to(values, image.shape).astype(image.dtype)
    except ValueError:
        message = (
            f"baseline has shape {values.shape}, but the image has {image.shape}; "
            "pass a number or an array of the image's shape"
        )
        raise ArgumentError(message) from None


def _as_counts(counts: Sequence[int], pixels: int) -> NDArray[np.int64]:
    numbers = [checks.integer("counts", count, minimum=0) for count in counts]
    if not numbers or numbers[-1] > pixels or sorted(set(numbers)) != numbers:
        message = (
            f"counts must rise from 0 or more to at most {pixels}, the pixels of the map, "
            f"got {checks.shown(counts)}; sort them and leave out larger numbers"
        )
        raise ArgumentError(message)
    return np.array(numbers, np.int64)


def _log_spaced(pixels: int) -> NDArray[np.int64]:
    return np.unique(np.rint([0, *np.geomspace(1, pixels, LOG_STEPS)]).astype(np.int64))


def _evenly(pixels: int, steps: int) -> Sequence[int]:
    number = checks.integer("steps", steps, minimum=1)
    return np.unique(np.rint(np.linspace(0, pixels, number + 1)).astype(np.int64)).tolist()
