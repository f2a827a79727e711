"""Exports with geometry: findings and maps as files at the place of the scan that was explained."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hshap import export as exports
from hshap.cli.faults import Code, Refusal
from hshap.cli.runs.folders import single
from hshap.formats.reading import read_image

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from hshap._util.types import Array
    from hshap.cli.runs.stored import Stored
    from hshap.explanation.explanation import Explanation
    from hshap.formats.scan import Scan


@dataclass(frozen=True)
class Placed:
    """How an explanation is written at the place of its scan."""

    format: str
    name: str
    heat: Callable[[Explanation], Array]
    scan: Path | None
    patient: bool

    def write(self, target: Path, one: Stored, *, force: bool, inputs: Collection[Path]) -> None:
        """Write one explanation; an input, and a folder that is there, are never replaced."""
        explanation = one.explanation()
        scan = self._scan(one, explanation)
        label = self.name or one.label(explanation) or "finding"
        folders = {file.resolve().parent for file in scan.files}
        if scan.format == "dicom" and target.resolve().parent in folders:
            message = f"{target} would lie among the files of the series; pass another --out"
            raise Refusal(Code.OUTPUT, message)
        if self.format == "ome-zarr":
            if target.exists():
                raise Refusal(Code.OUTPUT, f"{target} exists; pass another --out")
            folder = re.sub(r"[^\w-]+", "-", label).strip("-") or "finding"
            exports.write_ome_zarr(target, exports.labels(explanation), scan, name=folder)
            return
        with single(target, force=force, inputs=[*inputs, *scan.files]) as path:
            self._fill(path, explanation, scan, label)

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

    def _scan(self, one: Stored, explanation: Explanation) -> Scan:
        """Return the scan that was explained: the one that --scan names, or the recorded image."""
        path = self.scan or one.original
        if path is None or not path.exists():
            message = f"{one.file} does not tell where its scan is; pass --scan PATH"
            raise Refusal(Code.USAGE, message)
        scan = read_image(path)
        shape = explanation.placement.shape
        frame = str(explanation.settings.source.get("frame", ""))
        if "Z" in scan.axes and len(shape) == 2 and frame.isdecimal():
            scan = scan.plane(int(frame))
        if scan.grid != shape:
            message = (
                f"{one.file} explains an image of {shape} pixels, but {path} has {scan.grid}; pass "
                "--scan with the scan that was explained"
            )
            raise Refusal(Code.INPUT, message)
        return scan
