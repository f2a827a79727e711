"""Pyramidal OME-TIFF: labels or maps, tiled, with their spacing."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from hshap._util.atomic import replace
from hshap.errors import require
from hshap.export.scans.places import as_scan, fitting, new_file, storable

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from numpy.typing import ArrayLike

    from hshap._util.types import Untyped
    from hshap.formats.scan import Scan

TILE = 256


def write_ome_tiff(path: str | PathLike[str], values: ArrayLike, scan: Scan) -> Path:
    """Write labels or a map as a tiled OME-TIFF with a pyramid; return the path.

    `values` has the grid of the scan. Each level has every second pixel of the one before, so
    labels never mix. The spacing of the scan is stored in micrometres.

    >>> import tempfile
    >>> import numpy as np
    >>> import hshap
    >>> scan = hshap.images.Scan(np.zeros((3, 600, 800)), "CYX", spacing=(0.25e-3, 0.25e-3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = write_ome_tiff(f"{folder}/a.ome.tif", np.zeros((600, 800), np.uint8), scan)
    ...     hshap.images.read_image(made)
    Scan('a.ome.tif': CYX 1 x 600 x 800, uint8, spacing 0.00025 x 0.00025 mm)
    """
    found = as_scan(scan)
    array = fitting("values", values, found)
    target = new_file(path, found)
    tifffile: Untyped = require("tifffile", extra="large", needed_by="write_ome_tiff")
    kept = storable(array)
    facts: dict[str, object] = {"axes": found.axes[1:]}
    for axis, size in zip(found.spatial, found.spacing or (), strict=False):
        facts |= {f"PhysicalSize{axis}": size * 1000, f"PhysicalSize{axis}Unit": "µm"}
    levels = max(0, int(max(kept.shape[-2:]) - 1).bit_length() - 8)
    options = {"tile": (TILE, TILE), "photometric": "minisblack", "compression": "zlib"}
    memory = io.BytesIO()
    # Classic TIFF addresses 4 GiB.
    with tifffile.TiffWriter(memory, ome=True, bigtiff=kept.nbytes > 2**31) as writer:
        writer.write(kept, subifds=levels, metadata=facts, **options)
        for level in range(1, levels + 1):
            step = 2**level
            writer.write(kept[..., ::step, ::step], subfiletype=1, **options)
    return replace(target, lambda file: file.write(memory.getbuffer()))
