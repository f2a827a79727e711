"""Calls in the shape of other libraries: captum, shap and MONAI, with their axes and their returns.

Each class calls an `Explainer`, and returns its maps as that library returns its own.

>>> import numpy as np
>>> from hshap import drop_ins
>>> images = np.zeros((1, 1, 8, 8), np.float32)
>>> images[0, 0, 2:4, 4:6] = 1.0
>>> explainer = drop_ins.ShapExplainer(lambda batch: batch.max(axis=(2, 3)), data=0.0)
>>> explainer.shap_values(images).shape
(1, 1, 8, 8, 1)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap._util.arrays import is_tensor, to_numpy
from hshap._util.recipes import recipe
from hshap.baselines.recipes import Constant, Fixed, References
from hshap.errors import ArgumentError, require
from hshap.evaluators.canvas import Backdrop, Row
from hshap.evaluators.protocol import score_rows
from hshap.explainer import Explainer
from hshap.explainer.choosing_parts import whole
from hshap.explainer.readings import ImageReader
from hshap.games.targets import Output
from hshap.partitions.grids import Dyadic
from hshap.partitions.regions import mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hshap._util.types import Array, Grid, Heat, Model, Tensor, Untyped
    from hshap.baselines.protocol import Baseline
    from hshap.games.search import Search
    from hshap.games.targets import Activation
    from hshap.partitions.protocol import Partition


@recipe
class Attribution:
    """h-Shap with the call of captum's `FeatureAblation` and `ShapleyValues`.

    `attribute` returns a tensor of the shape of `inputs`. It adds up, over all elements of one
    input, to the score of the input minus that of its baseline, but for the share of regions that
    were dropped: `return_convergence_delta=True` returns that difference, too. Channels of a pixel
    have equal values. captum instead repeats the value of a group in each of its elements.

    >>> import torch
    >>> import hshap
    >>> inputs = torch.zeros(1, 1, 8, 8)
    >>> inputs[0, 0, 2, 5] = 1.0
    >>> method = Attribution(lambda batch: batch.max(axis=(2, 3)), partition=hshap.Dyadic(1))
    >>> method.attribute(inputs, target=0)[0, 0, 2].tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    """

    forward_func: Model
    partition: Partition | None = None
    search: Search | None = None

    def __post_init__(self) -> None:
        Explainer(self.forward_func, Constant(0.0), self.partition, self.search)

    def attribute(
        self,
        inputs: Tensor,
        baselines: Tensor | float | None = None,
        target: Tensor | Sequence[int] | int | None = None,
        *,
        return_convergence_delta: bool = False,
    ) -> Tensor:
        """Return attributions like `inputs` `(n, channels, *grid)`, a tensor.

        `baselines` is 0 by default, or a number, or a tensor of one input or of all. `target` is
        one class, or one for each input; None if the model has one output.
        """
        torch = require("torch", extra="torch", needed_by="Attribution.attribute")
        if not is_tensor(inputs) or inputs.ndim < 3:
            message = f"inputs is {checks.shown(inputs)}; pass one tensor (n, channels, *grid)"
            raise ArgumentError(message)
        images = to_numpy("inputs", inputs)
        targets = _targets(target, len(images))
        behind = _baselines(baselines, images)
        explainer = Explainer(self.forward_func, behind[0], self.partition, self.search)
        out, deltas = np.zeros(images.shape), np.zeros(len(images))
        pairs = zip(images, targets, behind, strict=True)
        for found in explainer.explain_many(pairs):
            heat = found.attribution()
            out[found.position] = heat / images.shape[1]
            deltas[found.position] = heat.sum() - (found.score - found.baseline_score)
        made = torch.as_tensor(out).to(inputs)
        return (made, torch.as_tensor(deltas).to(inputs)) if return_convergence_delta else made


def _targets(target: object, count: int) -> list[int]:
    if target is None:
        return [0] * count
    given = np.atleast_1d(to_numpy("target", target))
    if given.ndim != 1 or given.dtype.kind not in "iu" or len(given) not in (1, count):
        message = (
            f"target is {checks.shown(target)} for {count} inputs; pass one class, or one for each"
        )
        raise ArgumentError(message)
    every = [int(one) for one in given]
    return every if len(every) == count else every * count


def _baselines(baselines: object, images: Array) -> list[Baseline]:
    """Return the baseline of each image."""
    if baselines is None or isinstance(baselines, (int, float)):
        return [Constant(float(baselines or 0.0))] * len(images)
    given = to_numpy("baselines", baselines)
    if given.shape[1:] != images.shape[1:] or len(given) not in (1, len(images)):
        message = (
            f"baselines has shape {given.shape} for inputs {images.shape}; pass a number, or one "
            "for all or for each input"
        )
        raise ArgumentError(message)
    every: list[Baseline] = [Fixed(one) for one in given]
    return every if len(every) == len(images) else every * len(images)


@recipe
class ShapExplainer:
    """h-Shap with the calls of shap's explainers for images.

    `data` stands for hidden pixels: a number, or background images `(m, ...)`, over which scores
    are averaged, in the layout of the images. `layout` is that of one image, "CHW" for models of
    torch and "HWC" for those of Keras and JAX. `output_names` are the names of the outputs.

    Values have the shape of the images with one more axis, the outputs, at the end. Over one image
    and output they add up to score minus base value, but for the share of regions that were
    dropped. Channels of a pixel have equal values.

    >>> import hshap
    >>> images = np.zeros((2, 1, 8, 8))
    >>> images[1, 0, 2, 5] = 1.0
    >>> explainer = ShapExplainer(lambda batch: batch.max(axis=(2, 3)), partition=hshap.Dyadic(1))
    >>> values = explainer.shap_values(images)
    >>> values.shape, values[1, 0, 2, 5, 0].item(), values.sum().item()
    ((2, 1, 8, 8, 1), 1.0, 1.0)
    """

    model: Model
    data: Array | float = 0.0
    partition: Partition | None = None
    search: Search | None = None
    layout: str = "CHW"
    output_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        self._explainer()

    def shap_values(self, X: Array, outputs: Sequence[int] | None = None) -> Heat:  # noqa: N803
        """Return the values `(*X.shape, outputs)` of images; by default of all outputs."""
        return self._all(X, outputs)[0]

    def __call__(self, X: Array, *, outputs: Sequence[int] | None = None) -> Untyped:  # noqa: N803
        """Return a `shap.Explanation` of images; by default of all outputs. Needs shap."""
        shap = require("shap", needed_by="ShapExplainer")
        values, base, chosen = self._all(X, outputs)
        facts = self._explainer().facts.classes
        named = self.output_names or facts or [f"Output {one}" for one in chosen]
        names = [named[one] for one in chosen] if self.output_names or facts else list(named)
        return shap.Explanation(values, base_values=base, data=to_numpy("X", X), output_names=names)

    def _explainer(self) -> Explainer:
        return Explainer(self.model, self._baseline(), self.partition, self.search)

    def _baseline(self) -> Baseline:
        if isinstance(self.data, (int, float)):
            return Constant(float(self.data))
        images = to_numpy("data", self.data)
        if images.ndim != len(self.layout) + 1:
            message = (
                f"data has shape {images.shape}, but images have the layout {self.layout!r}; pass "
                "background images (m, ...) in that layout, or a number"
            )
            raise ArgumentError(message)
        return References(np.moveaxis(images, 1 + self.layout.index("C"), 1))

    def _all(self, given: Array, outputs: Sequence[int] | None) -> tuple[Heat, Heat, Sequence[int]]:
        """Return values, base values and the outputs that they are of."""
        images = to_numpy("X", given)
        if images.ndim != len(self.layout) + 1 or len(images) == 0:
            message = (
                f"X has shape {images.shape}, but images have the layout {self.layout!r}; pass a "
                "batch of images in that layout"
            )
            raise ArgumentError(message)
        explainer = self._explainer()
        chosen = outputs
        if chosen is None:
            chosen = range(_outputs(explainer, images[:1], self.layout).shape[1])
        if len(chosen) == 0:
            message = f"outputs={checks.shown(outputs)} is empty; pass the numbers of outputs"
            raise ArgumentError(message)
        axis = self.layout.index("C")
        values = np.zeros((*images.shape, len(chosen)))
        base = np.zeros((len(images), len(chosen)))
        columns = {one: column for column, one in enumerate(chosen)}
        pairs = ((image, list(chosen)) for image in images)
        for found in explainer.explain_many(pairs, layout=self.layout):
            place = found.position, columns[cast("int", found.class_index)]
            heat = np.expand_dims(found.attribution() / images.shape[1 + axis], axis)
            values[(place[0], ..., place[1])] = heat
            base[place] = found.baseline_score
        return values, base, chosen


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
        (own,) = _outputs(explainer, [image])
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
        left = _outputs(explainer, hidden_images) if masks else own[None][:0]
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


def _outputs(explainer: Explainer, images: Iterable[object], layout: str | None = None) -> Heat:
    """Return the outputs `(n, outputs)` for images of one shape: one evaluation for each."""
    session = explainer.evaluator.open_session()
    reader = ImageReader(explainer.facts.intake, layout)
    backdrop = Backdrop(Constant(0.0), session.put)
    every = [reader.read(image).pixels for image in images]
    canvases = [backdrop.canvas(one, whole(one), n) for n, one in enumerate(every)]
    return score_rows(session, [Row(canvas, (canvas.root,), 0) for canvas in canvases])
