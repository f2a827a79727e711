# ruff: noqa: E402, INP001, PLC0415, a script
"""Write the table of docs/formats.md: every format goes from file to explanation to file.

    python scripts/formats.py           run all round trips and write the page
    python scripts/formats.py --check   exit code 1 if the page is not that of the round trips

Files are made by the formats' own libraries (tests/format_files.py), explained, written, and read
again by those libraries. Distances are in pixels: the largest one between a pixel of the object and
the nearest pixel that the library finds, in world coordinates and both ways. A format that is only
read is compared with the object that its library wrote. Libraries that cannot be installed beside
ours are looked for in the environments of HSHAP_READERS (see tests/tool_readers.py).
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import format_files as made
import tool_readers

import hshap
from hshap import export
from hshap.images import read_image

PAGE = ROOT / "docs" / "formats.md"
START, END = "<!-- round trips -->\n", "<!-- /round trips -->"
SIZE = 40, 60


class Row(NamedTuple):
    """A format, the library that made and read it, and how far a round trip moves the object."""

    format: str
    library: str
    version: str
    read: str
    write: str
    distance: float | None = None
    iou: float | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the table."""
        distance = "" if self.distance is None else f"{self.distance:.3f}"
        iou = "" if self.iou is None else f"{self.iou:.3f}"
        return self.format, f"{self.library} {self.version}", self.read, self.write, distance, iou


def rows() -> list[Row]:
    """Run all round trips; a format whose library is not there is left out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*_medical(folder), *_microscopes(folder), *_tools(folder)]


def explained(scan: hshap.images.Scan) -> hshap.Explanation:
    """Explain a volume by a model that sees bright voxels."""
    explainer = hshap.Explainer(
        lambda batch: (batch > 500).mean(axis=(1, 2, 3, 4)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(min_size=1),
    )
    return explainer.explain(scan.array.astype(np.float32), target=0)


def compared(ours: np.ndarray, truth: np.ndarray, pixel: float = 1.0) -> tuple[float, float]:
    """Return the largest distance between two sets of places in pixels, and their overlap."""
    away = np.linalg.norm(ours[:, None].astype(float) - truth[None], axis=2) / pixel
    both = int((away.min(axis=1) < 0.5).sum())
    union = len(ours) + len(truth) - both
    return float(max(away.min(axis=0).max(), away.min(axis=1).max())), both / union


def world(mask: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Return the places of the pixels of a mask."""
    return np.argwhere(mask) @ affine[:3, :3].T + affine[:3, 3]


def _medical(folder: Path) -> list[Row]:
    import highdicom
    import nibabel

    series = read_image(made.dicom_series(folder / "series"))
    found, truth = explained(series), world(made.mask(), made.affine())
    labels, heat, pixel = export.labels(found), found.coefficients(), min(made.SPACING)
    seg = highdicom.seg.segread(export.write_dicom_seg(folder / "s.dcm", labels, series))
    own = seg.get_volume(combine_segments=True)
    seen = compared(series.to_world(np.argwhere(series.array[0] > 500)), truth, pixel)
    out = [Row("DICOM series", "pydicom", version("pydicom"), "yes", "", *seen)]
    name, number = "highdicom", version("highdicom")
    place = compared(world(own.array > 0, own.affine), truth, pixel)
    out.append(Row("DICOM segmentation", name, number, "", "yes", *place))
    own = highdicom.imread(export.write_dicom_map(folder / "m.dcm", heat, series)).get_volume()
    place = compared(world(own.array > 0, own.affine), truth, pixel)
    out.append(Row("DICOM parametric map", name, number, "yes", "yes", *place))
    scan = read_image(made.nifti(folder / "a.nii"))
    image = nibabel.load(
        export.write_nifti(folder / "b.nii.gz", export.labels(explained(scan)), scan)
    )
    source = nibabel.load(folder / "a.nii")
    place = compared(
        world(np.asarray(image.dataobj) > 0, image.affine),
        world(made.mask().T, source.affine),
        pixel,
    )
    out.append(Row("NIfTI", "nibabel", version("nibabel"), "yes", "yes", *place))
    return out


