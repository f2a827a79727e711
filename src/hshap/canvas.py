"""A canvas: one image, what stands in for its hidden pixels, and the scores seen so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hshap.baselines import Still
from hshap.errors import ArgumentError, ModelError
from hshap.targets import Target, describe_target, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hshap.baselines import Fill
    from hshap.regions import Coalition, Region

Array = Any
"""A NumPy array, or a torch tensor on some device: both index and assign alike."""


class Canvas:
    """One image of a run, with the targets that are explained on it.

    `put` brings a NumPy array to where the model wants it. `position` says which image of the run
    this is, for messages. The scores of a coalition are `(draws, targets)`.
    """

    def __init__(  # noqa: PLR0913, all six are facts about one image
        self,
        image: NDArray[Any],
        fill: Fill,
        root: Region,
        targets: Sequence[Target],
        *,
        put: Callable[[NDArray[Any]], Array],
        position: int,
    ) -> None:
        self.image = put(image)
        self.shape = image.shape
        self.root = root
        self.targets = tuple(targets)
        self.position = position
        self.scores: dict[Coalition, NDArray[np.float64]] = {}
        self._fill, self._put = fill, put
        bare = fill(())
        self._check(bare)
        self.draws = len(bare)
        self._latest: tuple[Coalition, tuple[Array, ...]] = ((), tuple(put(bare)))

    @property
    def grid(self) -> tuple[int, ...]:
        """Lengths of the spatial axes."""
        return self.shape[1:]

    def count(self, kept: Coalition) -> int:
        """Count the inputs that a coalition's value takes: with nothing hidden, one is enough."""
        return 1 if kept == (self.root,) else self.draws

    def stand_in(self, kept: Coalition, draw: int) -> Array:
        """Return what stands in for the hidden pixels, the very same array where it can be."""
        if not isinstance(self._fill, Still) and self._latest[0] != kept:
            drawn = self._fill(kept)
            self._check(drawn)
            self._latest = (kept, tuple(self._put(drawn)))
        return self._latest[1][draw]

    def measure(self, kept: Sequence[Coalition], outputs: NDArray[np.float64]) -> NDArray[Any]:
        """Return the targets' values `(rows, targets)` of model outputs, all finite."""
        values = np.stack([measure(target, outputs) for target in self.targets], axis=1)
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            shown = kept[row] or "nothing, the bare baseline"
            message = (
                f"the model gave {values[row, column]} for target "
                f"{describe_target(self.targets[column])} on image {self.position} with "
                f"{shown} kept; explain a finite output, such as a logit"
            )
            raise ModelError(message)
        return values

    def _check(self, stand_ins: Any) -> None:
        shape = np.shape(stand_ins)
        if shape[1:] != self.shape or not shape[0]:
            message = (
                f"baseline gave stand-ins of shape {shape} for an image of {self.shape}; "
                f"it must give {('draws', *self.shape)}"
            )
            raise ArgumentError(message)


class Row(NamedTuple):
    """One input for the model: a coalition shown on a canvas, with one draw of the baseline."""

    canvas: Canvas
    kept: Coalition
    draw: int
