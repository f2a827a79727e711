"""Scans: an image from a file, with the order of its axes, its spacing and its place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import frozen, to_numpy
from hshap._util.recipes import settle
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from hshap._util.types import Array, Grid, Heat

SPATIAL = "ZYX"
UPRIGHT = 1
"""The EXIF orientation of an image that need not be turned."""

LPS = "LPS"
"""World coordinates of DICOM: millimetres to the patient's left, to the back, and to the head."""

STAGE = "XYZ"
"""World coordinates of a microscope's stage: millimetres along x, y and z of the image."""


@dataclass(frozen=True, eq=False, repr=False)
class Scan:
    """An image from a file, with its axes, its spacing and its place in the world.

    `array` has the channels first, and is read-only; `axes` names its axes, such as "CYX" for a
    picture or "CZYX" for a volume. Explain it as the model takes it: `scan.shown()`, or
    `scan.array.astype("float32")` in the unit of the file.
    `spacing` is the distance between neighbouring pixels in millimetres, one number for each of the
    axes Z, Y and X that the array has; None if it is not in the file.

    `affine` takes the position `(z, y, x, 1)` of a pixel's centre in the array to `(x, y, z, 1)` in
    millimetres in the world; a picture has z = 0. It is None if the file has no place. `world`
    gives the directions of the three coordinates: "LPS" (left, posterior, superior) for DICOM and
    NIfTI, whose own affine is turned to LPS here, and "XYZ" for OME-Zarr and OME-TIFF.

    `window` is the range of values that a viewer shows, from black to white; `inverted` says that
    low values are white, as in some radiographs. `unit` is the unit of the values, such as "HU".
    `name` is the name that the caller gave, `format` the kind of the file, and `files` are the
    files that were read, one for each slice of a DICOM series. A scan holds nothing about a
    patient: exports read the header that they need from `files` again. `notes` say how the values
    of a picture differ from those in its file; `orientation` is the EXIF orientation by which it
    was turned upright, 1 if it was upright.

    >>> scan = Scan(np.zeros((1, 4, 8, 8)), axes="CZYX", name="knee.nii", spacing=(3.0, 1.0, 1.0))
    >>> scan
    Scan('knee.nii': CZYX 1 x 4 x 8 x 8, float64, spacing 3 x 1 x 1 mm)
    >>> scan.grid
    (4, 8, 8)
    """

    array: Array
    axes: str
    name: str = "image"
    format: str = "array"
    spacing: tuple[float, ...] | None = None
    affine: Heat | None = None
    world: str = ""
    window: tuple[float, float] | None = None
    inverted: bool = False
    unit: str = ""
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    orientation: int = UPRIGHT

    def __post_init__(self) -> None:
        array = to_numpy("array", self.array)
        usable = len(set(self.axes)) == len(self.axes) == array.ndim
        if not usable or not self.axes.startswith("C") or set(self.axes) - set("CTZYX"):
            message = (
                f"axes={self.axes!r} cannot be those of an array of shape {array.shape}; pass one "
                "letter of T, Z, Y and X for each axis after the channels C"
            )
            raise ArgumentError(message)
        settle(self, array=frozen(array))
        if self.spacing is not None:
            spacing = tuple(checks.number("spacing", each, minimum=1e-12) for each in self.spacing)
            if len(spacing) != len(self.spatial):
                message = f"spacing={spacing} must have one number for each of {self.spatial}"
                raise ArgumentError(message)
            settle(self, spacing=spacing)
        if self.affine is not None:
            affine = to_numpy("affine", self.affine).astype(np.float64)
            if affine.shape != (4, 4) or not np.isfinite(affine).all():
                message = f"affine has shape {affine.shape}; pass 4 x 4 finite numbers"
                raise ArgumentError(message)
            settle(self, affine=frozen(affine))

    @property
    def grid(self) -> Grid:
        """Lengths of all axes but the channels."""
        return self.array.shape[1:]

    @property
    def spatial(self) -> str:
        """The letters of the axes with a spacing: those of Z, Y and X that the array has."""
        return "".join(axis for axis in self.axes if axis in SPATIAL)

    @property
    def directions(self) -> str:
        """Where each spatial axis leads in the patient; empty if that is not known, or oblique.

        L is left, P back (posterior), S up (superior), and R, A and I are their opposites.

        >>> axial = np.array([[0, 0, 1, 0], [0, 1, 0, 0], [3, 0, 0, 0], [0, 0, 0, 1]])
        >>> Scan(np.zeros((1, 4, 8, 8)), axes="CZYX", affine=axial, world="LPS").directions
        'SPL'
        """
        if self.affine is None or self.world != LPS:
            return ""
        columns = [self.affine[:3, SPATIAL.index(axis)] for axis in self.spatial]
        nearest = [int(np.abs(column).argmax()) for column in columns]
        if len(set(nearest)) < len(nearest):
            return ""
        return "".join(
            (LPS if column[world] > 0 else "RAI")[world]
            for column, world in zip(columns, nearest, strict=True)
        )

    def shown(self, window: tuple[float, float] | None = None) -> NDArray[np.float32]:
        """Return the values as a viewer shows them: black is 0, white is 1.

        The range is `window`, or else that of the file, or else the range of the type for 8 and 16
        bits, or else that of the values.

        >>> scan = Scan(np.array([[[0.0, 50.0, 200.0]]]), axes="CYX", window=(0, 100))
        >>> scan.shown().tolist()
        [[[0.0, 0.5, 1.0]]]
        """
        low, high = self.window_shown(window)
        if not high > low:
            message = f"window={(low, high)} is empty; pass the value of black, and a larger one"
            raise ArgumentError(message)
        out = np.clip((self.array.astype(np.float64) - low) / (high - low), 0.0, 1.0)
        return (1.0 - out if self.inverted else out).astype(np.float32)

    def window_shown(self, window: tuple[float, float] | None = None) -> tuple[float, float]:
        """Return the values of black and white that `shown` uses.

        >>> Scan(np.zeros((1, 2, 2), np.uint8), axes="CYX").window_shown()
        (0.0, 255.0)
        """
        if window is not None or self.window is not None:
            low, high = map(float, window or self.window or ())
            return low, high
        if self.array.dtype.kind == "u" and self.array.dtype.itemsize <= 2:
            return 0.0, float(np.iinfo(self.array.dtype).max)
        low, high = float(np.nanmin(self.array)), float(np.nanmax(self.array))
        return low, high if high > low else low + 1.0

    def plane(self, z: int) -> Scan:
        """Return one slice of a volume as a picture, with its own place and file.

        >>> Scan(np.zeros((1, 4, 8, 8)), axes="CZYX", spacing=(3.0, 1.0, 1.0)).plane(2)
        Scan('image': CYX 1 x 8 x 8, float64, spacing 1 x 1 mm)
        """
        number = checks.integer("z", z, minimum=0)
        if "Z" not in self.axes or number >= self.array.shape[self.axes.index("Z")]:
            message = f"z={z} is no slice of {self!r}; pass one of the axis Z"
            raise ArgumentError(message)
        affine = self.affine
        if affine is not None:
            moved = affine.copy()
            moved[:, 3] = affine @ (number, 0.0, 0.0, 1.0)
            affine = moved
        along = self.axes.index("Z")
        single = len(self.files) == self.array.shape[along]
        return replace(
            self,
            array=self.array.take(number, along),
            axes=self.axes.replace("Z", ""),
            spacing=None if self.spacing is None else self.spacing[1:],
            affine=affine,
            files=(self.files[number],) if single else self.files,
        )

    def to_world(self, positions: ArrayLike) -> Heat:
        """Return positions `(..., z, y, x)` of pixel centres in millimetres, as `(..., x, y, z)`.

        >>> turned = np.diag([3.0, 1.0, 1.0, 1.0])[[2, 1, 0, 3]]
        >>> Scan(np.zeros((1, 4, 8, 8)), axes="CZYX", affine=turned).to_world((2, 5, 7))
        array([7., 5., 6.])
        """
        if self.affine is None:
            message = f"{self!r} has no place in the world; read a file that tells it"
            raise ArgumentError(message)
        found = to_numpy("positions", positions).astype(np.float64, copy=False)
        return found @ self.affine[:3, :3].T + self.affine[:3, 3]

    def __repr__(self) -> str:
        sides = " x ".join(map(str, self.array.shape))
        apart = "" if self.spacing is None else f", spacing {_by(self.spacing)} mm"
        return f"Scan({self.name!r}: {self.axes} {sides}, {self.array.dtype}{apart})"


