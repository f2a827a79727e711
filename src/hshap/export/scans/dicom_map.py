"""DICOM parametric map: a map of floats in a new series of the same study."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.export.scans.dicom_source import as_text, new_series
from hshap.export.scans.places import as_scan, fitting

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from numpy.typing import ArrayLike

    from hshap._util.types import Untyped
    from hshap.formats.scan import Scan

SERIES_NUMBER = 4702


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
            series_number=SERIES_NUMBER,
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
