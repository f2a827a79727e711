"""Exports with geometry: findings and maps as files at the place of the scan that was explained."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hshap import export as exports
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.explanations import source
from hshap.cli.output import say
from hshap.cli.runs.output_files import single
from hshap.cli.runs.record import digest
from hshap.export.documents import turned
from hshap.export.map_files import image_around
from hshap.formats.reading import read_image

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from hshap._util.types import Array
    from hshap.cli.runs.stored import Stored
    from hshap.explanation.explanation import Explanation
    from hshap.formats.scan import Scan

DICOM = ("dicom-seg", "dicom-map")


@dataclass(frozen=True)
class Placed:
    """How an explanation is written at the place of its scan."""

    format: str
    name: str
    heat: Callable[[Explanation], Array]
    scan: Path | None
    patient: bool

    def write(self, target: Path, one: Stored, *, force: bool, inputs: Collection[Path]) -> bool:
        """Write one explanation, and tell whether there was a finding to write.

        An input, and a folder that is there, are never replaced. Only segmentations need findings.
        """
        explanation = one.explanation()
        if turned(explanation):
            message = (
                f"{one.file} explains an image that was turned upright by its EXIF orientation, "
                f"which --format {self.format} cannot tell; pass --format geojson or tiff"
            )
            raise Refusal(Code.INPUT, message)
        scan = self._scan(one, explanation)
        self._refuse_scan(scan)
        label = self.name or one.label(explanation) or "finding"
        _refuse_place(target, scan)
        if self.format == "dicom-seg" and not exports.labels(explanation).any():
            return False
        if self.format == "ome-zarr":
            if target.exists():
                raise Refusal(Code.OUTPUT, f"{target} exists; pass another --out")
            folder = re.sub(r"[^\w-]+", "-", label).strip("-") or "finding"
            exports.write_ome_zarr(target, exports.labels(explanation), scan, name=folder)
            return True
        with single(target, force=force, inputs=[*inputs, *scan.files]) as path:
            self._fill(path, explanation, scan, label)
        return True

    def _fill(self, path: Path, explanation: Explanation, scan: Scan, label: str) -> None:
        if self.format == "dicom-seg":
            labels = exports.labels(explanation)
            exports.write_dicom_seg(path, labels, scan, name=label, patient=self.patient)
        elif self.format == "dicom-map":
            heat = self.heat(explanation)
            exports.write_dicom_map(path, heat, scan, name=label, patient=self.patient)
        elif self.format == "nifti-map":
            exports.write_nifti(path, self.heat(explanation), scan)
        elif self.format == "nifti":
            exports.write_nifti(path, exports.labels(explanation), scan)
        else:
            exports.write_ome_tiff(path, exports.labels(explanation), scan)

    def _refuse_scan(self, scan: Scan) -> None:
        """Refuse a scan without the facts that the format needs."""
        if self.format in DICOM and (scan.format != "dicom" or scan.affine is None):
            lacks = "no DICOM file" if scan.format != "dicom" else "without a place in a patient"
            message = (
                f"--format {self.format} needs the study and the place of a DICOM file, but "
                f"{scan.name} is {lacks}; pass --format nifti or ome-tiff"
            )
            raise Refusal(Code.INPUT, message)
        if self.format.startswith("nifti") and scan.affine is None and scan.spacing is None:
            message = (
                f"--format {self.format} needs the size of a pixel, which {scan.name} does not "
                "tell; pass --format ome-tiff, or --scan with a file that tells it"
            )
            raise Refusal(Code.INPUT, message)

    @cached_property
    def _given(self) -> Scan | None:
        """The scan that --scan names; it is read once for all explanations."""
        if self.scan is None:
            return None
        if not self.scan.exists():
            message = f"--scan {self.scan} does not exist; pass the scan that was explained"
            raise Refusal(Code.INPUT, message)
        return read_image(self.scan)

    def _scan(self, one: Stored, explanation: Explanation) -> Scan:
        """Return the scan that was explained: the one that --scan names, or the recorded image."""
        scan, path = self._given, self.scan or one.original
        if scan is None:
            if path is None or not path.exists():
                message = f"{one.file} does not tell where its scan is; pass --scan PATH"
                raise Refusal(Code.USAGE, message)
            scan = read_image(path)
        shape = explanation.placement.shape
        if "Z" in scan.axes and len(shape) == 2:
            scan = _slice(scan, explanation)
        if scan.grid != shape:
            message = (
                f"{one.file} explains an image of {shape} pixels, but {path} has {scan.grid}; pass "
                "--scan with the scan that was explained"
            )
            raise Refusal(Code.INPUT, message)
        (file, *more) = scan.files
        if one.sha256 and not more and file.is_file() and digest(file) != one.sha256:
            say(f"{file} is not the file that {one.file} explains; the findings take its place")
        return scan


def _slice(scan: Scan, explanation: Explanation) -> Scan:
    """Return the slice that was explained: a file of the series, or the frame of a volume."""
    name = source(explanation, "image", "")
    own = [number for number, file in enumerate(scan.files) if file.name == name]
    if len(scan.files) > 1 and own:
        return scan.plane(own[0])
    frame = str(explanation.settings.source.get("frame", ""))
    return scan.plane(int(frame)) if frame.isdecimal() and int(frame) < scan.grid[0] else scan


def _refuse_place(target: Path, scan: Scan) -> None:
    """Refuse to write among the slices of a series, or into an image that is a folder."""
    real = target.resolve()
    folders = {file.resolve().parent for file in scan.files}
    if scan.format == "dicom" and real.parent in folders:
        message = f"{target} would lie among the files of the series; pass another --out"
        raise Refusal(Code.OUTPUT, message)
    around = image_around(real)
    if around is not None:
        message = f"{target} would lie inside the image {around.name}; pass another --out"
        raise Refusal(Code.OUTPUT, message)
