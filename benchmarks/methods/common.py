"""Shared parts of the adapters: scores in batches, layouts of images, a seed for their packages.

Every method that only looks at outputs explains the same number: the softmax of column 1, in the
model's own precision. Methods that follow gradients explain the logit of column 1, as their
packages' own examples do: a softmax near 1 is flat, and would leave them nothing to follow.
"""

from __future__ import annotations

import contextlib
import io
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.core.protocol import Cannot

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray
    from torch import nn

    from benchmarks.core.protocol import Image

BATCH = 32
PRESENT = 1  # the column that is explained


def scores(model: nn.Module, images: NDArray[Any]) -> NDArray[np.float32]:
    """Return the probabilities (n, 2) of images (n, channels, height, width)."""
    ready = torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32))
    with torch.no_grad():
        parts = [torch.softmax(model(batch), 1) for batch in ready.split(BATCH)]
    return torch.cat(parts).numpy()


def probability(outputs: NDArray[Any]) -> NDArray[np.float64]:
    """Return the softmax of column 1 from two logits, rounded as everybody else sees it."""
    logits = torch.from_numpy(np.asarray(outputs)).float()
    return torch.softmax(logits, 1)[:, PRESENT].double().numpy()


def channels_last(image: Image) -> NDArray[np.float32]:
    """Return a copy (height, width, channels)."""
    return np.moveaxis(image, 0, -1).copy()


def as_rgb(image: Image) -> NDArray[np.float32]:
    """Return a copy (height, width, 3); grey is repeated."""
    return np.repeat(channels_last(image), 3 // len(image), axis=-1)


def channels_first(images: NDArray[Any], channels: int) -> NDArray[Any]:
    """Turn (n, height, width, 3 or 1) back to the model's layout; undoes `as_rgb` too."""
    return np.moveaxis(images[..., :channels], -1, 1)


def as_batch(image: Image) -> torch.Tensor:
    """Return the image as a batch of one, a copy: some packages write into their input."""
    return torch.tensor(image)[None]


def package(module: str) -> Any:
    """Import a package that may be missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        message = f"{error.name} is not installed; see benchmarks/requirements.txt"
        raise Cannot(message) from None


@contextlib.contextmanager
def seeded(seed: int) -> Generator[None, None, None]:
    """Seed the global generators, for packages that take no seed, and restore them after."""
    state = np.random.get_state()  # noqa: NPY002, packages use the global state
    np.random.seed(seed)  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


@contextlib.contextmanager
def quiet() -> Generator[None, None, None]:
    """Keep progress bars that cannot be turned off away from the terminal."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield
