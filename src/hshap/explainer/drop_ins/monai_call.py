"""The call of MONAI's `OcclusionSensitivity`: maps of the score that is left without a region."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import is_tensor, to_numpy
from hshap._util.recipes import recipe
from hshap.baselines.recipes import Constant
from hshap.errors import ArgumentError, require
from hshap.explainer import Explainer
from hshap.explainer.drop_ins.outputs import outputs_of
from hshap.games.targets import Output
from hshap.partitions.grids import Dyadic
from hshap.partitions.regions import mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Grid, Model, Tensor
    from hshap.games.search import Search
    from hshap.games.targets import Activation


@recipe
class OcclusionSensitivity:
    """h-Shap with the call of MONAI's class of this name.

    As there, a map shows the score of a class when the region around a pixel is hidden, so lower is
    more important. Here only the regions that h-Shap finds for any of the classes are hidden, one
    by one; other pixels have the score of the image. Regions are quartered down to `mask_size` and
    do not overlap. `mode` is the value of hidden pixels, or "mean_img". `activate` is as in MONAI:
    a sigmoid for images of one channel, else a softmax; False for the outputs as they are.

    Like MONAI's, these maps do not add up to the score. For maps that do, call `Explainer`.

    >>> import torch
    >>> x = torch.zeros(1, 1, 8, 8)
    >>> x[0, 0, 2, 5] = 1.0
    >>> method = OcclusionSensitivity(
    ...     lambda batch: batch.max(axis=(2, 3)), mask_size=2, activate=False
    ... )
    >>> maps, most_probable = method(x)
    >>> maps.shape, maps[0, 0, 2, 5].item(), maps[0, 0, 7, 7].item()
    (torch.Size([1, 1, 8, 8]), 0.0, 1.0)
    """

    nn_module: Model
    mask_size: int | Sequence[int] = 16
    mode: float | str = 0.0
    activate: bool = True
    search: Search | None = None

    def __post_init__(self) -> None:
        checks.flag("activate", self.activate)
        if isinstance(self.mode, str) and self.mode != "mean_img":
            message = (
                f'mode={self.mode!r} is not known; pass a number for hidden pixels, or "mean_img"'
            )
            raise ArgumentError(message)
        Explainer(self.nn_module, Constant(0.0), Dyadic(self.mask_size), self.search)

    def __call__(
        self,
        x: Tensor,
        b_box: Sequence[int] | None = None,
        class_idx: int | Sequence[int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the maps `(1, classes, *grid)` and the most probable class `(1, 1, *grid)`.

        `b_box` limits both to `[min1, max1, min2, max2, ...]`; -1 is no limit. `class_idx` are the
        classes to explain, all by default.
        """
        torch = require("torch", extra="torch", needed_by="OcclusionSensitivity")
        if not is_tensor(x) or x.ndim < 3 or len(x) != 1:
            message = f"x is {checks.shown(x)}; pass a tensor of one image (1, channels, *grid)"
            raise ArgumentError(message)
        image = to_numpy("x", x)[0]
        crop = _crop(b_box, image.shape[1:])
        hidden = float(image.mean()) if isinstance(self.mode, str) else self.mode
        explainer = Explainer(
            self.nn_module, Constant(float(hidden)), Dyadic(self.mask_size), self.search
        )
        (own,) = outputs_of(explainer, [image])
        classes = _classes(class_idx, len(own))
        kind: Activation = "raw"
        if self.activate:
            kind = "sigmoid" if len(image) == 1 else "softmax"
        targets = [Output(one, kind) for one in classes]
        found = explainer.explain(image, targets)
        leaves = {leaf for one in found for leaf in one.leaves}
        # Small ones last: leaves of two classes may lie in one another.
        masks = [
            mask((leaf,), image.shape[1:]) for leaf in sorted(leaves, key=lambda leaf: -leaf.area)
        ]
        hidden_images = (np.where(one, image.dtype.type(hidden), image) for one in masks)
        left = outputs_of(explainer, hidden_images) if masks else own[None][:0]
        maps = np.empty((len(targets), *image.shape[1:]))
        for number, target in enumerate(targets):
            maps[number] = target(own[None])[0]
            for one, score in zip(masks, target(left), strict=True):
                maps[number][one] = score
        cut = torch.as_tensor(maps[(slice(None), *crop)])[None].to(x)
        return cut, cut.argmax(dim=1, keepdim=True)


def _classes(given: int | Sequence[int] | None, count: int) -> list[int]:
    if given is None:
        return list(range(count))
    several = [given] if isinstance(given, int) else list(given)
    return [checks.integer("class_idx", one, minimum=0) for one in several]


def _crop(b_box: Sequence[int] | None, grid: Grid) -> tuple[slice, ...]:
    if b_box is None:
        return (slice(None),) * len(grid)
    if len(b_box) != 2 * len(grid):
        message = (
            f"b_box={list(b_box)} has {len(b_box)} numbers for {len(grid)} axes; pass a minimum "
            "and a maximum for each"
        )
        raise ArgumentError(message)
    return tuple(
        slice(max(low, 0), high if high > 0 else side)
        for low, high, side in zip(b_box[::2], b_box[1::2], grid, strict=True)
    )
