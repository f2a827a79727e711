"""Scans as inputs of commands: slices and whole volumes, shown by their window."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.files import open_regular
from hshap.cli.output import say
from hshap.formats.dicom.headers import is_dicom
from hshap.formats.listing import SCANS, elsewhere, is_large
from hshap.formats.reading import read_image

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hshap.formats.scan import Scan

LARGEST_SCAN = 2**33
"""Bytes of the largest file of a scan that is opened."""

FIX = "pass a DICOM or NIfTI file"


def is_scan(path: Path) -> bool:
    """Tell whether a file is a scan, by its name, or by its content if it has no ending.

    >>> is_scan(Path("knee.nii.gz")), is_scan(Path("knee.png"))
    (True, False)
    """
    if path.name.lower().endswith(SCANS):
        return True
    try:
        return not path.suffix and path.is_file() and is_dicom(path)
    except (OSError, ValueError):
        return False


def read_slice(path: Path, frame: int | None, max_pixels: int) -> Scan:
    """Read one picture of a scan: the file's own, or the slice that `--frame` names."""
    # A pipe, a device or a missing file is told as for any other input.
    with open_regular(path, most=LARGEST_SCAN, fix=FIX):
        pass
    scan = read_image(path)
    if "T" in scan.axes:
        message = f"{path} is a series in time ({scan.axes}), not a picture; explain it in Python"
        raise Refusal(Code.INPUT, message)
    if "Z" in scan.axes:
        count = scan.grid[0]
        if frame is None or frame >= count:
            message = (
                f"{path} is a volume of {count} slices; pass --frame 0 to {count - 1} for one of "
                "them, or explain the volume with hshap exam"
            )
            raise Refusal(Code.INPUT, message)
        scan = scan.plane(frame)
    elif frame:
        raise Refusal(Code.INPUT, f"{path} has one frame; leave out --frame {frame}")
    height, width = scan.grid
    if height * width > max_pixels:
        message = f"{path} has {height} x {width} pixels; pass a larger --max-pixels"
        raise Refusal(Code.INPUT, message)
    return _checked(path, scan)


def read_volume(path: Path) -> Scan:
    """Read a volume: a folder of DICOM or OME-Zarr, or a file with several slices."""
    if not path.is_dir():
        with open_regular(
            path, most=LARGEST_SCAN, fix="pass a folder of DICOM, or a volume in a file"
        ):
            pass
    scan = read_image(path)
    if scan.format == "numpy" and scan.axes == "CYX" and len(scan.array) > 1:
        say(f"{path}: the first of its axes {scan.array.shape} was taken for the slices")
        scan = replace(scan, array=scan.array[None], axes="CZYX")
    if scan.axes != "CZYX":
        kind = "one picture; pass it to hshap explain"
        if is_large(path.name):
            raise Refusal(Code.INPUT, elsewhere(str(path)))
        if "T" in scan.axes:
            kind = f"a series in time ({scan.axes}); explain it in Python"
        raise Refusal(Code.INPUT, f"{path} is no volume, but {kind}")
    return _checked(path, scan)


def _checked(path: Path, scan: Scan) -> Scan:
    if len(scan.array) not in (1, 3):
        message = f"{path} has {len(scan.array)} channels; pass grey values or colours"
        raise Refusal(Code.INPUT, message)
    if not np.isfinite(scan.array).all():
        message = f"{path} has values that are no numbers; replace them first"
        raise Refusal(Code.INPUT, message)
    return scan


def levels_of(
    scan: Scan, white: float | None, *, window: tuple[float, float] | None = None
) -> tuple[NDArray[np.float32], str]:
    """Return the values from 0 (black) to 1 (white), and a note about them."""
    if window is None and white is not None:
        window = (0.0, white)
    low, high = scan.window_shown(window)
    note = f"values from {low:g} to {high:g} were shown from black to white"
    if scan.inverted:
        note += ", turned around, since low values are white in it"
    return scan.shown(window), note
