"""The authors' own package, h-shap 0.1.6, which explains the softmax of column 1."""

from __future__ import annotations

from functools import partial
from subprocess import CalledProcessError
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.core.protocol import Cannot, Method
from benchmarks.core.reference import VERSION, load_reference
from benchmarks.methods.common import PRESENT

if TYPE_CHECKING:
    from benchmarks.core.protocol import Image, Map, Subject

NOTHING = "Could not find any important nodes."  # raised where we return zeros


def _explain(subject: Subject, image: Image, mode: str, threshold: float) -> Map:
    try:
        reference = load_reference()
    except CalledProcessError:
        message = f"h-shap {VERSION} could not be installed"
        raise Cannot(message) from None
    explainer = reference.Explainer(subject.model, torch.tensor(subject.baseline))
    # A copy, since it reshapes its input; its default of 2 games is 32 rows to the model.
    given = torch.tensor(image)
    try:
        with torch.no_grad():
            found = explainer.explain(
                given, PRESENT, s=subject.size, threshold_mode=mode, threshold=threshold
            )
    except ValueError as error:
        if str(error) != NOTHING:
            raise
        return np.zeros(image.shape[1:])
    return found[0].numpy()


METHODS = tuple(
    Method(
        f"h-shap {VERSION} {name}",
        "h-shap 0.1.6",
        partial(_explain, mode=mode, threshold=threshold),
        package="h-shap",
    )
    for name, mode, threshold in (("tau=0", "absolute", 0.0), ("tau=70%", "relative", 70.0))
)
