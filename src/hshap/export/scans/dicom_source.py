"""A new series of a scan's study: where its frames lie, and whether it may name the patient."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.atomic import replace
from hshap._util.version import __version__
from hshap.errors import ArgumentError, require
from hshap.export.inputs import as_name
from hshap.export.scans.places import new_file, placed
from hshap.formats.dicom.geometry import leeway, plane_of
from hshap.formats.dicom.headers import header_of
from hshap.formats.refusals import quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike
    from pathlib import Path

    from hshap._util.types import Array, Heat, Untyped
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


@dataclass(frozen=True)
class NewSeries:
    """A file to write, as a series of the study of `scan`, by the library highdicom."""

    target: Path
    scan: Scan
    affine: Heat
    headers: tuple[Untyped, ...]
    library: Untyped

    @property
    def identity(self) -> dict[str, Untyped]:
        """Ids of the new series, and the program that made it."""
        return {
            "source_images": self.headers,
            "series_instance_uid": self.library.UID(),
            "sop_instance_uid": self.library.UID(),
            "instance_number": 1,
            **DEVICE,
        }

    def frames(self, values: Array) -> dict[str, Untyped]:
        """Return slices and their places; highdicom finds the source of each by its place.

        Each slice has a place of its own, so those of a tilted gantry, which lie askew, fit too.
        """
        stack = np.ascontiguousarray(values if "Z" in self.scan.axes else values[None])
        step, down, across = self.affine[:3, :3].T
        lengths = np.linalg.norm(down), np.linalg.norm(across)
        apart = float(abs(step @ np.cross(across / lengths[1], down / lengths[0])))
        starts = self.affine[:3, 3] + np.arange(len(stack))[:, None] * step
        starts = _snapped(starts, self.headers, leeway(apart))
        return {
            "pixel_array": stack,
            "pixel_measures": self.library.PixelMeasuresSequence(
                pixel_spacing=list(map(float, lengths)),
                slice_thickness=apart,
                spacing_between_slices=apart,
            ),
            "plane_orientation": self.library.PlaneOrientationSequence(
                "PATIENT", [*(across / lengths[1]), *(down / lengths[0])]
            ),
            "plane_positions": [
                self.library.PlanePositionSequence("PATIENT", list(map(float, start)))
                for start in starts
            ],
        }

    def write(self, kind: str, make: Callable[[], Untyped], *, patient: bool) -> Path:
        """Make the file and write it, with the patient's data only if they are asked for."""
        memory = io.BytesIO()
        with quietly(self.scan.files[0], f"writing a {kind} of it"):
            made = make()
            # Names of findings may have letters that the source's own set lacks.
            made.SpecificCharacterSet = "ISO_IR 192"
            if not patient:
                _forget(made, self.headers[0])
            for keyword in EMPTY:
                if keyword not in made:
                    setattr(made, keyword, "")
            made.save_as(memory, enforce_file_format=True)
        return replace(self.target, lambda file: file.write(memory.getbuffer()))


def as_text(name: object) -> str:
    """Return the name of findings; a backslash, by which DICOM separates values, is refused."""
    label = as_name("name", name)
    if "\\" in label:
        raise ArgumentError(f"name={label!r} has a backslash; pass a name without one")
    return label


def new_series(path: str | PathLike[str], scan: Scan, needed_by: str) -> NewSeries:
    """Return a series to write; refuse a scan without a place or a study, and its own files."""
    affine, target = placed(scan, needed_by), new_file(path, scan)
    library: Untyped = require("highdicom", extra="medical", needed_by=needed_by)
    return NewSeries(target, scan, affine, _headers(scan, needed_by), library)


def _headers(scan: Scan, needed_by: str) -> tuple[Untyped, ...]:
    """Return the headers of a scan's files, in the order of its slices."""
    if scan.format != "dicom" or not scan.files:
        message = (
            f"{needed_by} needs a scan that was read from DICOM, whose study it belongs to, got "
            f"{scan!r}; use write_nifti or write_ome_zarr"
        )
        raise ArgumentError(message)
    headers = tuple(header_of(file) for file in scan.files)
    if "FrameOfReferenceUID" not in headers[0]:
        message = f"{needed_by} needs a FrameOfReferenceUID, but {scan!r} has none; use write_nifti"
        raise ArgumentError(message)
    return headers


def _snapped(starts: Heat, headers: Sequence[Untyped], most: float) -> Heat:
    """Return positions of slices as their own headers tell them, up to rounding.

    The affine evens rounded positions out, and viewers want those of the source to the digit.
    """
    planes = [plane_of("the source", head) for head in headers]
    own = np.array([plane.position for plane in planes if plane is not None])
    if not len(own):
        return starts
    nearest = own[[np.linalg.norm(own - start, axis=1).argmin() for start in starts]]
    close = np.linalg.norm(nearest - starts, axis=1) <= most
    return np.where(close[:, None], nearest, starts)


def _forget(made: Untyped, source: Untyped) -> None:
    """Remove all texts that were copied from the source, and all groups about a patient."""
    for element in list(made):
        same = element.tag in source and source[element.tag].value == element.value
        if element.tag.group in PERSONAL_GROUPS or (same and element.VR in TEXTS):
            del made[element.tag]
