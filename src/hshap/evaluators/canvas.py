"""Canvases: an image and the stand-ins for its hidden pixels, in the memory of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import numpy as np

from hshap._util.arrays import frozen, to_numpy
from hshap._util.cache import BoundedCache
from hshap._util.checks import shown
from hshap.baselines.protocol import IgnoresImage, Still
from hshap.baselines.recipes import Blur, Constant, OwnColour
from hshap.errors import ArgumentError
from hshap.partitions.regions import copy

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap._util.types import Array, Grid, Image, Shape, Tensor
    from hshap.baselines.protocol import Baseline, Fill
    from hshap.partitions.protocol import Coalition, Region

    Put: TypeAlias = Callable[[Array], Tensor]

MOST_SHAPES = 8
"""Image shapes whose stand-ins are kept at a time."""


class StandIns:
    """The stand-ins that a baseline gives for an image, where the model takes its inputs.

    Stand-ins that do not depend on the shown regions are the same array object every time. An
    input painted over that object needs only its changed regions repainted.
    """

    def __init__(self, fill: Fill, shape: Shape, put: Put) -> None:
        if not callable(fill):
            message = (
                f"baseline returned {shown(fill)} for an image; it must return a callable from the "
                "kept regions to stand-ins, as Still(images) is"
            )
            raise ArgumentError(message)
        self._fill, self._shape, self._put = fill, shape, put
        self.is_still = isinstance(fill, Still)  # the same whichever regions are shown
        self._kept: Coalition = ()
        self.draws = 0
        self._host: Array | None = None
        self._arrays = self._draw(())
        self.draws = len(self._arrays)

    def __call__(self, kept: Coalition, draw: int) -> Tensor:
        """Return one stand-in `(channels, *grid)` for the pixels outside of `kept`."""
        if not self.is_still and kept != self._kept:
            self._arrays, self._kept = self._draw(kept), kept
        return self._arrays[draw]

    def on_host(self, draw: int) -> Array:
        """Return one stand-in of the bare baseline as an array: nothing comes from a device."""
        own = self((), draw)
        if isinstance(own, np.ndarray):
            return own
        return cast("Array", self._host)[draw]

    def _draw(self, kept: Coalition) -> tuple[Tensor, ...]:
        # A baseline may fill one array with the stand-ins of one image after another.
        drawn = frozen(to_numpy("baseline's answer", self._fill(kept)))
        shape = drawn.shape
        if shape[1:] != self._shape or not drawn.size or shape[0] != (self.draws or shape[0]):
            message = (
                f"baseline gave stand-ins of shape {shape} for an image of {self._shape}; it must "
                f"give {(self.draws or 'draws', *self._shape)}, whichever regions are shown"
            )
            raise ArgumentError(message)
        put = tuple(self._put(drawn))
        if not kept and not isinstance(put[0], np.ndarray):
            self._host = drawn
        return put


class Backdrop:
    """The stand-ins of a run: images share them where the baseline does not look at the image.

    >>> from hshap import Constant
    >>> from hshap.protocols import Box
    >>> image = np.ones((3, 4, 4))
    >>> behind = Backdrop(Constant(0.5), put=np.asarray)
    >>> float(behind.hidden(image).mean()), behind.canvas(image, Box((0, 0), (4, 4)), 0).grid
    (0.5, (4, 4))
    """

    def __init__(self, baseline: Baseline, put: Put) -> None:
        self.baseline, self._put = baseline, put
        self._unlooking = baseline if isinstance(baseline, IgnoresImage) else None
        self._shared = BoundedCache[StandIns](MOST_SHAPES)

    @property
    def may_be_template(self) -> bool:
        """Whether the baseline may show the scene of an image: no colour and no blur does."""
        return not isinstance(self.baseline, (Blur, Constant, OwnColour))

    def behind(self, image: Image) -> StandIns:
        """Return the stand-ins for the hidden pixels of an image."""
        if self._unlooking is None:
            return StandIns(self.baseline(image), image.shape, self._put)
        key = (image.shape, image.dtype)
        found = self._shared.get(key)
        if found is None:
            fill = self._unlooking.still(image.shape, image.dtype)
            found = StandIns(fill, image.shape, self._put)
            self._shared.put(key, found)
        return found

    def hidden(self, image: Image) -> Image:
        """Return an image with every pixel hidden; the mean if the baseline draws several."""
        stand_ins = self.behind(image)
        # One after the other: hundreds of draws of a large image do not fit into memory together.
        total = np.zeros(image.shape)
        for draw in range(stand_ins.draws):
            total += stand_ins.on_host(draw)
        return total / stand_ins.draws

    def canvas(self, image: Image, root: Region, position: int) -> Canvas:
        """Return the canvas of an image, by its number in the run."""
        return Canvas(image, self.behind(image), root, put=self._put, position=position)


class Canvas:
    """One image of a run and its stand-ins.

    `image` and `stand_ins` are in the memory of the session; `stand_ins(kept, draw)` is one
    stand-in for the pixels outside of `kept`. `on_host` is the image as an array, also where that
    memory is a device's. `position` is the image's number in the run.

    >>> import hshap
    >>> image = np.ones((3, 4, 4))
    >>> stand_ins = StandIns(hshap.Constant(0.0)(image), image.shape, put=np.asarray)
    >>> root = hshap.Dyadic(min_size=2)(image)
    >>> Canvas(image, stand_ins, root, put=np.asarray, position=0).grid
    (4, 4)
    """

    def __init__(
        self, image: Image, stand_ins: StandIns, root: Region, *, put: Put, position: int
    ) -> None:
        self.image = put(image)
        self.on_host: Array = self.image if isinstance(self.image, np.ndarray) else image
        self.shape = image.shape
        self.stand_ins = stand_ins
        self.root = root
        self.position = position

    @property
    def grid(self) -> Grid:
        """Lengths of the spatial axes."""
        return self.shape[1:]

    @property
    def is_still(self) -> bool:
        """Whether the stand-ins are the same whichever regions are shown."""
        return self.stand_ins.is_still

    @property
    def draws(self) -> int:
        """Number of stand-ins, and so of model inputs for each value."""
        return self.stand_ins.draws

    def count(self, kept: Coalition) -> int:
        """Count the model inputs of a coalition: with nothing hidden, one is enough."""
        if self.draws == 1 or len(kept) != 1:
            return self.draws
        return 1 if kept[0].area == self.root.area else self.draws


class Row(NamedTuple):
    """One input for the model: a coalition shown on a canvas, over one draw of the baseline.

    >>> import hshap
    >>> image, region = np.ones((1, 2, 2)), hshap.protocols.Box((0, 0), (1, 2))
    >>> stand_ins = StandIns(hshap.Constant(0.0)(image), image.shape, put=np.asarray)
    >>> canvas = Canvas(image, stand_ins, region, put=np.asarray, position=0)
    >>> Row(canvas, kept=(region,), draw=0).painted()
    array([[[1., 1.],
            [0., 0.]]])
    """

    canvas: Canvas
    kept: Coalition
    draw: int

    def painted(self) -> Tensor:
        """Return the input as a new array or tensor: the image where it is shown."""
        stand_in = self.canvas.stand_ins(self.kept, self.draw)
        out = stand_in.copy() if isinstance(stand_in, np.ndarray) else stand_in.clone()
        copy(self.kept, self.canvas.image, out)
        return out
