"""The place of slices: sorted along their normal, at equal distances, or refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Heat, Ints, Untyped

ALIKE = 1e-3
"""Directions, and spacings of two slices, may differ by rounding."""

UNEVEN = 0.01
"""Tolerance for slice positions, as a fraction of the slice spacing."""


@dataclass(frozen=True)
class Plane:
    """The place of one slice: its first pixel's centre, its directions, and its spacing."""

    position: Heat
    along_columns: Heat
    """The direction in which columns follow each other: the array's x."""
    along_rows: Heat
    spacing: tuple[float, float]
    """The distance between rows, and the one between columns."""
    thickness: float

    @property
    def normal(self) -> Heat:
        """The direction from slice to slice."""
        return np.cross(self.along_columns, self.along_rows)


def plane_of(name: str, header: Untyped, groups: Sequence[Untyped] = ()) -> Plane | None:
    """Return the place of an image or a frame; None if the header has none of it."""
    place = _found("ImagePositionPatient", 3, name, header, groups)
    turned = _found("ImageOrientationPatient", 6, name, header, groups)
    spacing = _found("PixelSpacing", 2, name, header, groups)
    if place is None or turned is None or spacing is None:
        return None
    across, down = turned[:3], turned[3:]
    lengths = np.linalg.norm(across), np.linalg.norm(down)
    if max(abs(lengths[0] - 1), abs(lengths[1] - 1), abs(across @ down)) > ALIKE * 10:
        message = f"{name} has an ImageOrientationPatient that is no pair of directions"
        raise FormatError(f"{message} at a right angle; export it again")
    if min(spacing) <= 0:
        raise FormatError(f"{name} has a PixelSpacing that is not positive; export it again")
    thick = _found("SliceThickness", 1, name, header, groups)
    return Plane(
        place,
        across / lengths[0],
        down / lengths[1],
        (float(spacing[0]), float(spacing[1])),
        float(thick[0]) if thick is not None and thick[0] > 0 else 1.0,
    )


def missing_of(header: Untyped) -> str:
    """Return the names of the attributes of geometry that a header lacks."""
    names = ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing")
    return ", ".join(name for name in names if not header.get(name, None))


def stacked(name: str, planes: Sequence[Plane]) -> tuple[Ints, Heat, float]:
    """Return the order of slices, their affine from `(z, y, x, 1)`, and the distance of slices."""
    first = planes[0]
    for plane in planes:
        same = np.allclose(plane.spacing, first.spacing, rtol=ALIKE)
        for a, b in (
            (plane.along_rows, first.along_rows),
            (plane.along_columns, first.along_columns),
        ):
            same = same and np.allclose(a, b, atol=ALIKE)
        if not same:
            message = f"{name} has slices of different orientation or spacing; pass one series"
            raise FormatError(message)
    places = np.array([plane.position for plane in planes])
    depths = places @ first.normal
    order = np.argsort(depths, kind="stable")
    step = _step(name, places[order], depths[order]) if len(planes) > 1 else None
    affine = np.eye(4)
    affine[:3, 0] = first.normal * first.thickness if step is None else step
    affine[:3, 1] = first.along_rows * first.spacing[0]
    affine[:3, 2] = first.along_columns * first.spacing[1]
    affine[:3, 3] = places[order[0]]
    distance = first.thickness if step is None else float(abs(step @ first.normal))
    return order, affine, distance


def leeway(distance: float) -> float:
    """Return the tolerance for slice positions in millimetres, for this slice spacing."""
    return max(UNEVEN * distance, 0.01)


def _step(name: str, places: Heat, depths: Heat) -> Heat:
    """Return the way from slice to slice; refuse gaps, doubled slices and other distances."""
    gaps = np.diff(depths)
    usual = float(np.median(gaps))
    if gaps.min() < ALIKE * max(usual, 1.0):
        message = (
            f"{name} has several images at one position, such as time points or echoes; pass a "
            "folder with one of them"
        )
        raise FormatError(message)
    wide = np.flatnonzero(gaps > 1.5 * usual)
    if len(wide):
        message = (
            f"{name} has a gap: between slices {wide[0] + 1} and {wide[0] + 2} lie "
            f"{gaps[wide[0]]:.4g} mm, elsewhere {usual:.4g} mm; add the missing slices"
        )
        raise FormatError(message)
    step = (places[-1] - places[0]) / (len(places) - 1)
    lines = places[0] + np.arange(len(places))[:, None] * step
    beside = np.linalg.norm(places - lines, axis=1).max()
    if beside > leeway(usual):
        message = (
            f"{name} has unequal distances between slices, from {gaps.min():.4g} to "
            f"{gaps.max():.4g} mm; resample it to one distance"
        )
        raise FormatError(message)
    return step


def _found(
    keyword: str, count: int, name: str, header: Untyped, groups: Sequence[Untyped]
) -> Heat | None:
    value = next((each.get(keyword) for each in (*groups, header) if each.get(keyword)), None)
    if value is None:
        return None
    try:
        numbers = np.atleast_1d(np.array(value, dtype=np.float64))
    except (TypeError, ValueError):
        numbers = np.full(0, np.nan)
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        message = f"{name} has an attribute {keyword} that is not {count} numbers; export it again"
        raise FormatError(message)
    return numbers
