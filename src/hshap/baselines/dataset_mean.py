"""The mean of a data set of images, in one pass: arrays, iterables and torch data loaders."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.arrays import as_floats, as_image, is_tensor, to_numpy
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from hshap._util.types import Array, Tensor, Untyped

CHUNK = 64


def stream_mean(source: object, *, batched: bool | None) -> tuple[NDArray[np.float64], int]:
    """Return the mean image of a data set, and the number of images in it."""
    total, count = None, 0
    for chunk in _chunks(source, batched=batched):
        if total is None:
            as_image("source", chunk[0])
            total = np.zeros(chunk.shape[1:])
        if chunk.shape[1:] != total.shape:
            message = (
                f"source: image {count} has shape {chunk.shape[1:]}, but those before have "
                f"{total.shape}; bring all images to one shape"
            )
            raise ArgumentError(message)
        total += chunk.sum(0, dtype=np.float64)
        count += len(chunk)
    if total is None:
        message = f"source is an empty {type(source).__name__}; pass at least one image"
        raise ArgumentError(message)
    return total / count, count


def _chunks(source: Tensor, *, batched: bool | None) -> Iterator[Array]:
    """Yield arrays `(count, channels, *grid)`, with no more than a few images at a time."""
    if isinstance(source, np.ndarray) or is_tensor(source):
        if source.ndim < 3:
            message = (
                f"source has shape {tuple(source.shape)}, but must be (count, channels, *grid); "
                "for a single image use Fixed"
            )
            raise ArgumentError(message)
        yield from (
            as_floats("source", source[i : i + CHUNK]) for i in range(0, len(source), CHUNK)
        )
        return
    in_batches = _is_loader(source) if batched is None else batched
    for position, item in enumerate(_items(source)):
        # Data sets give (image, label): the image comes first.
        images = item[0] if isinstance(item, (tuple, list)) else item
        name = f"source[{position}]"
        yield (
            as_floats(name, images) if in_batches else as_floats(name, to_numpy(name, images)[None])
        )


def _items(source: Iterable[object]) -> Iterator[object]:
    try:
        if not isinstance(source, (str, bytes, dict)):
            return iter(source)
    except TypeError:
        pass
    message = (
        f"source is a {type(source).__name__}; "
        "pass an array of images, an iterable of them or a DataLoader"
    )
    raise ArgumentError(message)


def _is_loader(source: Untyped) -> bool:
    """Tell whether a source is a torch DataLoader that yields batches."""
    loading = sys.modules.get("torch.utils.data")
    if loading is None or not isinstance(source, loading.DataLoader):
        return False
    return source.batch_sampler is not None
