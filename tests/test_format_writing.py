"""From file to explanation to file: the format's own reader finds the findings on the object."""

from __future__ import annotations

import shutil
import subprocess

import format_files as made
import numpy as np
import pytest

import hshap
from hshap import export

pydicom = pytest.importorskip("pydicom")
nibabel = pytest.importorskip("nibabel")
hd = pytest.importorskip("highdicom")
zarr = pytest.importorskip("zarr")
tifffile = pytest.importorskip("tifffile")


def explained(scan):
    """Explain a volume by a model that sees bright voxels, to the voxel."""

    def bright(batch):
        return (batch > 500).mean(axis=(1, 2, 3, 4))

    explainer = hshap.Explainer(
        bright, baseline=hshap.Constant(0.0), partition=hshap.Bisection(min_size=1)
    )
    return explainer.explain(scan.array.astype(np.float32), target=0)


@pytest.fixture(scope="module")
def dicom(tmp_path_factory):
    folder = tmp_path_factory.mktemp("writing") / "series"
    scan = hshap.read_image(made.dicom_series(folder))
    return scan, explained(scan)


def iou(a, b):
    return (a & b).sum() / (a | b).sum()


def world_of(mask, affine):
    """Return the world positions of the pixels of a mask."""
    return np.argwhere(mask) @ affine[:3, :3].T + affine[:3, 3]


def same_places(ours, expected):
    """Return the largest distance from each place to the nearest expected one, both ways."""
    away = np.linalg.norm(ours[:, None] - expected[None], axis=2)
    return max(away.min(axis=0).max(), away.min(axis=1).max())


HALF = min(made.SPACING) / 2


def test_a_dicom_series_becomes_a_segmentation_on_the_object(dicom, tmp_path):
    scan, explanation = dicom
    path = export.write_dicom_seg(tmp_path / "seg.dcm", export.labels(explanation), scan)
    seg = hd.seg.segread(path)
    volume = seg.get_volume(combine_segments=True)
    expected = world_of(made.mask(), made.affine())
    assert same_places(world_of(volume.array > 0, volume.affine), expected) < HALF
    source = pydicom.dcmread(scan.files[0], stop_before_pixels=True)
    assert seg.StudyInstanceUID == source.StudyInstanceUID
    assert seg.FrameOfReferenceUID == source.FrameOfReferenceUID
    assert seg.SeriesInstanceUID != source.SeriesInstanceUID
    # Each frame refers to the slice at its position, not to the one of its number.
    by_uid = {
        str(pydicom.dcmread(f, stop_before_pixels=True).SOPInstanceUID): f for f in scan.files
    }
    for frame in seg.PerFrameFunctionalGroupsSequence:
        place = frame.PlanePositionSequence[0].ImagePositionPatient
        (cause,) = frame.DerivationImageSequence[0].SourceImageSequence
        head = pydicom.dcmread(by_uid[str(cause.ReferencedSOPInstanceUID)], stop_before_pixels=True)
        np.testing.assert_allclose(
            [float(v) for v in place], [float(v) for v in head.ImagePositionPatient], atol=1e-3
        )


def test_a_dicom_series_becomes_a_parametric_map_at_its_place(dicom, tmp_path):
    scan, explanation = dicom
    heat = explanation.placement.nearest(explanation.coefficients())
    path = export.write_dicom_map(tmp_path / "map.dcm", heat, scan)
    volume = hd.imread(path).get_volume()
    found = volume.array > 0
    assert same_places(world_of(found, volume.affine), world_of(heat > 0, scan.affine)) < HALF
    again = hshap.read_image(path)
    np.testing.assert_allclose(again.array[0], heat, rtol=1e-6)
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


def test_one_slice_becomes_a_segmentation_at_its_place(dicom, tmp_path):
    scan, explanation = dicom
    labels = export.labels(explanation)
    plane = scan.plane(4)
    path = export.write_dicom_seg(tmp_path / "one.dcm", labels[4], plane)
    volume = hd.seg.segread(path).get_volume(combine_segments=True)
    one = np.zeros_like(made.mask())
    one[4] = made.mask()[4]
    expected = world_of(one, made.affine())
    assert same_places(world_of(volume.array > 0, volume.affine), expected) < HALF


