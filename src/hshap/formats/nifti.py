"""NIfTI: a volume with its affine, turned from RAS, which NIfTI uses, to LPS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import FormatError, require
from hshap.formats.refusals import quietly, refuse_large
from hshap.formats.scan import LPS, Scan

if TYPE_CHECKING:
    from pathlib import Path

    from hshap._util.types import Array, Heat, Untyped

MILLIMETRES = {0: 1.0, 1: 1000.0, 2: 1.0, 3: 0.001}
"""Units of length by their code; 0 stands for none, and files without one mean millimetres."""

TO_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])


def load(path: Path) -> Untyped:
    """Open a file by nibabel; its numbers are not read yet."""
    nibabel: Untyped = require("nibabel", extra="medical", needed_by="reading NIfTI")
    with quietly(path, "reading it as NIfTI"):
        image = nibabel.load(path)
        if not isinstance(image, nibabel.Nifti1Pair):
            message = f"{path} is of the kind {type(image).__name__}; save it as NIfTI"
            raise FormatError(message)
        return image


def read_nifti(path: Path) -> Scan:
    """Read a volume; a fourth axis is time if the header has a unit of time, else channels."""
    image = load(path)
    shape = tuple(int(side) for side in image.shape)
    if not 2 <= len(shape) <= 4 or 0 in shape:
        message = f"{path} has the shape {shape}; save two to four axes, none of them empty"
        raise FormatError(message)
    refuse_large(str(path), shape, 8)
    affine = place_of(path, image)
    array, channels = _values(path, image, len(shape) == 4)
    with quietly(path, "reading it as NIfTI"):
        unit = int(image.header["xyzt_units"])
        zooms = [abs(float(z)) for z in image.header.get_zooms()[:3]]
        lowest, highest = float(image.header["cal_min"]), float(image.header["cal_max"])
    millimetres = MILLIMETRES.get(unit & 7, 1.0)
    spacing = (
        tuple(z * millimetres for z in zooms[::-1])
        if affine is None
        else tuple(float(np.linalg.norm(affine[:3, n])) for n in range(3))
    )
    # Axes from the slowest: (t or channel, z, y, x).
    timed = len(shape) == 4 and (unit & 56) in {8, 16, 24} and not channels
    whole = array if len(shape) == 4 or channels else array[None]
    axes = "CTZYX" if timed else "CZYX" if len(shape) > 2 else "CYX"
    whole = whole[None] if timed else whole
    if axes == "CZYX" and whole.shape[1] == 1:
        whole, axes = whole[:, 0], "CYX"
    plain = np.isfinite([lowest, highest]).all() and highest > lowest
    return Scan(
        whole,
        axes=axes,
        name=path.name,
        format="nifti",
        spacing=spacing[-2:] if "Z" not in axes else spacing,
        affine=affine,
        world=LPS if affine is not None else "",
        window=(lowest, highest) if plain else _span(whole),
        files=(path,),
    )


def place_of(path: Path, image: Untyped) -> Heat | None:
    """Return the affine from `(z, y, x, 1)` to LPS: the sform's, or else the qform's; or None."""
    with quietly(path, "reading it as NIfTI"):
        codes = int(image.header["sform_code"]), int(image.header["qform_code"])
        if not any(codes):
            return None
        found = np.array(image.affine, dtype=np.float64)
        millimetres = MILLIMETRES.get(int(image.header["xyzt_units"]) & 7, 1.0)
    found[:3] *= millimetres
    lengths = np.linalg.norm(found[:3, :3], axis=0)
    flat = not np.isfinite(found).all() or not lengths.all()
    if flat or abs(np.linalg.det(found[:3, :3] / lengths)) < 1e-6:
        which = "sform" if codes[0] else "qform"
        message = f"{path} has a singular affine ({which}): two of its axes agree, or one has no "
        raise FormatError(f"{message}length; correct the header")
    return TO_LPS @ found[:, [2, 1, 0, 3]]


def _values(path: Path, image: Untyped, four: bool) -> tuple[Array, bool]:  # noqa: FBT001
    """Return the scaled values with the axes reversed, and whether the first is of colours."""
    with quietly(path, "reading it as NIfTI"):
        array = np.asarray(image.dataobj)
    if array.dtype.names:  # RGB, or RGBA
        if four:
            raise FormatError(f"{path} has colours and four axes; save one volume")
        colours = [array[name].T for name in array.dtype.names[:3]]
        return np.stack(colours), True
    if array.dtype.kind not in "uifb":
        raise FormatError(f"{path} holds {array.dtype} numbers; save integers or floats")
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return np.ascontiguousarray(native.T), False


def _span(array: Array) -> tuple[float, float] | None:
    known = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    if not known.size or not known.max() > known.min():
        return None
    return float(known.min()), float(known.max())
