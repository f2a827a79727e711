"""DICOM: findings as a segmentation, and maps as a parametric map, in a new series of the study."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.atomic import replace
from hshap._util.version import __version__
from hshap.errors import ArgumentError, require
from hshap.export.map_files import as_labels, as_scan, fitting, new_file, placed
from hshap.export.placed_findings import as_name
from hshap.formats.dicom.geometry import leeway, plane_of
from hshap.formats.dicom.headers import header_of
from hshap.formats.refusals import quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike
    from pathlib import Path

    from numpy.typing import ArrayLike

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


SEGMENTATION_NUMBER = 4701
MOST_SEGMENTS = 1000


def write_dicom_seg(
    path: str | PathLike[str],
    labels: ArrayLike,
    scan: Scan,
    *,
    name: str = "finding",
    patient: bool = False,
) -> Path:
    """Write labels as a DICOM segmentation of the scan's study; return the path.

    Label 1 becomes segment 1, named "finding 1", and so on. The file is a new series of the same
    study, in the same frame of reference; its frames lie at the positions of the slices that they
    were drawn on, and only slices with a finding have one. Without any finding there is nothing to
    write, which is an `ArgumentError`. The patient's name and id, dates and descriptions are left
    empty unless `patient` is True; then they are those of the source.

    >>> import tempfile
    >>> import hshap
    >>> from pydicom.data import get_testdata_file  # a slice that pydicom ships
    >>> scan = hshap.images.read_image(get_testdata_file("CT_small.dcm"))
    >>> bright = (scan.array[0] > 500).astype(np.uint8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_dicom_seg(f"{folder}/found.dcm", bright, scan, name="bright").name
    'found.dcm'
    """
    found = as_scan(scan)
    whole = as_labels(labels, found)
    label, known = as_text(name), checks.flag("patient", patient)
    count = int(whole.max())
    if not 0 < count <= MOST_SEGMENTS:
        message = (
            f"labels have {count} findings; pass 1 to {MOST_SEGMENTS}: a segmentation cannot be "
            "empty"
        )
        raise ArgumentError(message)
    series = new_series(path, found, "write_dicom_seg")
    hd = series.library

    def make() -> Untyped:
        made: Untyped = hd.seg.Segmentation(
            segmentation_type="BINARY",
            segment_descriptions=[_segment(hd, label, n, count) for n in range(1, count + 1)],
            series_number=SEGMENTATION_NUMBER,
            content_label="FINDINGS",
            content_description="Regions that drive a classifier's score",
            **series.frames(whole.astype(np.uint16)),
            **series.identity,
        )
        made.SeriesDescription = "hshap findings"
        return made

    return series.write("segmentation", make, patient=known)


def _segment(hd: Untyped, label: str, number: int, count: int) -> Untyped:
    code = hd.sr.CodedConcept
    return hd.seg.SegmentDescription(
        segment_number=number,
        segment_label=(label if count == 1 else f"{label} {number}")[:64],
        # A region of the image: a finding of a classifier is no diagnosis.
        segmented_property_category=code("309825002", "SCT", "Spatial and Relational Concept"),
        segmented_property_type=code("111030", "DCM", "Image Region"),
        algorithm_type="AUTOMATIC",
        algorithm_identification=hd.AlgorithmIdentificationSequence(
            name="hshap",
            version=__version__,
            family=code("123110", "DCM", "Artificial Intelligence"),
        ),
    )


MAP_NUMBER = 4702


def write_dicom_map(
    path: str | PathLike[str],
    values: ArrayLike,
    scan: Scan,
    *,
    name: str = "coefficient",
    patient: bool = False,
) -> Path:
    """Write a map as a DICOM parametric map of the scan's study; return the path.

    Values are 32-bit floats without a unit, named `name`. The file is a new series of the same
    study, in the same frame of reference, with a frame at the position of each slice. The patient's
    name and id, dates and descriptions are left empty unless `patient` is True.

    >>> import tempfile
    >>> import hshap
    >>> from pydicom.data import get_testdata_file  # a slice that pydicom ships
    >>> scan = hshap.images.read_image(get_testdata_file("CT_small.dcm"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_dicom_map(f"{folder}/map.dcm", scan.shown()[0], scan)
    ...     hshap.images.read_image(file)
    Scan('map.dcm': CYX 1 x 128 x 128, float64, spacing 0.6615 x 0.6615 mm)
    """
    found = as_scan(scan)
    given = fitting("values", values, found)
    with np.errstate(over="ignore"):
        whole = given.astype(np.float32)
    if not np.isfinite(whole).all():
        message = (
            f"values hold {np.count_nonzero(~np.isfinite(whole))} that are no finite numbers of 32 "
            "bits; replace them first, for example by numpy.nan_to_num"
        )
        raise ArgumentError(message)
    label, known = as_text(name), checks.flag("patient", patient)
    series = new_series(path, found, "write_dicom_map")
    hd = series.library
    low, high = float(whole.min()), float(whole.max())

    def make() -> Untyped:
        made: Untyped = hd.pm.ParametricMap(
            series_number=MAP_NUMBER,
            contains_recognizable_visual_features=False,
            real_world_value_mappings=[_mapping(hd, label, low, high)],
            voi_lut_transformations=[
                hd.VOILUTTransformation(
                    window_center=(low + high) / 2,
                    window_width=(high - low) or 1.0,
                    voi_lut_function="LINEAR_EXACT",
                )
            ],
            content_label="MAP",
            content_description="How far regions drive a classifier's score",
            **series.frames(whole),
            **series.identity,
        )
        made.SeriesDescription, made.Laterality = "hshap map", ""
        return made

    return series.write("parametric map", make, patient=known)


def _mapping(hd: Untyped, label: str, low: float, high: float) -> Untyped:
    return hd.pm.RealWorldValueMapping(
        lut_label=label[:16],
        lut_explanation=label[:64],
        unit=hd.sr.CodedConcept("1", "UCUM", "no units"),
        value_range=(low, high),
        slope=1.0,
        intercept=0.0,
    )
