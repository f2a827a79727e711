"""LIME of the package lime: a linear model over superpixels, for the softmax of column 1.

"LIME" is the package as it comes: quickshift, 1000 samples, hidden segments show their mean colour.

"LIME paper" follows the experiments that the authors published with their package; the paper itself
gives no settings. On the synthetic images they take 200 samples, quickshift with a kernel of 1
pixel, and hide with the colour 1, which is nearly black in their images of bytes; on the
photographs 100 samples, and else the package's defaults. We tell the two by the number of pixels.
They keep the segments of positive weight as a mask of 0 and 1; here all weights stand in the map.

"LIME baseline" hides with the baseline, as every other method here does: the package asks for a
colour, but takes an image. It has the segments of "LIME paper" and the samples of "LIME". Our
synthetic network takes nearly black patches for crosses, also in images without any, so that the
published settings leave LIME nothing to learn from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core.protocol import Method
from benchmarks.methods.common import (
    BATCH,
    PRESENT,
    as_rgb,
    channels_first,
    package,
    quiet,
    scores,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Image, Map, Subject

FEW_PIXELS = 128 * 128  # the synthetic images have 100 x 120


@dataclass(frozen=True, eq=False)
class Settings:
    """The settings that differ; other arguments of quickshift are the package's own."""

    samples: int = 1000
    kernel: int = 4
    hide: Any = None  # a number, an image (height, width, 3), or each segment's mean colour


def _lime(subject: Subject, image: Image) -> Map:
    return _explain(subject, image, Settings())


def _behind_the_baseline(subject: Subject, image: Image) -> Map:
    kernel = 1 if image[0].size <= FEW_PIXELS else 4
    return _explain(subject, image, Settings(kernel=kernel, hide=as_rgb(subject.baseline)))


def _as_in_the_paper(subject: Subject, image: Image) -> Map:
    if image[0].size <= FEW_PIXELS:
        return _explain(subject, image, Settings(samples=200, kernel=1, hide=1 / 255))
    return _explain(subject, image, Settings(samples=100))


def _explain(subject: Subject, image: Image, settings: Settings) -> Map:
    lime = package("lime.lime_image")
    segment = package("lime.wrappers.scikit_image").SegmentationAlgorithm(
        "quickshift", kernel_size=settings.kernel, max_dist=200, ratio=0.2
    )

    def score(batch: NDArray[Any]) -> NDArray[Any]:
        return scores(subject.model, channels_first(batch, len(image)))

    with quiet():
        found = lime.LimeImageExplainer(random_state=subject.seed).explain_instance(
            # As doubles: quickshift asks for them, and hidden colours are not rounded twice.
            as_rgb(image).astype(np.float64),
            score,
            labels=(PRESENT,),
            top_labels=None,
            hide_color=settings.hide,
            num_samples=settings.samples,
            batch_size=BATCH,
            segmentation_fn=segment,
        )
    return _painted(found.segments, found.local_exp[PRESENT])


def _painted(segments: NDArray[Any], weights: list[tuple[int, float]]) -> Map:
    levels = np.zeros(segments.max() + 1)
    for segment, weight in weights:
        levels[segment] = weight
    return levels[segments]


METHODS = (
    Method("LIME", "LIME", _lime, package="lime"),
    Method("LIME paper", "LIME", _as_in_the_paper, package="lime"),
    Method("LIME baseline", "LIME", _behind_the_baseline, package="lime"),
)