@pytest.mark.parametrize(
    ("shift", "digits"), [(0.6, 10), (0.0, 4)], ids=["tilted gantry", "rounded positions"]
)
def test_slices_that_lie_askew_become_dicom_files_at_their_place(shift, digits, tmp_path):
    scan = hshap.read_image(made.dicom_series(tmp_path / "series", shift=shift, digits=digits))
    labels = np.zeros(scan.grid, np.uint8)
    labels[5:8, 27:32, 0:3] = 1  # at the border of each axis
    seg = pydicom.dcmread(export.write_dicom_seg(tmp_path / "seg.dcm", labels, scan))
    heads = [pydicom.dcmread(file, stop_before_pixels=True) for file in scan.files]
    sources = {str(head.SOPInstanceUID): z for z, head in enumerate(heads)}
    found = np.zeros_like(labels)
    for pixels, frame in zip(seg.pixel_array, seg.PerFrameFunctionalGroupsSequence, strict=True):
        (cause,) = frame.DerivationImageSequence[0].SourceImageSequence
        z = sources[str(cause.ReferencedSOPInstanceUID)]
        assert frame.PlanePositionSequence[0].ImagePositionPatient == heads[z].ImagePositionPatient
        found[z] = pixels
    np.testing.assert_array_equal(found, labels)
    again = hshap.read_image(export.write_dicom_map(tmp_path / "map.dcm", labels, scan))
    np.testing.assert_array_equal(again.array[0], labels)
    np.testing.assert_allclose(again.affine, scan.affine, atol=1e-4)


def test_the_patient_is_in_a_dicom_file_only_if_asked_for(dicom, tmp_path):
    scan, explanation = dicom
    labels, heat = export.labels(explanation), explanation.coefficients()
    for known in (False, True):
        seg = export.write_dicom_seg(tmp_path / f"s{known}.dcm", labels, scan, patient=known)
        heats = export.write_dicom_map(tmp_path / f"m{known}.dcm", heat, scan, patient=known)
        for path in (seg, heats):
            assert made.shows_patient(path.read_bytes()) == known
            assert (str(pydicom.dcmread(path).PatientName) == made.PATIENT) == known


def test_names_in_any_script_are_kept_beside_those_of_the_patient(tmp_path):
    changes = {"SpecificCharacterSet": "ISO_IR 100", "PatientName": "Grün^Zoë"}
    scan = hshap.read_image(made.dicom_series(tmp_path / "series", **changes))
    labels, name = np.ones(scan.grid, np.uint8), "Läsion 病変"
    options = {"name": name, "patient": True}
    seg = pydicom.dcmread(export.write_dicom_seg(tmp_path / "seg.dcm", labels, scan, **options))
    assert seg.SegmentSequence[0].SegmentLabel == name
    assert str(seg.PatientName) == "Grün^Zoë"


