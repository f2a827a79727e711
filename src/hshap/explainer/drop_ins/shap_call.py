"""The calls of shap: `explainer(images)` and `shap_values(images)`, with its axes and returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.recipes import recipe
from hshap.baselines.recipes import Constant, References
from hshap.errors import ArgumentError, require
from hshap.explainer import Explainer
from hshap.explainer.drop_ins.outputs import outputs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Array, Heat, Model, Untyped
    from hshap.baselines.protocol import Baseline
    from hshap.games.search import Search
    from hshap.partitions.protocol import Partition


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
            chosen = range(outputs_of(explainer, images[:1], self.layout).shape[1])
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
