"""The outputs of a model for images, which other libraries return or count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.baselines.recipes import Constant
from hshap.evaluators.canvas import Easel, Row
from hshap.explainer.setups import Setups
from hshap.partitions.regions import Box

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hshap._util.types import Heat
    from hshap.explainer import Explainer


def outputs_of(explainer: Explainer, images: Iterable[object], layout: str | None = None) -> Heat:
    """Return the outputs `(n, outputs)` for images; this takes one evaluation for each."""
    session = explainer.evaluator.open_session()
    setups = Setups(explainer, session, layout)
    easel = Easel(Constant(0.0), session.put)
    scores: list[Heat] = []
    for number, image in enumerate(images):
        pixels = setups.read(image).pixels
        whole = Box((0,) * (pixels.ndim - 1), pixels.shape[1:])
        row = Row(easel.canvas(pixels, whole, number), (whole,), 0)
        scores.append(session.score([row])[0])
    return np.stack(scores)