def test_a_wrong_place_to_write_to_is_not_told_as_a_damaged_scan(dicom, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        export.write_dicom_seg(tmp_path / "file" / "x.dcm", np.ones(dicom[0].grid, int), dicom[0])


def test_whole_numbers_of_64_bits_are_written_as_32(dicom, tmp_path):
    scan, labels = dicom[0], np.full(dicom[0].grid, 7, np.int64)
    for path in (
        export.write_nifti(tmp_path / "a.nii", labels, scan),
        export.write_ome_tiff(tmp_path / "a.ome.tif", labels, scan),
    ):
        np.testing.assert_array_equal(hshap.read_image(path).array[0], labels)


@pytest.mark.parametrize("name", ["found.nii", "found.nii.gz"])
def test_a_nifti_volume_goes_to_a_label_map_on_the_object(name, tmp_path):
    scan = hshap.read_image(made.nifti(tmp_path / "scan.nii"))
    path = export.write_nifti(tmp_path / name, export.labels(explained(scan)), scan)
    image, source = nibabel.load(path), nibabel.load(tmp_path / "scan.nii")
    found = np.asarray(image.dataobj)
    assert iou(found > 0, made.mask().T) >= 0.9
    np.testing.assert_allclose(image.affine, source.affine, atol=1e-4)
    np.testing.assert_allclose(image.get_qform(), source.affine, atol=1e-4)
    assert image.header.get_xyzt_units()[0] == "mm"
    assert not made.shows_patient(path.read_bytes())


def test_a_map_of_floats_is_written_as_nifti(tmp_path):
    scan = hshap.read_image(made.nifti(tmp_path / "scan.nii"))
    heat = explained(scan).coefficients()
    path = export.write_nifti(tmp_path / "heat.nii", heat, scan)
    image = nibabel.load(path)
    np.testing.assert_allclose(image.get_fdata(), heat.T, rtol=1e-6)
    assert image.get_data_dtype() == np.float32


def test_a_series_in_time_claims_no_step_that_its_scan_does_not_know(tmp_path):
    image = nibabel.Nifti1Image(np.zeros((5, 6, 7, 3), np.int16), np.diag([1, 2, 3, 1.0]))
    image.header.set_zooms((1, 2, 3, 1.5))
    image.header.set_xyzt_units("mm", "sec")
    nibabel.save(image, tmp_path / "four.nii")
    scan = hshap.read_image(tmp_path / "four.nii")
    export.write_nifti(tmp_path / "out.nii", np.zeros(scan.grid, np.uint8), scan)
    out = nibabel.load(tmp_path / "out.nii")
    assert out.header.get_zooms() == (1.0, 2.0, 3.0, 0.0)
    assert hshap.read_image(tmp_path / "out.nii").axes == scan.axes


def test_dicom_becomes_nifti_at_the_same_place(dicom, tmp_path):
    scan, explanation = dicom
    image = nibabel.load(export.write_nifti(tmp_path / "a.nii", export.labels(explanation), scan))
    ras = np.argwhere(np.asarray(image.dataobj)) @ image.affine[:3, :3].T + image.affine[:3, 3]
    expected = world_of(made.mask(), made.affine()) * (-1, -1, 1)
    assert same_places(ras, expected) < HALF


def test_an_ome_zarr_image_goes_to_labels_on_the_object(tmp_path):
    scan = hshap.read_image(made.ome_zarr(tmp_path / "scan.zarr"))
    before = {f: f.read_bytes() for f in (tmp_path / "scan.zarr").rglob("*") if f.is_file()}
    path = export.write_ome_zarr(tmp_path / "out.zarr", export.labels(explained(scan)), scan)
    group = zarr.open_group(str(path), mode="r")
    assert group["labels"].attrs["labels"] == ["finding"]
    labels = group["labels/finding"]
    assert iou(labels["0"][...] > 0, made.mask()) >= 0.9
    own, image = (each.attrs["multiscales"][0]["datasets"][0] for each in (labels, group))
    moves, whole = own["coordinateTransformations"], image["coordinateTransformations"]
    np.testing.assert_allclose(moves[0]["scale"], (2.5, 0.8, 0.7))
    np.testing.assert_allclose(moves[1]["translation"], (40.0, 12.5, -31.0))
    assert whole[0]["scale"][1:] == moves[0]["scale"]
    again = hshap.read_image(path)
    np.testing.assert_array_equal(again.array, scan.array)
    np.testing.assert_allclose(again.affine, scan.affine)
    assert all(file.read_bytes() == data for file, data in before.items())
    assert not any(made.shows_patient(f.read_bytes()) for f in path.rglob("*") if f.is_file())


@pytest.mark.parametrize("write", [export.write_ome_zarr, export.write_nifti])
def test_nothing_is_written_inside_an_image_that_is_a_folder(write, tmp_path):
    scan = hshap.read_image(made.ome_zarr(tmp_path / "scan.zarr"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(hshap.ArgumentError, match=r"inside the image scan\.zarr; pass another"):
        write(tmp_path / "scan.zarr" / "0" / "found", np.ones(scan.grid, np.uint8), scan)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_pyramid_of_labels_never_mixes_them(tmp_path):
    scan = hshap.Scan(np.zeros((3, 700, 900), np.uint8), axes="CYX", spacing=(1e-3, 1e-3))
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
    np.testing.assert_allclose(hshap.read_image(path).spacing, scan.spacing)


def test_a_map_of_a_volume_is_written_as_ome_tiff(dicom, tmp_path):
    scan, explanation = dicom
    path = export.write_ome_tiff(tmp_path / "a.ome.tif", explanation.coefficients(), scan)
    again = hshap.read_image(path)
    np.testing.assert_allclose(again.array[0], explanation.coefficients(), rtol=1e-6)
    np.testing.assert_allclose(again.spacing, made.SPACING)
    assert not made.shows_patient(path.read_bytes())


def test_layers_of_napari_lie_on_the_object(dicom):
    scan, explanation = dicom
    layers = {
        options["name"]: (data, options, kind)
        for data, options, kind in export.napari_layers(explanation, scan)
    }
    assert iou(layers["findings"][0] > 0, made.mask()) >= 0.9
    np.testing.assert_allclose(layers["findings"][1]["scale"], made.SPACING)
    (box,), _, kind = layers["boxes"]
    assert kind == "shapes"
    np.testing.assert_array_equal(box.min(axis=0), (4.0, 9.5, 11.5))
    np.testing.assert_array_equal(box.max(axis=0), (4.0, 17.5, 17.5))
    assert layers["attribution"][0].shape == layers["image"][0].shape == scan.grid


def test_findings_that_touch_have_one_number_and_the_strongest_is_first():
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


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s, p: export.write_nifti(p / "x.nii", np.zeros((3, 4)), s), "the grid (8, 32, 24)"),
        (lambda s, p: export.write_dicom_seg(p / "x.dcm", np.zeros(s.grid, int), s), "0 findings"),
        (lambda s, p: export.write_dicom_seg(p / "x.dcm", np.ones(s.grid), s), "whole numbers"),
        (
            lambda s, p: export.write_dicom_map(s.files[0], np.zeros(s.grid), s),
            "a file of the scan itself",
        ),
        (
            lambda s, p: export.write_dicom_map(s.files[0].parent / "n.dcm", np.zeros(s.grid), s),
            "among the files of the series",
        ),
        (
            lambda s, p: export.write_dicom_seg(
                p / "x.dcm", np.ones((2, 2), int), hshap.Scan(np.zeros((1, 2, 2)), "CYX")
            ),
            "has no geometry",
        ),
        (
            lambda s, p: export.write_dicom_seg(
                p / "x.dcm",
                np.ones((2, 2), int),
                hshap.Scan(np.zeros((1, 2, 2)), "CYX", affine=np.eye(4)),
            ),
            "read from DICOM",
        ),
        (lambda s, p: export.write_ome_zarr(p, np.ones(s.grid, int), s), "exists"),
        (lambda s, p: export.write_nifti(p / "x.nii", np.full(s.grid, 2**40), s), "of 32 bits"),
        (lambda s, p: export.write_ome_tiff(p / "x.tif", np.full(s.grid, 2**40), s), "of 32 bits"),
        (lambda s, p: export.write_ome_zarr(p / "x.zarr", np.full(s.grid, 2**40), s), "of 32 bits"),
        (
            lambda s, p: export.write_dicom_map(p / "x.dcm", np.full(s.grid, np.nan), s),
            "6144 that are no finite numbers",
        ),
        (
            lambda s, p: export.write_dicom_map(p / "x.dcm", np.full(s.grid, 1e300), s),
            "6144 that are no finite numbers",
        ),
        (
            lambda s, p: export.write_dicom_seg(p / "x", np.ones(s.grid, int), s, name="a\\b"),
            "has a backslash",
        ),
        (lambda s, p: export.write_nifti(p / "x.nii", np.zeros((3, 4)), "scan.nii"), "scan is"),
    ],
)
def test_a_wrong_export_is_refused_in_one_line_and_writes_nothing(call, said, dicom, tmp_path):
    scan, _ = dicom
    before = {file: file.read_bytes() for file in scan.files}
    with pytest.raises(hshap.ArgumentError) as caught:
        call(scan, tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
    assert {file: file.read_bytes() for file in scan.files[0].parent.iterdir()} == before
