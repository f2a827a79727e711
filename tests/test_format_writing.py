"""From file to explanation to file: the format's own reader finds the findings on the object."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial

import format_files as made
import numpy as np
import pytest

import hshap
from hshap import export
from hshap.images import Scan, read_image

pydicom = pytest.importorskip("pydicom")
nibabel = pytest.importorskip("nibabel")
hd = pytest.importorskip("highdicom")
zarr = pytest.importorskip("zarr")
tifffile = pytest.importorskip("tifffile")


def explained(scan):
    """Explain a volume by a model that sees bright voxels, to the voxel."""
    explainer = hshap.Explainer(
        lambda batch: (batch > 500).mean(axis=(1, 2, 3, 4)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(min_size=1),
    )
    return explainer.explain(scan.array.astype(np.float32), target=0)


SOURCES = {
    "dicom": lambda folder: made.dicom_series(folder / "series"),
    "nifti": lambda folder: made.nifti(folder / "scan.nii"),
    "ome-zarr": lambda folder: made.ome_zarr(folder / "scan.zarr"),
    "ome-tiff": lambda folder: made.ome_tiff(folder / "scan.ome.tif"),
}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """Return a scan of a format and its explanation, made once."""
    known = {}

    def made_once(kind):
        if kind not in known:
            scan = read_image(SOURCES[kind](tmp_path_factory.mktemp("writing")))
            known[kind] = scan, explained(scan)
        return known[kind]

    return made_once


@pytest.fixture(scope="module")
def dicom(read):
    return read("dicom")


def world_of(mask, affine):
    """Return the world positions of the pixels of a mask."""
    return np.argwhere(mask) @ affine[:3, :3].T + affine[:3, 3]


def same_places(ours, expected):
    """Return the largest distance from each place to the nearest expected one, both ways."""
    away = np.linalg.norm(ours[:, None] - expected[None], axis=2)
    return max(away.min(axis=0).max(), away.min(axis=1).max())


# What other libraries see: the positions of the findings in LPS, or as the format has them.


def in_segmentation(path):
    volume = hd.seg.segread(path).get_volume(combine_segments=True)
    return world_of(volume.array > 0, volume.affine)


def in_map(path):
    volume = hd.imread(path).get_volume()
    return world_of(volume.array > 0, volume.affine)


def in_nifti(path):
    image = nibabel.load(path)
    assert image.header.get_xyzt_units()[0] == "mm"
    np.testing.assert_allclose(image.get_qform(), image.affine, atol=1e-4)
    return world_of(np.asarray(image.dataobj) > 0, image.affine) * (-1, -1, 1)


def in_zarr(path):
    group = zarr.open_group(str(path), mode="r")
    assert group["labels"].attrs["labels"] == ["finding"]
    labels = group["labels/finding"]
    (move, shift), image = (
        each.attrs["multiscales"][0]["datasets"][0]["coordinateTransformations"]
        for each in (labels, group)
    )
    assert image[0]["scale"][1:] == move["scale"]
    return np.argwhere(labels["0"][...]) * move["scale"] + shift["translation"]


def in_ome_tiff(path):
    with tifffile.TiffFile(path) as file:
        facts = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]
        scale = [float(facts[f"PhysicalSize{axis}"]) for axis in "ZYX"]
        to_mm = {"mm": 1, "µm": 1e-3}[facts["PhysicalSizeXUnit"]]
        return np.argwhere(file.asarray()) * scale * to_mm


LABELS = lambda write: lambda path, found, scan: write(path, export.labels(found), scan)
HEAT = lambda write: lambda path, found, scan: write(path, found.coefficients(), scan)
TRIPS = {  # the source, how its findings are written, and how another library reads them
    "segmentation.dcm": ("dicom", LABELS(export.write_dicom_seg), in_segmentation),
    "map.dcm": ("dicom", HEAT(export.write_dicom_map), in_map),
    "of dicom.nii": ("dicom", LABELS(export.write_nifti), in_nifti),
    "labels.nii": ("nifti", LABELS(export.write_nifti), in_nifti),
    "labels.nii.gz": ("nifti", LABELS(export.write_nifti), in_nifti),
    "map.nii": ("nifti", HEAT(export.write_nifti), in_nifti),
    "labels.zarr": ("ome-zarr", LABELS(export.write_ome_zarr), in_zarr),
    "labels.ome.tif": ("ome-tiff", LABELS(export.write_ome_tiff), in_ome_tiff),
    "map.ome.tif": ("ome-tiff", HEAT(export.write_ome_tiff), in_ome_tiff),
}
PLACES = {"ome-zarr": (40.0, 12.5, -31.0), "ome-tiff": (0.0, 0.0, 0.0)}


@pytest.mark.parametrize("name", TRIPS)
def test_another_library_finds_the_object(name, read, tmp_path):
    kind, write, places_in = TRIPS[name]
    scan, explanation = read(kind)
    sources = [file for file in (scan.files[0].parent).rglob("*") if file.is_file()]
    before = {file: file.read_bytes() for file in sources}
    path = write(tmp_path / name, explanation, scan)
    if kind in PLACES:
        expected = np.argwhere(made.mask()) * made.SPACING + PLACES[kind]
    else:
        expected = world_of(made.mask(), made.affine())
    assert same_places(places_in(path), expected) < min(made.SPACING) / 2
    again = read_image(path) if not name.startswith("segmentation") else scan
    np.testing.assert_allclose(again.spacing, scan.spacing, rtol=1e-5)
    if "map" in name:
        np.testing.assert_allclose(again.array[0], explanation.coefficients(), rtol=1e-6)
    if scan.affine is not None:
        np.testing.assert_allclose(again.affine, scan.affine, atol=1e-4)
    assert {file: file.read_bytes() for file in sources} == before
    written = [file for file in [path, *path.rglob("*")] if file.is_file()]
    assert not any(made.shows_patient(file.read_bytes()) for file in written)


def test_frames_refer_to_the_slice_at_their_place(dicom, tmp_path):
    scan, explanation = dicom
    labels = export.labels(explanation)
    seg = pydicom.dcmread(export.write_dicom_seg(tmp_path / "seg.dcm", labels, scan))
    source = pydicom.dcmread(scan.files[0], stop_before_pixels=True)
    assert seg.StudyInstanceUID == source.StudyInstanceUID
    assert seg.FrameOfReferenceUID == source.FrameOfReferenceUID
    assert seg.SeriesInstanceUID != source.SeriesInstanceUID
    # One slice alone lies at its own place, too.
    path = export.write_dicom_seg(tmp_path / "one.dcm", labels[4], scan.plane(4))
    one = np.where(np.arange(8)[:, None, None] == 4, made.mask(), False)
    assert same_places(in_segmentation(path), world_of(one, made.affine())) < 0.35
    # Also where a gantry is tilted, and where positions are rounded.
    for number, options in enumerate(({}, {"shift": 0.6}, {"digits": 4})):
        scan = read_image(made.dicom_series(tmp_path / f"series{number}", **options))
        labels = np.zeros(scan.grid, np.uint8)
        labels[5:8, 27:32, 0:3] = 1  # at the border of each axis
        seg = pydicom.dcmread(export.write_dicom_seg(tmp_path / f"{number}.dcm", labels, scan))
        heads = [pydicom.dcmread(file, stop_before_pixels=True) for file in scan.files]
        sources = {str(head.SOPInstanceUID): z for z, head in enumerate(heads)}
        found = np.zeros_like(labels)
        for pixels, frame in zip(
            seg.pixel_array, seg.PerFrameFunctionalGroupsSequence, strict=True
        ):
            (cause,) = frame.DerivationImageSequence[0].SourceImageSequence
            z = sources[str(cause.ReferencedSOPInstanceUID)]
            place = frame.PlanePositionSequence[0].ImagePositionPatient
            assert place == heads[z].ImagePositionPatient
            found[z] = pixels
        np.testing.assert_array_equal(found, labels)
        again = read_image(export.write_dicom_map(tmp_path / f"m{number}.dcm", labels, scan))
        np.testing.assert_array_equal(again.array[0], labels)
        np.testing.assert_allclose(again.affine, scan.affine, atol=1e-4)


@pytest.mark.parametrize("kind", ["seg", "map"])
def test_dciodvfy_finds_no_error_in_dicom_files(kind, dicom, tmp_path):
    program = shutil.which("dciodvfy")
    if program is None:
        pytest.skip("dciodvfy of Debian's dicom3tools is not installed")
    scan, explanation = dicom
    if kind == "seg":
        path = export.write_dicom_seg(tmp_path / "a.dcm", export.labels(explanation), scan)
    else:
        path = export.write_dicom_map(tmp_path / "a.dcm", explanation.coefficients(), scan)
    told = subprocess.run(  # noqa: S603, a program of the system
        [program, "-new", path], capture_output=True, text=True, check=False
    )
    errors = [line for line in told.stderr.splitlines() if line.startswith("Error")]
    assert not errors


def test_patients_are_written_only_on_request(dicom, tmp_path):
    scan, explanation = dicom
    labels, heat = export.labels(explanation), explanation.coefficients()
    for known in (False, True):
        seg = export.write_dicom_seg(tmp_path / f"s{known}.dcm", labels, scan, patient=known)
        heats = export.write_dicom_map(tmp_path / f"m{known}.dcm", heat, scan, patient=known)
        for path in (seg, heats):
            assert made.shows_patient(path.read_bytes()) == known
            assert (str(pydicom.dcmread(path).PatientName) == made.PATIENT) == known


def test_names_in_any_script_are_kept(tmp_path):
    changes = {"SpecificCharacterSet": "ISO_IR 100", "PatientName": "Grün^Zoë"}
    scan = read_image(made.dicom_series(tmp_path / "series", **changes))
    labels, name = np.ones(scan.grid, np.uint8), "Läsion 病変"
    options = {"name": name, "patient": True}
    seg = pydicom.dcmread(export.write_dicom_seg(tmp_path / "seg.dcm", labels, scan, **options))
    assert seg.SegmentSequence[0].SegmentLabel == name
    assert str(seg.PatientName) == "Grün^Zoë"


def test_long_whole_numbers_are_written_as_32_bits(dicom, tmp_path):
    scan, labels = dicom[0], np.full(dicom[0].grid, 7, np.int64)
    for path in (
        export.write_nifti(tmp_path / "a.nii", labels, scan),
        export.write_ome_tiff(tmp_path / "a.ome.tif", labels, scan),
    ):
        np.testing.assert_array_equal(read_image(path).array[0], labels)


def test_an_unknown_time_step_stays_unknown(tmp_path):
    image = nibabel.Nifti1Image(np.zeros((5, 6, 7, 3), np.int16), np.diag([1, 2, 3, 1.0]))
    image.header.set_zooms((1, 2, 3, 1.5))
    image.header.set_xyzt_units("mm", "sec")
    nibabel.save(image, tmp_path / "four.nii")
    scan = read_image(tmp_path / "four.nii")
    export.write_nifti(tmp_path / "out.nii", np.zeros(scan.grid, np.uint8), scan)
    out = nibabel.load(tmp_path / "out.nii")
    assert out.header.get_zooms() == (1.0, 2.0, 3.0, 0.0)
    assert read_image(tmp_path / "out.nii").axes == scan.axes


def test_a_pyramid_of_labels_never_mixes_them(tmp_path):
    scan = Scan(np.zeros((3, 700, 900), np.uint8), axes="CYX", spacing=(1e-3, 1e-3))
    labels = np.zeros((700, 900), np.uint8)
    labels[100:300, 500:801] = 7
    path = export.write_ome_tiff(tmp_path / "a.ome.tif", labels, scan)
    with tifffile.TiffFile(path) as file:
        levels = file.series[0].levels
        assert file.is_ome
        assert [level.shape for level in levels] == [(700, 900), (350, 450), (175, 225)]
        for number, level in enumerate(levels):
            step = 2**number
            np.testing.assert_array_equal(level.asarray(), labels[::step, ::step])
    np.testing.assert_allclose(read_image(path).spacing, scan.spacing)
    assert read_image(path).axes == "CYX"


def test_layers_of_napari_lie_on_the_object(dicom):
    scan, explanation = dicom
    layers = {
        options["name"]: (data, options, kind)
        for data, options, kind in export.napari_layers(explanation, scan)
    }
    np.testing.assert_array_equal(layers["findings"][0] > 0, made.mask())
    np.testing.assert_allclose(layers["findings"][1]["scale"], made.SPACING)
    (box,), _, kind = layers["boxes"]
    assert kind == "shapes"
    np.testing.assert_array_equal(box.min(axis=0), (4.0, 9.5, 11.5))
    np.testing.assert_array_equal(box.max(axis=0), (4.0, 17.5, 17.5))
    assert layers["attribution"][0].shape == layers["image"][0].shape == scan.grid


def test_findings_that_touch_have_one_number():
    image = np.zeros((1, 16, 16), np.float32)
    image[0, 2:4, 2:6], image[0, 10:12, 9:12] = 1.0, 3.0
    explainer = hshap.Explainer(
        lambda batch: batch.sum(axis=(1, 2, 3)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Dyadic(min_size=1),
    )
    labels = export.labels(explainer.explain(image, target=0))
    assert (labels[0][:] == 0).all()
    np.testing.assert_array_equal(labels, np.where(image[0] == 3, 1, np.where(image[0] > 0, 2, 0)))


PLAIN = Scan(np.zeros((1, 2, 2)), "CYX")
PLACED = Scan(np.zeros((1, 2, 2)), "CYX", affine=np.eye(4))
SEG, MAP = export.write_dicom_seg, export.write_dicom_map
NIFTI, ZARR, TIFF = export.write_nifti, export.write_ome_zarr, export.write_ome_tiff
# A writer, where it writes, a value for all voxels or a map, another scan, and what is told.
MISTAKES = [
    (NIFTI, "x.nii", np.zeros((3, 4)), None, "the grid (8, 32, 24)"),
    (NIFTI, "x.nii", np.zeros((3, 4)), "scan.nii", "scan is"),
    (SEG, "x.dcm", 0, None, "0 findings"),
    (SEG, "x.dcm", 1.0, None, "whole numbers"),
    (SEG, "x.dcm", np.ones((2, 2), int), PLAIN, "has no geometry"),
    (SEG, "x.dcm", np.ones((2, 2), int), PLACED, "read from DICOM"),
    (partial(SEG, name="a\\b"), "x.dcm", 1, None, "has a backslash"),
    (MAP, "x.dcm", np.nan, None, "6144 that are no finite numbers"),
    (MAP, "x.dcm", 1e300, None, "6144 that are no finite numbers"),
    (MAP, "../series/im00.dcm", 0.0, None, "a file of the scan itself"),
    (MAP, "../series/n.dcm", 0.0, None, "among the files of the series"),
    (NIFTI, "x.nii", 2**40, None, "of 32 bits"),
    (TIFF, "x.tif", 2**40, None, "of 32 bits"),
    (ZARR, "x.zarr", 2**40, None, "of 32 bits"),
    (ZARR, "", 1, None, "exists"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake[-1])
def test_a_wrong_export_is_refused_and_writes_nothing(mistake, dicom):
    (write, file, values, other, said), (scan, _) = mistake, dicom
    folder = scan.files[0].parent.parent / "out"
    folder.mkdir(exist_ok=True)
    before = {file: file.read_bytes() for file in scan.files}
    values = values if isinstance(values, np.ndarray) else np.full(scan.grid, values)
    with pytest.raises(hshap.ArgumentError) as caught:
        write(folder / file, values, other or scan)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(folder.iterdir())
    assert {file: file.read_bytes() for file in scan.files[0].parent.iterdir()} == before


@pytest.mark.parametrize("write", [ZARR, NIFTI])
def test_nothing_is_written_inside_an_image(write, tmp_path):
    scan = read_image(made.ome_zarr(tmp_path / "scan.zarr"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(hshap.ArgumentError, match=r"inside the image scan\.zarr; pass another"):
        write(tmp_path / "scan.zarr" / "0" / "found", np.ones(scan.grid, np.uint8), scan)
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):  # it is not told as a damaged scan
        write(tmp_path / "file" / "x", np.ones(scan.grid, np.uint8), scan)
