"""The command line reads scans and writes findings back to their place, and tells no patient."""

from __future__ import annotations

import json
import logging
import sys

import format_files as made
import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")
pytest.importorskip("PIL")
pydicom = pytest.importorskip("pydicom")
nibabel = pytest.importorskip("nibabel")
hd = pytest.importorskip("highdicom")

from typer.testing import CliRunner

import hshap
from hshap.cli.app import app
from hshap.cli.faults import Code

MODEL = """
def bright(batch):
    return (batch > 0.6).mean(axis=(1, 2, 3))
"""
OPTIONS = ("--model", "seen:bright", "--partition", "quadtree", "--min-size", "1")
OPTIONS += ("--all", "--baseline", "constant:0", "--tolerance", "0", "--channels", "grey")


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with a DICOM series, a NIfTI volume, a model of bright pixels, and a first run."""
    tmp_path, monkeypatch = tmp_path_factory.mktemp("work"), pytest.MonkeyPatch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "seen.py").write_text(MODEL)
    made.dicom_series(tmp_path / "series")
    made.nifti(tmp_path / "scan.nii")
    file, _ = slice_with_object(tmp_path / "series")
    ended = run("explain", file, *OPTIONS, "--out", "one")
    assert ended.exit_code == 0, ended.output
    assert "values from -100.5 to 899.5 were shown from black to white" in ended.output
    yield tmp_path
    monkeypatch.undo()
    sys.modules.pop("seen", None)


def slice_with_object(folder):
    """Return the file of slice 4, by its position."""
    scan = hshap.read_image(folder)
    return scan.files[4], scan


def test_a_slice_of_dicom_is_explained_and_goes_back_as_a_segmentation(work):
    file, scan = slice_with_object(work / "series")
    (npz,) = (work / "one").glob("*.npz")
    explanation = hshap.Explanation.load(npz)
    truth = made.mask()[4]
    found = hshap.export.labels(explanation) > 0
    assert (found & truth).sum() / (found | truth).sum() >= 0.9
    ended = run("export", npz, "--format", "dicom-seg", "--scan", file, "--out", "seg.dcm")
    assert ended.exit_code == 0, ended.output
    volume = hd.seg.segread(work / "seg.dcm").get_volume(combine_segments=True)
    centre = np.argwhere(volume.array).mean(axis=0) @ volume.affine[:3, :3].T + volume.affine[:3, 3]
    expected = scan.to_world(np.argwhere(truth).mean(axis=0)[[0, 0, 1]] * (0, 1, 1) + (4, 0, 0))
    assert np.linalg.norm(centre - expected) < min(made.SPACING) / 2


def test_a_slice_of_nifti_is_chosen_by_frame_and_goes_back_to_its_place(work):
    refused = run("explain", "scan.nii", *OPTIONS, "--out", "nii")
    assert refused.exit_code == Code.INPUT
    assert "is a volume of 8 slices; pass --frame 0 to 7" in refused.output
    assert not (work / "nii").exists()
    ended = run("explain", "scan.nii", *OPTIONS, "--out", "nii", "--frame", "4")
    assert ended.exit_code == 0, ended.output
    ended = run("export", "nii", "--format", "nifti", "--scan", "scan.nii", "-o", "found.nii.gz")
    assert ended.exit_code == 0, ended.output
    image = nibabel.load(work / "found.nii.gz")
    source = nibabel.load(work / "scan.nii")
    found = np.argwhere(np.asarray(image.dataobj)).mean(axis=0)
    truth = np.argwhere(made.mask().T)
    truth = truth[truth[:, 2] == 4].mean(axis=0)
    ours, theirs = (
        nibabel.affines.apply_affine(affine, place)
        for affine, place in ((image.affine, found), (source.affine, truth))
    )
    assert np.linalg.norm(ours - theirs) < min(made.SPACING) / 2


@pytest.mark.parametrize(
    "format_", ["label-studio", "cvat", "datumaro", "fiftyone", "qupath", "dicom-map", "nifti-map"]
)
def test_every_format_is_written_by_the_command(format_, work):
    file, _ = slice_with_object(work / "series")
    target = f"{format_}.file"
    ended = run("export", "one", "--format", format_, "--scan", file, "-o", target, "--json")
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["file"] == target
    assert (work / target).stat().st_size > 100


def test_no_output_tells_the_patient(work, caplog):
    caplog.set_level(logging.DEBUG)
    outputs = [run("explain", "series", *OPTIONS, "--out", "out").output]
    for format_ in ("coco", "qupath", "label-studio", "cvat", "datumaro", "fiftyone"):
        outputs.append(run("export", "out", "-f", format_, "-o", f"made-{format_}").output)
    (npz,) = [
        path for path in (work / "out").glob("*.npz") if len(hshap.Explanation.load(path).leaves)
    ][:1]
    file, _ = slice_with_object(work / "series")
    for format_ in ("dicom-seg", "dicom-map", "nifti", "ome-zarr", "ome-tiff"):
        ended = run("export", npz, "-f", format_, "--scan", file, "-o", f"made-{format_}")
        outputs.append(ended.output)
        assert ended.exit_code == 0, ended.output
    (work / "bad.dcm").write_bytes(file.read_bytes()[:-600])
    outputs.append(run("explain", "bad.dcm", *OPTIONS, "--out", "other").output)
    assert "truncated" in outputs[-1]
    outputs.append(caplog.text)
    assert not any(made.shows_patient(text) for text in outputs)
    written = [p for p in (work / "out").rglob("*") if p.is_file()]
    written += [
        p for made_ in work.glob("made-*") for p in (made_, *made_.rglob("*")) if p.is_file()
    ]
    assert len(written) > 20
    for path in written:
        data = path.read_bytes()
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                data += b"".join(arrays[name].tobytes() for name in arrays.files)
        assert not made.shows_patient(data), path
        assert not made.shows_patient(path.name)
    known = run("export", npz, "-f", "dicom-seg", "--scan", file, "-o", "p.dcm", "--patient")
    assert known.exit_code == 0
    assert made.shows_patient((work / "p.dcm").read_bytes())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "dicom-seg"), "does not tell where its scan is; pass --scan"),
        (("--format", "nifti", "--scan", "small.npy"), "explains an image of (32, 24) pixels"),
        (("--format", "nifti", "--scan", "gone.nii"), "--scan gone.nii does not exist"),
        (("--format", "dicom-seg", "--scan", "plain.npy"), "plain.npy is no DICOM file; pass --fo"),
        (("--format", "nifti", "--scan", "plain.npy"), "which plain.npy does not tell; pass --for"),
        (("--format", "ome-zarr", "--scan", "FILE", "-o", "old.zarr"), "inside the image old.zarr"),
        (("--format", "nifti", "--scan", "FILE", "-o", "old.zarr/a.nii"), "inside the image old."),
        (("--format", "dicom-seg", "--scan", "FILE", "-o", "series/n.dcm"), "among the files"),
        (("--format", "nii"), "is not known"),
    ],
)
def test_an_export_that_cannot_be_is_refused_and_nothing_written(words, said, work):
    file, _ = slice_with_object(work / "series")
    (npz,) = (work / "one").glob("*.npz")
    np.save(work / "small.npy", np.zeros((8, 8)))
    np.save(work / "plain.npy", np.zeros((32, 24)))
    if not (work / "old.zarr").exists():
        made.ome_zarr(work / "old.zarr")
    before = sorted(work.rglob("*"))
    ended = run("export", npz, *(file if word == "FILE" else word for word in words))
    assert ended.exit_code not in (0, Code.UNEXPECTED)
    assert said in " ".join(ended.output.split())
    assert sorted(work.rglob("*")) == before


def test_slices_of_a_series_become_segmentations_where_they_have_a_finding(work):
    assert run("explain", "series", *OPTIONS, "--out", "slices").exit_code == 0
    ended = run("export", "slices", "-f", "dicom-seg", "--scan", "series", "-o", "segs")
    assert ended.exit_code == 0, ended.output
    scan = hshap.read_image(work / "series")
    seen = {scan.files[z].stem: z for z in (3, 4, 5)}
    assert {path.name for path in (work / "segs").iterdir()} == {f"{n}.seg.dcm" for n in seen}
    for name, z in seen.items():
        (frame,) = pydicom.dcmread(work / f"segs/{name}.seg.dcm").PerFrameFunctionalGroupsSequence
        place = [float(v) for v in frame.PlanePositionSequence[0].ImagePositionPatient]
        np.testing.assert_allclose(place, scan.to_world((z, 0, 0)), atol=1e-6)
    assert ended.stderr.count("has no finding, so there is no segmentation of it") == 5
    (empty,) = {scan.files[0].stem}
    ended = run("export", f"slices/{empty}.npz", "-f", "dicom-seg", "--scan", "series", "-o", "no")
    assert ended.exit_code == Code.INPUT
    assert "pass --format dicom-map" in ended.output
    assert not (work / "no").exists()


def test_a_scan_that_is_not_the_file_explained_is_told(work):
    file, scan = slice_with_object(work / "series")
    words = ("export", "one", "-f", "nifti", "--scan")
    assert "is not the file" not in run(*words, file, "-o", "same.nii").output
    other = run(*words, scan.files[5], "-o", "other.nii")
    assert other.exit_code == 0
    assert "is not the file that one/" in other.stderr


def test_an_export_that_fails_leaves_no_empty_folder(work):
    (npz,) = (work / "one").glob("*.npz")
    ended = run("export", npz, npz, "-f", "nifti", "--scan", "plain.npy", "-o", "left")
    assert ended.exit_code == Code.INPUT
    assert not (work / "left").exists()


def test_an_image_in_ome_zarr_is_named_as_such(work):
    made.ome_zarr(work / "image.zarr")
    ended = run("explain", "image.zarr", *OPTIONS, "--out", "zarr")
    assert ended.exit_code == Code.INPUT
    assert "image.zarr is an image in OME-Zarr; pass it to hshap tiles" in ended.output


@pytest.mark.parametrize(
    "turned", [(1, 0, 0, 0, 1, 0), (-1, 0, 0, 0, -1, 0), (0, 1, 0, 0, 0, -1), (0, -1, 0, 1, 0, 0)]
)
def test_places_of_a_turned_dicom_are_stored_pixels(work, tmp_path, turned):
    pixels = np.zeros((32, 64), np.uint16)
    pixels[4:8, 40:48] = 60000
    head = made.dicom_header(ImagePositionPatient=[0, 0, 0], ImageOrientationPatient=[*turned])
    head.PixelSpacing, head.SliceThickness = [1, 1], 1
    made.save_dicom(tmp_path / "a.dcm", head, pixels)
    out, document = tmp_path / "out", tmp_path / "a.geojson"
    ended = run("explain", tmp_path / "a.dcm", *OPTIONS, "--target", 0, "--out", out)
    assert ended.exit_code == 0, ended.output
    assert run("export", out / "a.npz", "--format", "geojson", "-o", document).exit_code == 0
    features = json.loads(document.read_text())["features"]
    corners = np.concatenate([one["geometry"]["coordinates"][0] for one in features])
    assert [*corners.min(axis=0), *corners.max(axis=0)] == [40, 4, 48, 8]
