"""NIfTI: label maps and maps of floats with the affine of their scan."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.atomic import replace
from hshap.errors import ArgumentError, require
from hshap.export.scans.places import as_scan, fitting, new_file, storable
from hshap.formats.scan import LPS

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from numpy.typing import ArrayLike

    from hshap._util.types import Array, Untyped
    from hshap.formats.scan import Scan

TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])


def write_nifti(path: str | PathLike[str], values: ArrayLike, scan: Scan) -> Path:
    """Write labels or a map as NIfTI at the place of a scan; return the path.

    `values` has the grid of the scan. Whole numbers stay whole numbers, others become 32-bit
    floats. A name that ends in .gz is compressed. The header is new: it has the affine and the
    unit, and no text of the scan's own header. The step of a series in time is 0, which stands for
    unknown: a scan does not hold it.

    >>> import tempfile
    >>> from hshap.images import Scan, read_image
    >>> scan = Scan(np.zeros((1, 4, 8, 8)), "CZYX", spacing=(3, 1, 1), affine=np.eye(4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_nifti(f"{folder}/found.nii", np.zeros((4, 8, 8), np.uint8), scan)
    ...     read_image(file)
    Scan('found.nii': CZYX 1 x 4 x 8 x 8, uint8, spacing 1 x 1 x 1 mm)
    """
    found = as_scan(scan)
    array = fitting("values", values, found)
    if found.affine is None and found.spacing is None:
        message = f"write_nifti needs the geometry of {found!r}, which its file does not tell"
        raise ArgumentError(f"{message}; pass Scan(..., spacing=...)")
    target = new_file(path, found)
    nibabel: Untyped = require("nibabel", extra="medical", needed_by="write_nifti")
    image: Untyped = nibabel.Nifti1Image(_xyz(array, found), None)
    image.header.set_xyzt_units("mm", "sec" if "T" in found.axes else None)
    if found.affine is not None:
        # World coordinates of a microscope have no left and right; they are taken as they are.
        turned = (TO_RAS if found.world in {LPS, ""} else np.eye(4)) @ found.affine
        affine = turned[:, [2, 1, 0, 3]]
        image.header.set_sform(affine, code=1)
        image.header.set_zooms(_zooms(image, tuple(np.linalg.norm(affine[:3, :3], axis=0))))
        square = affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0)
        if np.allclose(square.T @ square, np.eye(3), atol=1e-5):
            image.header.set_qform(affine, code=1)
    elif found.spacing is not None:
        image.header.set_zooms(_zooms(image, found.spacing[::-1]))
    data = image.to_bytes()
    packed = gzip.compress(data, mtime=0) if str(target).endswith(".gz") else data
    return replace(target, lambda file: file.write(packed))


def _xyz(array: Array, scan: Scan) -> Array:
    """Return the values as NIfTI orders them: x, y, z and time."""
    out = storable(array).T
    return out if "Z" in scan.axes else out[:, :, None]


def _zooms(image: Untyped, spatial: tuple[float, ...]) -> tuple[float, ...]:
    own = tuple(float(each) for each in image.header.get_zooms())
    # A scan does not know its step in time: 0 says so.
    return (*spatial, *own[len(spatial) : 3], *(0.0 for _ in own[3:]))
