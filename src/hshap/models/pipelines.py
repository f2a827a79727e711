"""Models of scikit-learn, on flattened images. The library is not imported: a model is enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.models.facts import Facts, Intake, class_names
from hshap.models.functions import Function, Layout, check_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Array, Heat, Model

Method = Literal["predict_proba", "decision_function", "predict"]
METHODS: tuple[Method, ...] = ("predict_proba", "decision_function", "predict")


@dataclass(frozen=True, eq=False)
class _Flattened:
    """A scikit-learn estimator on images, each a row of its pixels."""

    estimator: Model
    method: Method
    layout: Layout

    def __call__(self, batch: Array) -> Heat:
        images = np.moveaxis(batch, 1, -1) if self.layout == "HWC" else batch
        rows = np.ascontiguousarray(images).reshape(len(images), -1)
        wanted = getattr(self.estimator, "n_features_in_", rows.shape[1])
        if rows.shape[1] != wanted:
            sizes = " x ".join(map(str, images.shape[1:]))
            message = (
                f"image has {rows.shape[1]} numbers ({sizes}), but the estimator was fitted on "
                f"{wanted}; pass an image of that size, with the channels that it was fitted on"
            )
            raise ArgumentError(message)
        scores = np.asarray(getattr(self.estimator, self.method)(rows))
        return scores.reshape(len(rows), -1).astype(np.float64)


def scikit_learn(
    estimator: Model,
    *,
    method: Method = "predict_proba",
    layout: Layout = "HWC",
    names: Sequence[str] | None = None,
) -> Function:
    """Return a scikit-learn estimator or pipeline, fitted on flattened images, as a model.

    Each image becomes a row of its pixels, in the order of `layout`: "HWC" has the channels of a
    pixel side by side, as `image.reshape(-1)` of a picture has them. Numbers stay as they are, so
    pass images in the units of the fit. `method` is "predict_proba", "decision_function" for
    classifiers without probabilities, or "predict" for regressors. Names are `estimator.classes_`.

    >>> from sklearn.linear_model import LogisticRegression
    >>> import hshap
    >>> images = np.zeros((4, 4, 4))
    >>> images[:2, 1, 2] = 1.0
    >>> model = LogisticRegression().fit(images.reshape(4, -1), ["dot", "dot", "none", "none"])
    >>> explainer = hshap.Explainer(
    ...     scikit_learn(model), baseline=hshap.Constant(0.0), partition=hshap.Dyadic(min_size=1)
    ... )
    >>> explainer.explain(images[0], target="dot").leaves
    (Box(start=(1, 2), stop=(2, 3)),)
    """
    if method not in METHODS:
        message = f"method must be one of {', '.join(METHODS)}, got {checks.shown(method)}"
        raise ArgumentError(f"{message}; pass one of these")
    check_layout(layout)
    if isinstance(estimator, type):
        message = f"estimator is the class {estimator.__name__}; pass a fitted estimator of it"
        raise ArgumentError(message)
    if not callable(getattr(estimator, method, None)):
        others = [one for one in METHODS if callable(getattr(estimator, one, None))]
        fix = f"pass method={others[0]!r}" if others else "pass a fitted estimator or pipeline"
        message = f"estimator is {checks.shown(estimator)}, which has no {method}; {fix}"
        raise ArgumentError(message)
    given: Sequence[object] | None = names
    if given is None and method != "predict":
        given = getattr(estimator, "classes_", None)
        if method == "decision_function" and given is not None and len(given) == 2:
            given = given[1:]  # one score, that of the second class
    intake = Intake(None, layout, unit=False)
    return Function(
        _Flattened(estimator, method, layout), Facts(class_names("names", given), intake)
    )
