"""Frames: the part of an image that a network sees, and places in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from hshap._util.types import Grid, Tensor
    from hshap.models.preparation import Preparation


@runtime_checkable
class HasPreparation(Protocol):
    """A model that resizes or crops images by itself."""

    @property
    def preparation(self) -> Preparation:
        """The steps from a plain image to the input of the network."""
        ...


class Frame(NamedTuple):
    """The size of a network's input, the corner of its crop, and pixels of the image for one of it.

    >>> Frame((32, 32), (0.0, 4.0), (2.0, 2.0)).in_image(8, 10)
    (24.0, 20.0)
    """

    size: tuple[int, int]
    start: tuple[float, float]
    ratio: tuple[float, float]

    @classmethod
    def of(cls, model: object, grid: Grid) -> Frame:
        """Return the frame of a model for images of a size."""
        height, width = grid
        if not isinstance(model, HasPreparation):
            return cls((height, width), (0.0, 0.0), (1.0, 1.0))
        steps = model.preparation.steps(grid)
        ratio = height / steps.resized[0], width / steps.resized[1]
        return cls(steps.cropped, steps.start, ratio)

    def in_image(self, right: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
        """Return places of the input, columns and rows, as places of the image."""
        return (right + self.start[1]) * self.ratio[1], (down + self.start[0]) * self.ratio[0]