def _microscopes(folder: Path) -> list[Row]:
    import tifffile
    import zarr

    scan = read_image(made.ome_zarr(folder / "a.zarr"))
    path = export.write_ome_zarr(folder / "b.zarr", export.labels(explained(scan)), scan)
    truth = np.argwhere(made.mask())
    own = zarr.open_group(str(path), mode="r")["labels/finding/0"][...]
    place = compared(np.argwhere(own), truth)
    out = [Row("OME-Zarr labels", "zarr", version("zarr"), "yes", "yes", *place)]
    if tool_readers.reader_of("ome-zarr"):
        told = tool_readers.read_by("ome-zarr", path)
        node = next(each for each in told["nodes"] if len(each["axes"]) == 3)
        box = np.array([node["start"], node["stop"]]) - [truth.min(axis=0), truth.max(axis=0) + 1]
        same = float(np.abs(box).max())
        share = node["count"] / len(truth)
        out.append(Row("OME-Zarr labels", "ome-zarr", told["version"], "", "yes", same, share))
    scan = read_image(made.ome_tiff(folder / "a.ome.tif"))
    path = export.write_ome_tiff(folder / "b.ome.tif", export.labels(explained(scan)), scan)
    place = compared(np.argwhere(tifffile.imread(path)), truth)
    out.append(Row("OME-TIFF", "tifffile", version("tifffile"), "yes", "yes", *place))
    tifffile.imwrite(folder / "pages.tif", made.volume(), photometric="minisblack")
    place = compared(np.argwhere(read_image(folder / "pages.tif").array[0] > 500), truth)
    out.append(Row("TIFF with pages", "tifffile", version("tifffile"), "yes", "", *place))
    np.savez(folder / "a.npz", made.volume()[None])
    place = compared(np.argwhere(read_image(folder / "a.npz").array[0] > 500), truth)
    out.append(Row(".npy and .npz", "numpy", version("numpy"), "yes", "", *place))
    plane = np.pad(made.mask()[4], ((0, 0), (0, 8)))  # whole tiles
    packed = {"compression": "zlib"}
    slide = np.repeat(plane[..., None] * np.uint8(255), 3, axis=2)
    tifffile.imwrite(folder / "a.svs", slide, tile=(16, 16), photometric="rgb", **packed)
    seen = np.argwhere(read_image(folder / "a.svs").array[0] > 127)
    place = compared(seen, np.argwhere(made.mask()[4]))
    number = version("openslide-python")
    return [*out, Row("whole slides", "openslide-python", number, "yes", "", *place)]


def _ring() -> np.ndarray:
    """Return an object whose outline needs a hole, beside one without."""
    out = np.zeros(SIZE, bool)
    out[8:24, 12:32] = True
    out[14:18, 20:26] = False
    out[30:34, 40:56] = True
    return out


def _covered(rings: list[list[tuple[float, float]]]) -> np.ndarray:
    """Return the pixels whose centre lies in a polygon, by the even-odd rule of shapely."""
    import shapely

    y, x = np.mgrid[: SIZE[0], : SIZE[1]] + 0.5
    out = np.zeros(SIZE, bool)
    for ring in rings:
        # The cut to a hole touches itself; make_valid keeps the rule of odd crossings.
        out |= shapely.contains_xy(shapely.make_valid(shapely.Polygon(ring)), x, y)
    return out


def _document(tool: str, found: hshap.Explanation, folder: Path) -> Path:
    """Write the document of a tool, and return its path."""
    given = {"cell.png": found}
    if tool == "cvat":
        return export.write_xml(folder / "cells.xml", export.cvat(given))
    return export.write_json(folder / "tasks.json", export.label_studio(given))


def _tools(folder: Path) -> list[Row]:
    import shapely
    from PIL import Image

    small = _ring()[::2, ::2].astype(np.float32)[None]
    found = (
        hshap.Explainer(
            lambda batch: batch.sum(axis=(1, 2, 3)),
            baseline=hshap.Constant(0.0),
            partition=hshap.Dyadic(min_size=1),
        )
        .explain(small, target=0)
        .placed(SIZE)
    )
    features = export.geojson(found)["features"]
    rings = [each["geometry"]["coordinates"][0] for each in features]
    place = compared(np.argwhere(_covered(rings)), np.argwhere(_ring()))
    out = [Row("QuPath GeoJSON", "shapely", shapely.__version__, "", "yes", *place)]
    for tool, title in (
        ("label-studio", "Label Studio predictions"),
        ("cvat", "CVAT for images"),
    ):
        if not tool_readers.reader_of(tool):
            continue
        inner = folder / tool
        (inner / "annotations").mkdir(parents=True)
        (inner / "images").mkdir()
        Image.fromarray(np.zeros(SIZE, np.uint8)).save(inner / "images" / "cell.png")
        path = _document(tool, found, inner)
        told = tool_readers.read_by(tool, inner if tool == "cvat" else path)
        place = compared(np.argwhere(_covered(told["polygons"])), np.argwhere(_ring()))
        out.append(Row(title, told["library"], told["version"], "", "yes", *place))
    return out


def table(found: list[Row]) -> str:
    """Return the rows as a table of Markdown."""
    head = ("format", "library", "read", "write", "largest distance (pixels)", "IoU")
    lines = [head, ("---",) * len(head), *(row.cells for row in found)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def with_table(text: str, found: list[Row]) -> str:
    """Return the page with a fresh table between its markers."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n{table(found)}\n{END}{after}"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    fresh = with_table(text, rows())
    if "--check" in sys.argv[1:]:
        raise SystemExit(fresh != text)
    PAGE.write_text(fresh, encoding="utf-8")
