"""Photographs that the wheel of scikit-image holds, and what a network of ImageNet is asked there.

All photographs of things are taken; textures, pages, drawings, and pictures of microscopes and
telescopes are left out. The first class of each is the one that EfficientNet-lite0 gives it, right
or wrong. Where a second object is in view that has a class of its own, that class is asked, too.
Boxes were drawn by hand before any map was judged, in pixels of the prepared image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.core.folders import MissingDataError
from benchmarks.models.efficientnet import SIDE, prepared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Corners, Image


@dataclass(frozen=True)
class Question:
    """A class of ImageNet that is explained, and the boxes of the thing that a good map shows.

    `is_there` says whether the thing is of this class. If not, the network took it for one.
    """

    index: int
    name: str
    thing: str
    boxes: tuple[Corners, ...]
    is_there: bool = True

    def truth(self) -> NDArray[np.bool_]:
        """Return the pixels in the boxes, (224, 224)."""
        mask = np.zeros((SIDE, SIDE), dtype=bool)
        for (top, left), (bottom, right) in self.boxes:
            mask[top:bottom, left:right] = True
        return mask


@dataclass(frozen=True)
class Photograph:
    """A photograph by the name of its function in `skimage.data`, and its questions."""

    name: str
    function: str
    questions: tuple[Question, ...]

    def image(self) -> Image:
        """Return the photograph as the network gets it, (3, 224, 224)."""
        try:
            from skimage import data

            found = getattr(data, self.function)()
        except (ImportError, FileNotFoundError, ConnectionError) as reason:
            message = f"no photograph {self.name!r}: {reason}; run pip install scikit-image==0.26.0"
            raise MissingDataError(message) from reason
        # A stereo pair: the left one.
        return prepared(np.asarray(found[0] if isinstance(found, tuple) else found))


ALL = ((0, 0), (SIDE, SIDE))
CLOCK = ((62, 60), (168, 182))
CUP = ((0, 28), (182, 182))
COINS: tuple[Corners, ...] = (
    *(((8, left), (46, right)) for left, right in ((17, 52), (60, 102), (112, 152), (165, 224))),
    *(((63, left), (107, right)) for left, right in ((20, 97), (106, 140), (156, 201))),
    *(((127, left), (168, right)) for left, right in ((17, 98), (108, 151), (160, 201))),
    *(((182, left), (224, right)) for left, right in ((0, 14), (27, 119), (136, 224))),
)

PHOTOGRAPHS = (
    Photograph(
        "astronaut",
        "astronaut",
        (
            Question(560, "football helmet", "helmet", (((155, 120), (224, 224)),), is_there=False),
            Question(812, "space shuttle", "model of the shuttle", (((0, 155), (130, 215)),)),
        ),
    ),
    Photograph(
        "camera",
        "camera",
        (
            Question(872, "tripod", "tripod", (((85, 118), (140, 155)), ((140, 103), (224, 182)))),
            Question(759, "reflex camera", "camera", (((48, 110), (86, 150)),)),
        ),
    ),
    Photograph("cat", "cat", (Question(282, "tiger cat", "cat", (ALL,)),)),
    Photograph(
        "clock",
        "clock",
        (
            Question(971, "bubble", "moving clock", (CLOCK,), is_there=False),
            Question(892, "wall clock", "moving clock", (CLOCK,)),
        ),
    ),
    Photograph(
        "coffee",
        "coffee",
        (
            Question(967, "espresso", "mouth of the cup", (((0, 28), (118, 182)),)),
            Question(968, "cup", "cup", (CUP,)),
        ),
    ),
    Photograph("coins", "coins", (Question(971, "bubble", "coins", COINS, is_there=False),)),
    Photograph(
        "motorcycle",
        "stereo_motorcycle",
        (
            Question(
                665,
                "moped",
                "motorcycle",
                (((60, 0), (208, 160)), ((25, 140), (208, 224))),
                is_there=False,
            ),
            Question(535, "disc brake", "front wheel", (((135, 183), (208, 224)),)),
        ),
    ),
    Photograph(
        "rocket",
        "rocket",
        (
            Question(657, "missile", "rocket", (((60, 90), (224, 132)),), is_there=False),
            Question(
                540,
                "drilling platform",
                "two towers",
                (((58, 18), (224, 52)), ((58, 176), (224, 210))),
                is_there=False,
            ),
        ),
    ),
)
