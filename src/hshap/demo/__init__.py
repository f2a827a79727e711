"""A trained network and a few images of the paper's synthetic task, to try hshap on."""

from __future__ import annotations

import io
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap.errors import require

if TYPE_CHECKING:
    from numpy.typing import NDArray


def bundled() -> dict[str, NDArray[Any]]:
    """Return the bundled images, their truth, their counts of crosses and the training mean.

    >>> {name: array.shape for name, array in bundled().items()}
    {'images': (4, 3, 100, 120), 'truths': (4, 100, 120), 'crosses': (4,), 'mean': (3, 100, 120)}
    """
    raw = files("hshap.demo").joinpath("samples.npz").read_bytes()
    with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
        return dict(archive)


def load() -> Any:
    """Return the network: a torch module in eval mode, from images in [0, 1] to two logits."""
    for module in ("torch", "safetensors"):
        require(module, extra="torch", what="the demo network")
    from hshap.demo.model import load as load_network  # noqa: PLC0415, torch is optional

    return load_network()
