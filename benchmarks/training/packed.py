"""The images of a split laid down on disk as bytes, in case they do not fit in memory."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.core import folders
from benchmarks.datasets.synthetic import to_bytes, to_float

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from benchmarks.core.protocol import Example, Image


@dataclass(frozen=True, eq=False)
class Packed:
    """Hold the images of a split as bytes on disk, each at hand at any time, and their labels.

    `labels` is (images, concepts). Sizes may differ between images. Bytes round averaged
    pixels by at most half a grey level.
    """

    pixels: NDArray[np.uint8]
    shapes: tuple[tuple[int, ...], ...]
    starts: NDArray[np.int64]
    labels: NDArray[np.bool_]
    sha256: str

    def __len__(self) -> int:
        return len(self.shapes)

    def image(self, row: int) -> Image:
        shape, start = self.shapes[row], self.starts[row]
        return to_float(self.pixels[start : start + prod(shape)]).reshape(shape)


@contextmanager
def packed(examples: Iterable[Example], concepts: Sequence[str]) -> Iterator[Packed]:
    """Lay a split down on disk, since training wants it shuffled and it may not fit in memory.

    Packed anew each time, so that it is never stale; the file has no name and goes with the run.
    """
    digest, shapes, labels = hashlib.sha256(), [], []
    with tempfile.TemporaryFile(dir=folders.cache("packed").parent) as file:
        for example in examples:
            content = to_bytes(example.image).tobytes()
            file.write(content)
            digest.update(content)
            shapes.append(example.image.shape)
            labels.append([example.label(concept) for concept in concepts])
        if not shapes:
            message = "the split has no images; is the data set whole?"
            raise ValueError(message)
        file.flush()
        digest.update(repr((shapes, labels)).encode())
        starts = np.cumsum([0, *map(prod, shapes)])
        pixels = np.memmap(file, np.uint8, mode="r")
        yield Packed(pixels, tuple(shapes), starts, np.array(labels), digest.hexdigest())
