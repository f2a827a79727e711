"""A trained network and four images of the paper's synthetic task, to try hshap.

>>> import hshap
>>> hshap.demo.example().boxes()
[Finding(start=(2, 5), stop=(3, 6), score=1.0)]
"""

from __future__ import annotations

import io
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from hshap.baselines.recipes import Constant
from hshap.errors import require
from hshap.explainer import Explainer
from hshap.partitions.grids import Dyadic

if TYPE_CHECKING:
    from hshap._util.types import Array, Heat, Model
    from hshap.explanation.explanation import Explanation


def example() -> Explanation:
    """Return a small explanation for examples: one bright pixel of 8 x 8. Needs no torch.

    >>> example().leaves
    (Box(start=(2, 5), stop=(3, 6)),)
    """
    image = np.zeros((1, 8, 8))
    image[0, 2, 5] = 1.0
    explainer = Explainer(brightest, baseline=Constant(0.0), partition=Dyadic(min_size=1))
    return explainer.explain(image, target=0)


def brightest(batch: Heat) -> Heat:
    """Return the largest value of each image: the simplest model with one relevant pixel.

    >>> brightest(np.eye(4)[None, None])
    array([1.])
    """
    return batch.max(axis=(1, 2, 3))


def bundled() -> dict[str, Array]:
    """Return the bundled images, their truths, their numbers of crosses and the training mean.

    >>> {name: array.shape for name, array in bundled().items()}
    {'images': (4, 3, 100, 120), 'truths': (4, 100, 120), 'crosses': (4,), 'mean': (3, 100, 120)}
    """
    raw = files("hshap.demo").joinpath("samples.npz").read_bytes()
    with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
        return dict(archive)


def load() -> Model:
    """Return the network: a torch module in eval mode, from images in [0, 1] to two logits.

    >>> load().training
    False
    """
    for module in ("torch", "safetensors"):
        require(module, extra="torch", needed_by="the demo network")
    from hshap.demo.model import load as load_network  # noqa: PLC0415, torch is optional

    return load_network()
