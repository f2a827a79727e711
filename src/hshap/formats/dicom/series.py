"""Series of DICOM: slices are put together by their position, never by number or file name."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap.errors import FormatError
from hshap.formats.dicom.geometry import Plane, missing_of, plane_of, stacked
from hshap.formats.dicom.headers import header_of
from hshap.formats.dicom.pixels import frames_of, unit_of, values_of, window_of
from hshap.formats.refusals import quietly, refuse_large
from hshap.formats.scan import LPS, Scan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hshap._util.types import Array, Untyped

NO_SLICES = ("DICOMDIR", "LICENSE", "README", "VERSION")
"""Names of files that lie beside the slices of a series."""

MOST_FILES = 20_000


class Slices(NamedTuple):
    """Frames `(slices, channels, rows, columns)` in the order in which they were read."""

    frames: Array
    planes: tuple[Plane | None, ...]
    header: Untyped
    window: tuple[float, float] | None


def read_dicom(path: Path) -> Scan:
    """Read an image, a multi-frame image, or a folder with one series."""
    if path.is_dir():
        files = _series(path)
        single = len(files) == 1
        return _single(path, files[0]) if single else _scan(path, _loaded(files), files)
    return _single(path, path)


def frame_groups(header: Untyped, frame: int) -> list[Untyped]:
    """Return the functional groups of a frame of an enhanced image: its own, then the shared."""
    per_frame: Untyped = header.get("PerFrameFunctionalGroupsSequence", None) or []
    shared: Untyped = header.get("SharedFunctionalGroupsSequence", None) or []
    return [
        element.value[0]
        for group in (*per_frame[frame : frame + 1], *shared[:1])
        for element in group
        if element.VR == "SQ" and element.value
    ]


def _single(path: Path, file: Path) -> Scan:
    """Read one file; frames without a position, as those of ultrasound, follow each other in T."""
    header = header_of(file, pixels=True)
    frames = frames_of(file, header)
    grey = frames.shape[-1] == 1
    made: list[Array] = []
    planes: list[Plane | None] = []
    window = None
    with quietly(file, "reading the place of its frames"):
        for number, frame in enumerate(frames):
            groups = frame_groups(header, number)
            planes.append(plane_of(str(file), header, groups))
            window = window or window_of(header, groups)
            value = values_of(file, header, frame[..., 0], groups)[None] if grey else None
            made.append(np.moveaxis(frame, -1, 0) if value is None else value)
        planes = _by_offsets(header, planes)
    return _scan(path, Slices(np.stack(made), tuple(planes), header, window), (file,))


def _by_offsets(header: Untyped, planes: list[Plane | None]) -> list[Plane | None]:
    """Move the frames of a dose, which has one position for all, to their own."""
    offsets = header.get("GridFrameOffsetVector", None)
    first = planes[0]
    if len(planes) < 2 or first is None or header.get("PerFrameFunctionalGroupsSequence", None):
        return planes
    if offsets is None or len(offsets) != len(planes):
        return [None] * len(planes)
    moved = np.array(offsets, dtype=np.float64)
    away = moved - moved[0] if moved[0] == 0 else moved - first.position[2]
    return [
        Plane(
            first.position + first.normal * each,
            first.along_columns,
            first.along_rows,
            first.spacing,
            first.thickness,
        )
        for each in away
    ]


def _series(folder: Path) -> tuple[Path, ...]:
    """Return the files of the one series in a folder."""
    listed = sorted(
        each
        for each in folder.iterdir()
        if each.is_file() and not each.name.startswith(".") and each.stem.upper() not in NO_SLICES
    )
    if not listed or len(listed) > MOST_FILES:
        message = f"{folder} holds {len(listed)} files; pass a folder with the files of one series"
        raise FormatError(message)
    series: Counter[str] = Counter()
    worlds: set[str] = set()
    for file in listed:
        header = header_of(file)
        series[str(header.get("SeriesInstanceUID", ""))] += 1
        worlds.add(str(header.get("FrameOfReferenceUID", "")))
        _check_slice(folder, file, header, several=len(listed) > 1)
    if len(series) > 1:
        counts = ", ".join(f"{n} files" for n in sorted(series.values(), reverse=True))
        message = f"{folder} mixes {len(series)} series ({counts}); pass a folder with one series"
        raise FormatError(message)
    if len(worlds) > 1:
        message = f"{folder} has slices in {len(worlds)} frames of reference, whose places cannot"
        raise FormatError(f"{message} be compared; pass a folder with one of them")
    return tuple(listed)


def _check_slice(folder: Path, file: Path, header: Untyped, *, several: bool) -> None:
    if not several:
        return
    if int(header.get("NumberOfFrames", None) or 1) > 1:
        message = f"{file} has several frames, and is one of several files; pass it by itself"
        raise FormatError(message)
    missing = missing_of(header)
    if missing:
        message = (
            f"{file} lacks the geometry of a slice: it has no {missing}; pass a single file of "
            f"{folder}, or export the series with its geometry"
        )
        raise FormatError(message)


def _loaded(files: Sequence[Path]) -> Slices:
    """Read the slices of a series, one file each."""
    frames: list[Array] = []
    planes: list[Plane | None] = []
    windows: list[tuple[float, float] | None] = []
    kind: tuple[str, ...] | None = None
    header: Untyped = None
    for file in files:
        header = header_of(file, pixels=True)
        stored = frames_of(file, header)[0]
        grey = stored.shape[-1] == 1
        frame = values_of(file, header, stored[..., 0])[None] if grey else np.moveaxis(stored, 2, 0)
        own = (str(frame.shape), str(header.PhotometricInterpretation))
        kind = kind or own
        if own != kind:
            message = f"{file} differs in size or colours from the first slice; pass one series"
            raise FormatError(message)
        frames.append(frame)
        refuse_large(str(file.parent), (len(files), *frame.shape), frame.itemsize)
        with quietly(file, "reading its place"):
            planes.append(plane_of(str(file), header))
            windows.append(window_of(header))
    middle = windows[len(windows) // 2]
    return Slices(np.stack(frames), tuple(planes), header, middle)


def _scan(path: Path, slices: Slices, files: tuple[Path, ...]) -> Scan:
    """Sort slices by their position, and make a scan of them."""
    header = slices.header
    frames = slices.frames
    planes = [plane for plane in slices.planes if plane is not None]
    order, affine, spacing = np.arange(len(frames)), None, _flat_spacing(header)
    if len(planes) == len(frames):
        order, affine, distance = stacked(str(path), planes)
        spacing = (distance, *planes[0].spacing)
    array, axes = np.moveaxis(frames[order], 1, 0), "CZYX" if affine is not None else "CTYX"
    if len(frames) == 1:
        array, axes = array[:, 0], "CYX"
        spacing = spacing[-2:] if spacing else None
    return Scan(
        array,
        axes=axes,
        name=path.name,
        format="dicom",
        spacing=spacing,
        affine=affine,
        world=LPS if affine is not None else "",
        window=slices.window,
        inverted=str(header.PhotometricInterpretation) == "MONOCHROME1",
        unit=unit_of(header) if array.shape[0] == 1 else "",
        files=tuple(files[n] for n in order) if len(files) > 1 else files,
    )


def _flat_spacing(header: Untyped) -> tuple[float, ...] | None:
    """Return the size of a pixel of a radiograph or photograph, which has no place in a patient."""
    for keyword in ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"):
        found = header.get(keyword, None)
        if found and len(found) == 2 and min(map(float, found)) > 0:
            return float(found[0]), float(found[1])
    return None
