"""A canvas: one image, what stands in for its hidden pixels, and the scores seen so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hshap.baselines import Imageless, Still
from hshap.checks import shown
from hshap.errors import ArgumentError, ModelError
from hshap.targets import Target, describe_target, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hshap.baselines import Baseline, Fill
    from hshap.regions import Coalition, Region

    Put = Callable[[NDArray[Any]], Any]

Array = Any
"""A NumPy array, or a torch tensor on some device: both index and assign alike."""


MOST_SHARED = 8


class StandIns:
    """What a baseline gives for an image, where the model wants it.

    The very same arrays are returned for what does not change: whoever paints on them can tell.
    """

    def __init__(self, fill: Fill, shape: tuple[int, ...], put: Put) -> None:
        if not callable(fill):
            message = (
                f"baseline returned {shown(fill)} for an image; it must return a callable from the "
                "kept regions to stand-ins, as Still(images) is"
            )
            raise ArgumentError(message)
        self._fill, self._shape, self._put = fill, shape, put
        self._kept: Coalition = ()
        self.draws = 0
        self._arrays = self._draw(())
        self.draws = len(self._arrays)

    @property
    def is_still(self) -> bool:
        """Whether the stand-ins are the same whatever is kept."""
        return isinstance(self._fill, Still)

    def __call__(self, kept: Coalition, draw: int) -> Array:
        if kept != self._kept and not isinstance(self._fill, Still):
            self._arrays, self._kept = self._draw(kept), kept
        return self._arrays[draw]

    def _draw(self, kept: Coalition) -> tuple[Array, ...]:
        drawn = self._fill(kept)
        shape = np.shape(drawn)
        if shape[1:] != self._shape or not shape[0] or shape[0] != (self.draws or shape[0]):
            message = (
                f"baseline gave stand-ins of shape {shape} for an image of {self._shape}; it must "
                f"give {(self.draws or 'draws', *self._shape)}, whatever is kept"
            )
            raise ArgumentError(message)
        return tuple(self._put(drawn))


class Backdrop:
    """The stand-ins of a run: shared by images where the baseline does not look at them."""

    def __init__(self, baseline: Baseline, put: Put) -> None:
        self._baseline, self._put = baseline, put
        self._shared: dict[Any, StandIns] = {}

    def behind(self, image: NDArray[Any]) -> StandIns:
        """Return what stands in for the hidden pixels of an image."""
        if not isinstance(self._baseline, Imageless):
            return StandIns(self._baseline(image), image.shape, self._put)
        key = (image.shape, image.dtype)
        if key not in self._shared:
            fill = self._baseline.still(image.shape, image.dtype)
            self._shared[key] = StandIns(fill, image.shape, self._put)
            # Images of ever new shapes must not fill the memory.
            while len(self._shared) > MOST_SHARED:
                del self._shared[next(iter(self._shared))]
        return self._shared[key]


@dataclass(eq=False, slots=True)
class Score:
    """The values of a coalition `(draws, targets)`, and who waits for those still missing."""

    values: NDArray[np.float64]
    missing: int
    waiting: list[Any] = field(default_factory=list)


class Canvas:
    """One image of a run, with the targets that are explained on it.

    `position` says which image of the run this is, for messages.
    """

    def __init__(  # noqa: PLR0913, all are facts about one image
        self,
        image: NDArray[Any],
        stand_ins: StandIns,
        root: Region,
        targets: Sequence[Target],
        *,
        put: Put,
        position: int,
    ) -> None:
        self.image = put(image)
        self.shape = image.shape
        self.stand_ins = stand_ins
        self.root = root
        self.targets = tuple(targets)
        self.position = position
        self.scores: dict[Coalition, Score] = {}

    @property
    def grid(self) -> tuple[int, ...]:
        """Lengths of the spatial axes."""
        return self.shape[1:]

    @property
    def is_still(self) -> bool:
        """Whether what stands in is the same whatever is kept."""
        return self.stand_ins.is_still

    @property
    def draws(self) -> int:
        """Number of stand-ins, and so of inputs that a value takes."""
        return self.stand_ins.draws

    def count(self, kept: Coalition) -> int:
        """Count the inputs that a coalition's value takes: with nothing hidden, one is enough."""
        if self.draws == 1 or len(kept) != 1:
            return self.draws
        return 1 if kept[0].size == self.root.size else self.draws


class Row(NamedTuple):
    """One input for the model: a coalition shown on a canvas, with one draw of the baseline."""

    canvas: Canvas
    kept: Coalition
    draw: int


def measured(rows: Sequence[Row], outputs: NDArray[np.float64]) -> NDArray[Any]:
    """Return the values `(rows, targets)` of model outputs, all finite; rows share targets."""
    targets = rows[0].canvas.targets
    values = np.stack([measure(target, outputs) for target in targets], axis=1)
    if not np.isfinite(values).all():
        number, column = np.argwhere(~np.isfinite(values))[0]
        row = rows[number]
        kept = row.kept or "nothing, the bare baseline"
        message = (
            f"the model gave {values[number, column]} for target "
            f"{describe_target(targets[column])} on image {row.canvas.position} with "
            f"{kept} kept; explain a finite output, such as a logit"
        )
        raise ModelError(message)
    return values
