"""Pixels of DICOM: decoded, in colour or as values in the unit of the modality."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import FormatError
from hshap.formats.dicom.headers import library
from hshap.formats.refusals import quietly

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hshap._util.types import Array, Untyped

UNITS = ("HU", "OD", "US", "MGML", "Z_EFF", "ED", "EDW", "HU_MOD", "PCT", "BQML", "GML")
"""Units that DICOM defines. Other texts are free, and are not shown."""


def frames_of(path: Path, header: Untyped) -> Array:
    """Return the stored numbers as `(frames, rows, columns, channels)`; colours as RGB."""
    pydicom = library()
    keyword = next(
        (k for k in ("PixelData", "FloatPixelData", "DoubleFloatPixelData") if k in header), None
    )
    if keyword is None:
        raise FormatError(f"{path} is truncated or no image: it has no pixels; copy it again")
    colours = str(header.PhotometricInterpretation)
    frames, samples = int(header.get("NumberOfFrames", None) or 1), int(header.SamplesPerPixel)
    _refuse_short(path, header, keyword, frames * samples)
    with quietly(path, "decoding its pixels"):
        array = np.asarray(pydicom.pixels.pixel_array(header))
        if colours == "PALETTE COLOR":
            array = np.asarray(pydicom.pixels.apply_color_lut(array, header))
            samples = array.shape[-1]
        return array.reshape(frames, int(header.Rows), int(header.Columns), samples)


def _refuse_short(path: Path, header: Untyped, keyword: str, planes: int) -> None:
    if header.file_meta.TransferSyntaxUID.is_encapsulated:
        return
    wanted = planes * int(header.Rows) * int(header.Columns) * int(header.BitsAllocated) // 8
    # Colours at half the width have two thirds of it.
    if str(header.PhotometricInterpretation) == "YBR_FULL_422":
        wanted = wanted * 2 // 3
    size = len(header[keyword].value or b"")
    if size < wanted:
        message = f"{path} is truncated: it has {size:,} of {wanted:,} bytes of pixels; copy it"
        raise FormatError(f"{message} again")


def values_of(path: Path, header: Untyped, frame: Array, groups: Sequence[Untyped] = ()) -> Array:
    """Return a grey frame `(rows, columns)` in the unit of its modality, by slope or by table."""
    with quietly(path, "rescaling its values"):
        if header.get("ModalityLUTSequence", None):
            return np.asarray(library().pixels.apply_modality_lut(frame, header), np.float32)
        slope, intercept = (
            next((float(g.get(key)) for g in (*groups, header) if g.get(key, None) is not None), e)
            for key, e in (("RescaleSlope", 1.0), ("RescaleIntercept", 0.0))
        )
        if not np.isfinite([slope, intercept]).all() or slope == 0:
            message = f"{path} has a RescaleSlope or RescaleIntercept of no use; export it again"
            raise FormatError(message)
        exact = np.float64 if frame.dtype.itemsize > 2 else np.float32
        return (frame.astype(np.float64) * slope + intercept).astype(exact)


def window_of(header: Untyped, groups: Sequence[Untyped] = ()) -> tuple[float, float] | None:
    """Return the values of black and white that a viewer shows first; None if none are told."""
    for each in (*groups, header):
        centre, width = (_first(each.get(key, None)) for key in ("WindowCenter", "WindowWidth"))
        if centre is None or width is None:
            continue
        exact = str(each.get("VOILUTFunction", "") or "LINEAR") != "LINEAR"
        # By default, the middle lies half a value lower, and the width counts values.
        middle, wide = (centre, width) if exact else (centre - 0.5, width - 1.0)
        if np.isfinite([middle, wide]).all() and wide > 0:
            return middle - wide / 2, middle + wide / 2
    return None


def unit_of(header: Untyped) -> str:
    """Return the unit of the values, if it is one that DICOM defines."""
    for keyword in ("RescaleType", "Units"):
        if str(header.get(keyword, "")) in UNITS:
            return str(header.get(keyword))
    return "HU" if str(header.get("Modality", "")) == "CT" else ""


def _first(value: object) -> float | None:
    if value is None or value == "":
        return None
    found = np.atleast_1d(np.array(value, dtype=np.float64))
    return float(found[0]) if found.size else None
