"""Reading an image: the kind of the file tells the reader, and the result is a `Scan`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hshap._util import checks
from hshap.errors import ArgumentError, FormatError
from hshap.formats.numpy_files import read_numpy

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap.formats.scan import Scan

READERS: dict[str, Callable[[Path], Scan]] = {".npy": read_numpy, ".npz": read_numpy}
"""The reader of each ending."""


def read_image(path: object) -> Scan:
    """Read an image or volume with its axes, its spacing and its place in the world.

    A file that is damaged, too large or no image is a `FormatError` that says why.

    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/cell.npy", np.zeros((3, 40, 60), np.uint8))
    ...     read_image(f"{folder}/cell.npy")
    Scan('cell.npy': CYX 3 x 40 x 60, uint8)
    """
    if not isinstance(path, (str, os.PathLike)):
        message = f"path is {checks.shown(path)}; pass the path of an image file"
        raise ArgumentError(message)
    place = Path(os.fspath(path))
    if not place.exists():
        raise FileNotFoundError(2, "no such file or folder", str(place))
    reader = READERS.get(place.suffix.lower())
    if reader is None:
        message = f"{place} is of no known kind; pass one of {', '.join(READERS)}"
        raise FormatError(message)
    return reader(place)
