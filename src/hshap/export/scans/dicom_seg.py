"""DICOM segmentation: each finding is a segment, in a new series of the same study."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.version import __version__
from hshap.errors import ArgumentError
from hshap.export.scans.dicom_source import as_text, new_series
from hshap.export.scans.places import as_labels, as_scan

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from numpy.typing import ArrayLike

    from hshap._util.types import Untyped
    from hshap.formats.scan import Scan

SERIES_NUMBER = 4701
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
            series_number=SERIES_NUMBER,
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
