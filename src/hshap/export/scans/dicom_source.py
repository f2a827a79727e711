"""The source of a DICOM export: headers of the scan's files, and who may know the patient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util.version import __version__
from hshap.errors import ArgumentError, require
from hshap.formats.dicom.headers import header_of

if TYPE_CHECKING:
    from hshap._util.types import Array, Untyped
    from hshap.formats.scan import Scan

EMPTY = (
    *("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime"),
    *("AccessionNumber", "ReferringPhysicianName", "StudyID"),
    "PositionReferenceIndicator",
)
"""Attributes that a DICOM file must have, and that may be empty."""

PERSONAL_GROUPS = (0x0010, 0x0012, 0x0032, 0x0038)
"""Groups of attributes about a patient, a trial, a request and a visit."""

TEXTS = ("PN", "LO", "SH", "ST", "LT", "UC", "UT", "DA", "TM", "DT", "AS", "SQ")
"""Kinds of values that may name a person, if they come from the source."""

DEVICE = {
    "manufacturer": "hshap",
    "manufacturer_model_name": "hshap",
    "software_versions": __version__,
    "device_serial_number": "0",
}


def highdicom(needed_by: str) -> Untyped:
    """Return highdicom."""
    return require("highdicom", extra="medical", needed_by=needed_by)


def source_headers(scan: Scan, needed_by: str) -> list[Untyped]:
    """Return the headers of a scan's files, in the order of its slices."""
    if scan.format != "dicom" or not scan.files:
        message = (
            f"{needed_by} needs a scan that was read from DICOM, whose study it belongs to, got "
            f"{scan!r}; use write_nifti or write_ome_zarr"
        )
        raise ArgumentError(message)
    headers = [header_of(file) for file in scan.files]
    if "FrameOfReferenceUID" not in headers[0]:
        message = f"{needed_by} needs a FrameOfReferenceUID, but {scan!r} has none; use write_nifti"
        raise ArgumentError(message)
    return headers


def placed_volume(module: Untyped, values: Array, scan: Scan, header: Untyped) -> Untyped:
    """Return slices with their place: highdicom finds the source of each by it, not by number."""
    stack = values if "Z" in scan.axes else values[None]
    return module.Volume(
        np.ascontiguousarray(stack),
        affine=np.array(scan.affine),
        coordinate_system="PATIENT",
        frame_of_reference_uid=str(header.FrameOfReferenceUID),
    )


def finish(made: Untyped, source: Untyped, *, patient: bool) -> None:
    """Remove texts that were copied from the source, unless asked for; add empty ones."""
    if not patient:
        _forget(made, source)
    for keyword in EMPTY:
        if keyword not in made:
            setattr(made, keyword, "")


def _forget(made: Untyped, source: Untyped) -> None:
    """Remove all texts that were copied from the source, and all groups about a patient."""
    for element in list(made):
        same = element.tag in source and source[element.tag].value == element.value
        if element.tag.group in PERSONAL_GROUPS or (same and element.VR in TEXTS):
            del made[element.tag]
