"""The few nouns of the benchmark: `Example`, `DataSet`, `Subject` and `Method`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    Image = NDArray[np.float32]
    Map = NDArray[np.floating]

Corners = tuple[tuple[int, int], tuple[int, int]]  # ((top, left), (bottom, right)), half open


@dataclass(frozen=True, eq=False)
class Example:
    """One image (channels, height, width), and the places of each concept in it.

    `objects` gives the boxes of each concept; a concept without any is absent. `truths` gives masks
    (height, width), where the data set knows better than its boxes. `counterfactual` is the same
    scene without any concept, where there is one.
    """

    name: str
    image: Image
    objects: dict[str, tuple[Corners, ...]]
    truths: dict[str, NDArray[np.bool_]]
    counterfactual: Image | None = None
    group: str = ""  # results are also given for each group, such as "1 cross"

    def label(self, concept: str) -> bool:
        """Say whether the concept is in the image."""
        return bool(self.objects.get(concept))


class DataSet(Protocol):
    """A set of images, read one at a time since they may not fit into memory together.

    `split` is "training", "validation" or "test".
    """

    name: str
    concepts: tuple[str, ...]

    def examples(self, split: str) -> Iterator[Example]: ...


@dataclass(frozen=True, eq=False)
class Subject:
    """All that a method may use to explain an image.

    `model` maps a batch of images to two logits each, (absent, present), in evaluation mode: column
    1 is explained. `layer` is the last layer whose output still has places, for Grad-CAM.
    `baseline` fills hidden pixels: the mean training image, or the counterfactual of the image.
    `background` holds some training images (n, *image.shape). `size` is about the size of the
    smallest object, in pixels a side. `template` says whether the baseline is the counterfactual.
    """

    model: nn.Module
    layer: nn.Module
    baseline: Image
    background: Image
    size: int
    seed: int
    template: bool = False


class UnknownNameError(ValueError):
    """No method or figure has this name; the message lists the names there are."""


class Cannot(Exception):  # noqa: N818, it is an outcome more than an error
    """A method cannot explain this; its message says why and stands in the results."""


@dataclass(frozen=True)
class Method:
    """A way to explain: `explain(subject, image)` gives a map (height, width), more is more.

    `family` groups the settings of one method. `package` is its package on PyPI, or None for ours.
    `gradients` says that it needs more of the model than its outputs.
    """

    name: str
    family: str
    explain: Callable[[Subject, Image], Map]
    package: str | None = None
    gradients: bool = False
