"""Maps as PNG with 8 bits, and as TIFF with floats."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.atomic import replace
from hshap._util.raster import png
from hshap.errors import require
from hshap.export.inputs import as_plane

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from numpy.typing import ArrayLike


def write_png(path: str | PathLike[str], values: ArrayLike) -> Path:
    """Write a map as a grey PNG of 8 bits, its largest value as 255; return the path.

    The file holds the value of one grey level under `hshap:step`. Negative values and NaN become 0;
    `write_tiff` keeps them.

    >>> from hshap.demo import example
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_png(f"{folder}/cell.png", example().saliency()).read_bytes()[1:4]
    b'PNG'
    """
    plane = np.maximum(np.nan_to_num(as_plane("write_png", values), nan=0.0), 0.0)
    step = float(plane.max()) / 255
    grey = np.rint(plane / (step or 1.0)).astype(np.uint8)
    text = {"Description": f"hshap map: value = grey * {step!r}", "hshap:step": repr(step)}
    return replace(path, lambda file: file.write(png(grey, text)))


def write_tiff(path: str | PathLike[str], values: ArrayLike) -> Path:
    """Write a map as a TIFF of 32-bit floats, with all its values; return the path.

    A volume or a video becomes a TIFF of several pages, one for each plane of its first axis.

    >>> from hshap.demo import example
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_tiff(f"{folder}/cell.tiff", example().saliency()).stat().st_size > 256
    True
    """
    tifffile = require("tifffile", extra="export", needed_by="export.write_tiff")
    plane = as_plane("write_tiff", values, most=3).astype(np.float32)
    file = io.BytesIO()
    # Uncompressed, which every program can read.
    tifffile.imwrite(file, plane, photometric="minisblack", metadata=None)
    return replace(path, lambda whole: whole.write(file.getbuffer()))