def channels_first(array: Array, axes: str) -> tuple[Array, str]:
    """Return an array with its channels first, without axes of length 1 but Y and X.

    >>> channels_first(np.zeros((1, 5, 3, 8, 8)), "TZCYX")[1]
    'CZYX'
    """
    lengths = dict(zip(axes, array.shape, strict=True))
    kept = [axis for axis in "CTZYX" if axis in "YX" or lengths.get(axis, 1) > 1]
    order = [axes.index(axis) for axis in kept]
    index = tuple(slice(None) if axis in kept else 0 for axis in axes)
    rest = [axis for axis in axes if axis in kept]
    out = array[index].transpose([rest.index(axes[n]) for n in order])
    return (out, "".join(kept)) if "C" in kept else (out[None], "".join(("C", *kept)))


def stage_affine(sizes: Mapping[str, float], starts: Mapping[str, float]) -> Heat:
    """Return the affine from `(z, y, x, 1)` to x, y and z of a microscope's stage."""
    affine = np.zeros((4, 4))
    for column, axis in enumerate(SPATIAL):
        affine["XYZ".index(axis), column] = sizes.get(axis, 1.0)
        affine["XYZ".index(axis), 3] = starts.get(axis, 0.0)
    affine[3, 3] = 1.0
    return affine


def _by(numbers: Sequence[float]) -> str:
    return " x ".join(f"{each:.4g}" for each in numbers)
