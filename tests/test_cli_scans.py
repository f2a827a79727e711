"""Scans on the command line: findings go back to their place, and no patient is told."""

from __future__ import annotations

import json
import logging
import re
import sys

import format_files as made
import numpy as np
import pytest
from commands import fine

pydicom = pytest.importorskip("pydicom")
nibabel = pytest.importorskip("nibabel")
hd = pytest.importorskip("highdicom")

import hshap
from hshap import Constant, DepthFirst, Explainer
from hshap.volumes import explain_slices, found_slices

MODEL = """
import numpy as np
def bright(batch):
    assert batch.ndim == 4, batch.shape
    return (batch > 0.6).mean(axis=(1, 2, 3))
def pair(batch):
    share = bright(batch)
    return np.stack([share, np.full(len(batch), 0.001)], axis=1)
def whole(batch):
    assert batch.ndim == 5, batch.shape
    return (batch > 0.6).mean(axis=(1, 2, 3, 4))
def scaled(batch):
    assert batch.shape[1] == 3 and np.abs(batch[:, 0] - batch[:, 1] - 1).max() < 1e-5
    return (batch[:, 0] > 0.6).reshape(len(batch), -1).mean(axis=1)
def small(batch):
    assert batch.shape[2:] == (16, 12), batch.shape
    return bright(batch)
"""
REGIONS = ("--partition", "bisection", "--min-size", "1", "--baseline", "constant:0")
OPTIONS = ("--all", *REGIONS, "--tolerance", "0", "--channels", "grey", "--budget", "20000")
WINDOW = ("--window", "-100.5,899.5")
SLICES, VOLUME = ("--model", "scan_models:bright"), ("--model", "scan_models:whole", "--volume")
PICTURE = (*SLICES, "--all", "--partition", "quadtree", "--min-size", "1", "--tolerance", "0")
PICTURE += ("--baseline", "constant:0", "--channels", "grey")
BOX = {
    "start": [side.start for side in made.OBJECT],
    "stop": [side.stop for side in made.OBJECT],
}


def exam(*words, code=0):
    return fine("exam", *words, code=code)


def entry_of(folder):
    (image,) = json.loads((folder / "summary.json").read_text())["images"]
    (entry,) = image["explanations"]
    return image, entry


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with volumes of one object, models, an exam of a series and a slice of it."""
    tmp_path, monkeypatch = tmp_path_factory.mktemp("scans"), pytest.MonkeyPatch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "scan_models.py").write_text(MODEL)
    made.dicom_series(tmp_path / "series")
    made.nifti(tmp_path / "scan.nii.gz")
    made.ome_tiff(tmp_path / "scan.ome.tif")
    made.ome_zarr(tmp_path / "scan.ome.zarr")
    np.save(tmp_path / "scan.npy", made.volume()[None])
    np.save(tmp_path / "slices.npy", made.volume())
    exam("series", *SLICES, *OPTIONS, "--out", "dicom")
    done = fine("explain", scan_of(tmp_path).files[4], *PICTURE, "--out", "one")
    assert "values from -100.5 to 899.5 were shown from black to white" in done.output
    yield tmp_path
    monkeypatch.undo()
    sys.modules.pop("scan_models", None)


def scan_of(work):
    return hshap.images.read_image(work / "series")


# Exams of volumes


@pytest.mark.parametrize(
    "name",
    ["series", "scan.nii.gz", "scan.ome.tif", "scan.ome.zarr", "scan.npy", "slices.npy"],
)
def test_every_kind_of_volume_is_explained(name, work):
    out = work / "dicom"
    if name != "series":
        out = work / f"out-{name}"
        exam(name, *SLICES, *OPTIONS, *WINDOW, "--out", out.name)
    image, entry = entry_of(out)
    assert image["size"] == list(made.volume().shape)
    assert image["window"] == [-100.5, 899.5]
    if not name.endswith(".npy"):
        np.testing.assert_allclose(image["spacing"], made.SPACING, rtol=1e-5)
    assert [{k: box[k] for k in ("start", "stop")} for box in entry["regions"]] == [BOX]
    found = hshap.Explanation.load(out / entry["explanation"])
    assert np.array_equal(hshap.export.labels(found) > 0, made.mask())
    assert sorted(one["slice"] for one in entry["slices"]) == [3, 4, 5]
    assert (out / "index.html").stat().st_size > 1000


def test_slices_have_the_library_s_coefficients(work):
    _, entry = entry_of(work / "dicom")
    scan = scan_of(work)
    model = lambda batch: (batch > 0.6).mean(axis=(1, 2, 3))
    search = DepthFirst(tolerance=0.0, max_evaluations=20000)
    explainer = Explainer(model, Constant(0.0), hshap.Bisection(1), search)
    found = explain_slices(explainer, scan.shown(), 0, layout=scan.axes, spacing=scan.spacing)
    expected = {one.number: one.coefficient for one in found_slices(found)}
    assert {one["slice"]: one["coefficient"] for one in entry["slices"]} == pytest.approx(expected)
    # By hand: slices are halved. 3 is alone in its half, where 4 and 5 share theirs evenly.
    share = made.mask()[4].mean()
    assert expected == pytest.approx({3: share, 4: share / 2, 5: share / 2})
    assert entry["score"] == pytest.approx(share)
    assert [one["alone"] for one in entry["slices"]] == pytest.approx([share] * 3)
    names = {one["slice"]: one["file"] for one in entry["slices"]}
    assert names == {number: scan.files[number].name for number in (3, 4, 5)}


def test_an_exam_is_replaced_by_force_alone(work):
    page = (work / "dicom" / "index.html").read_text()
    assert "<title>hshap: series</title>" in page
    (sides,) = re.findall(r'"sides":(\[[\d.,]+\]),"letters":"ZYX"', page)
    np.testing.assert_allclose(json.loads(sides), np.array(made.SPACING) / 0.7, rtol=1e-5)
    done = exam("series", *SLICES, *OPTIONS, "--out", "again")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["class", "slice", "coefficient", "alone", "findings"] in rows
    assert sorted(row[1] for row in rows if row[:1] == ["0"]) == ["3", "4", "5"]
    assert "values from -100.5 to 899.5 were shown from black to white" in done.stderr
    before = (work / "again" / "series.npz").stat().st_mtime_ns
    exam("series", *SLICES, *OPTIONS, "--out", "again", "--force")
    assert (work / "again" / "series.npz").stat().st_mtime_ns > before
    files = sorted(path.name for path in (work / "again").iterdir())
    assert files == ["index.html", "series.npz", "summary.json"]


def test_a_model_of_volumes_gets_the_spacing(work):
    done = exam("scan.nii.gz", *VOLUME, *OPTIONS, *WINDOW, "--out", "whole")
    _, entry = entry_of(work / "whole")
    assert [{k: box[k] for k in ("start", "stop")} for box in entry["regions"]] == [BOX]
    assert "slices" not in entry
    assert "3:6, 10:18, 12:18" in done.stdout
    found = hshap.Explanation.load(work / "whole" / "scan.npz")
    np.testing.assert_allclose(found.settings.spacing, made.SPACING, rtol=1e-5)
    scan = hshap.images.read_image(work / "scan.nii.gz")
    model = lambda batch: (batch > 0.6).mean(axis=(1, 2, 3, 4))
    search = DepthFirst(tolerance=0.0, max_evaluations=20000)
    explainer = Explainer(model, Constant(0.0), hshap.Bisection(1), search)
    seen = scan.shown((-100.5, 899.5))
    same = explainer.explain(seen, 0, layout=scan.axes, spacing=scan.spacing)
    plain = explainer.explain(seen, 0, layout=scan.axes)
    cuts = [[game.children for game in one.games] for one in (found, same, plain)]
    assert cuts[0] == cuts[1] != cuts[2]  # slices are far apart, so they are cut first


def test_onnx_tells_that_it_takes_volumes(work):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    for name, sides in (("fits", made.volume().shape), ("other", (4, 32, 24))):
        graph = helper.make_graph(
            [helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0, axes=[2, 3, 4])],
            "volumes",
            [helper.make_tensor_value_info("x", kind, ["n", 1, *sides])],
            [helper.make_tensor_value_info("m", kind, ["n", 1])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(model, work / f"{name}.onnx")
    words = ("scan.npy", *REGIONS, "--tolerance", "5%", "--budget", "200", "--out", "onnx")
    told = exam(*words, "--model", "other.onnx", code=4).output
    assert "scan.npy is 8 x 32 x 24 (z, y, x), but other.onnx takes 4 x 32 x 24" in told
    assert not (work / "onnx").exists()
    exam(*words, "--model", "fits.onnx", "--window", "-100,1900")
    image, entry = entry_of(work / "onnx")
    assert image["explained_size"] == list(made.volume().shape)
    assert "slices" not in entry
    assert entry["score"] == pytest.approx((made.volume().max() + 100) / 2000, abs=1e-5)


def test_slices_are_resized_on_request_alone(work):
    words = ("series", "--model", "scan_models:small", *OPTIONS, "--size", "16x12", "--out", "half")
    told = exam(*words, code=4).output
    assert "series is 32 x 24 (height x width), but the model takes 16 x 12" in told
    exam(*words, "--resize")
    image, entry = entry_of(work / "half")
    assert image["explained_size"] == [8, 16, 12]
    found = hshap.Explanation.load(work / "half" / "series.npz")
    spacing = np.array(made.SPACING) * (1, 2, 2)
    np.testing.assert_allclose(found.settings.spacing, spacing, rtol=1e-5)
    # Boxes are in voxels of the scan; resizing blurs the edge by at most one pixel of the model.
    (box,) = entry["regions"]
    assert (box["start"][0], box["stop"][0]) == (3, 6)
    for side, low, high in zip(made.OBJECT, box["start"], box["stop"], strict=True):
        assert abs(low - side.start) <= 2
        assert abs(high - side.stop) <= 2
    labels = hshap.export.labels(found) > 0
    assert labels.shape == made.mask().shape
    assert (labels & made.mask()).sum() / made.mask().sum() > 0.9
    fine("export", "half", "--format", "dicom-seg", "--scan", "series", "--out", "half.dcm")


def test_channels_are_scaled_one_by_one(work):
    """The model asserts that its first two channels differ by the means that were given."""
    words = ("--model", "scan_models:scaled", *REGIONS, "--mean", "0,1,0", "--std", "1,1,1")
    exam("series", *words, "--volume", "--budget", "50", "--out", "rgb-volume")
    exam("series", *words, "--budget", "50", "--out", "rgb-slices")
    scores = [entry_of(work / f"rgb-{kind}")[1]["score"] for kind in ("volume", "slices")]
    assert scores == pytest.approx([made.mask().mean(), made.mask()[4].mean()])


def test_baselines_have_the_same_window(work):
    words = (*SLICES, "--partition", "bisection", "--channels", "grey", "--window", "-1000,2000")
    exam("series", *words, "--baseline", "mean:series", "--out", "mean")
    _, entry = entry_of(work / "mean")
    mean = scan_of(work).shown((-1000, 2000)).mean(axis=1)
    assert entry["baseline_score"] == pytest.approx((mean > 0.6).mean())


def test_classes_by_name_share_a_page(work):
    words = ("--model", "scan_models:pair", *OPTIONS, "--classes", "lesion,none", "--json")
    done = exam("series", *words, "--target", "top", "--target", "none", "--out", "two")
    document = json.loads(done.stdout)
    assert document["out"] == "two"
    names = [one["class"] for one in document["images"][0]["explanations"]]
    assert names == ["lesion", "none"]  # the top class is that of the best slice
    assert (work / "two" / "series-lesion.npz").is_file()
    assert (work / "two" / "series-none.npz").is_file()
    assert ": do not trust: " in done.stderr


# Exports to the place of a scan


def world(volume):
    return np.argwhere(volume.array) @ volume.affine[:3, :3].T + volume.affine[:3, 3]


def test_findings_go_back_to_a_series(work):
    fine(*("export", "dicom/series.npz", "-f", "dicom-seg", "--scan", "series", "-o", "seg.dcm"))
    found = world(hd.seg.segread(work / "seg.dcm").get_volume(combine_segments=True))
    truth = np.argwhere(made.mask()) @ made.affine()[:3, :3].T + made.affine()[:3, 3]
    assert found.shape == truth.shape
    near = np.linalg.norm(found[:, None] - truth[None], axis=2).min(axis=1)
    assert near.max() < 1e-3
    # A slice that was explained alone goes to its own place.
    scan = scan_of(work)
    fine("export", "one", "-f", "dicom-seg", "--scan", scan.files[4], "-o", "slice.dcm")
    found = world(hd.seg.segread(work / "slice.dcm").get_volume(combine_segments=True))
    truth = scan.to_world(
        np.argwhere(made.mask()[4]).mean(axis=0)[[0, 0, 1]] * (0, 1, 1) + (4, 0, 0)
    )
    assert np.linalg.norm(found.mean(axis=0) - truth) < min(made.SPACING) / 2


def test_findings_of_nifti_have_its_affine(work):
    exam("scan.nii.gz", *SLICES, *OPTIONS, *WINDOW, "--out", "nii")
    fine("export", "nii", "--format", "nifti", "--out", "found.nii.gz")
    image, source = nibabel.load(work / "found.nii.gz"), nibabel.load(work / "scan.nii.gz")
    np.testing.assert_allclose(image.affine, source.affine, atol=1e-5)
    assert np.array_equal(np.asarray(image.dataobj) > 0, made.mask().T)
    # A single slice is chosen by its number.
    told = fine("explain", "scan.nii.gz", *PICTURE, "--out", "volume").output
    assert "the page is volume/index.html" in told
    fine("explain", "scan.nii.gz", *PICTURE, "--out", "frame", "--frame", "4")
    fine("export", "frame", "-f", "nifti", "--scan", "scan.nii.gz", "-o", "frame.nii.gz")
    image = nibabel.load(work / "frame.nii.gz")
    apply = nibabel.affines.apply_affine
    ours = apply(image.affine, np.argwhere(np.asarray(image.dataobj)).mean(axis=0))
    truth = np.argwhere(made.mask().T)
    theirs = apply(source.affine, truth[truth[:, 2] == 4].mean(axis=0))
    assert np.linalg.norm(ours - theirs) < min(made.SPACING) / 2


def test_slices_with_findings_become_segmentations(work):
    fine("explain", "series", *PICTURE, "--out", "slices")
    done = fine("export", "slices", "-f", "dicom-seg", "--scan", "series", "-o", "segs")
    scan = scan_of(work)
    seen = {scan.files[z].stem: z for z in (3, 4, 5)}
    assert {path.name for path in (work / "segs").iterdir()} == {f"{n}.seg.dcm" for n in seen}
    for name, z in seen.items():
        (frame,) = pydicom.dcmread(work / f"segs/{name}.seg.dcm").PerFrameFunctionalGroupsSequence
        place = [float(v) for v in frame.PlanePositionSequence[0].ImagePositionPatient]
        np.testing.assert_allclose(place, scan.to_world((z, 0, 0)), atol=1e-6)
    assert done.stderr.count("has no finding, so there is no segmentation of it") == 5
    words = ("export", f"slices/{scan.files[0].stem}.npz", "-f", "dicom-seg", "--scan", "series")
    assert "pass --format dicom-map" in fine(*words, "-o", "no", code=3).output
    assert not (work / "no").exists()


def test_another_scan_is_told(work):
    scan = scan_of(work)
    words = ("export", "one", "-f", "nifti", "--scan")
    assert "is not the file" not in fine(*words, scan.files[4], "-o", "same.nii").output
    told = fine(*words, scan.files[5], "-o", "other.nii").stderr
    assert "is not the file that one/" in told


@pytest.mark.parametrize(
    "turned", [(1, 0, 0, 0, 1, 0), (-1, 0, 0, 0, -1, 0), (0, 1, 0, 0, 0, -1), (0, -1, 0, 1, 0, 0)]
)
def test_places_of_a_turned_scan_are_stored_pixels(work, tmp_path, turned):
    pixels = np.zeros((32, 64), np.uint16)
    pixels[4:8, 40:48] = 60000
    head = made.dicom_header(ImagePositionPatient=[0, 0, 0], ImageOrientationPatient=[*turned])
    head.PixelSpacing, head.SliceThickness = [1, 1], 1
    made.save_dicom(tmp_path / "a.dcm", head, pixels)
    out, document = tmp_path / "out", tmp_path / "a.geojson"
    fine("explain", tmp_path / "a.dcm", *PICTURE, "--target", 0, "--out", out)
    fine("export", out / "a.npz", "--format", "geojson", "-o", document)
    features = json.loads(document.read_text())["features"]
    corners = np.concatenate([one["geometry"]["coordinates"][0] for one in features])
    assert [*corners.min(axis=0), *corners.max(axis=0)] == [40, 4, 48, 8]


# Patients


def test_no_output_tells_the_patient(work, caplog):
    caplog.set_level(logging.DEBUG)
    file = scan_of(work).files[4]
    outputs = [exam("series", *SLICES, *OPTIONS, "--out", "made-exam").output]
    outputs.append(exam("scan.nii.gz", *SLICES, *OPTIONS, "--out", "made-nii").output)
    outputs.append(fine("explain", "series", *PICTURE, "--out", "made-slices").output)
    for kind in ("coco", "coco-results", "qupath", "label-studio", "cvat"):
        outputs.append(fine("export", "made-slices", "-f", kind, "-o", f"made-{kind}").output)
    for kind in ("dicom-seg", "dicom-map", "nifti", "ome-zarr", "ome-tiff"):
        words = ("export", "one", "-f", kind, "--scan", file, "-o", f"made-{kind}")
        outputs.append(fine(*words).output)
    (work / "bad.dcm").write_bytes(file.read_bytes()[:-600])
    outputs.append(fine("explain", "bad.dcm", *PICTURE, "--out", "other", code=3).output)
    assert "truncated" in outputs[-1]
    outputs.append(caplog.text)
    assert not any(made.shows_patient(text) for text in outputs)
    written = [path for one in work.glob("made-*") for path in (one, *one.rglob("*"))]
    written = [path for path in written if path.is_file()]
    assert len(written) > 30
    for path in written:
        data = path.read_bytes()
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                data += b"".join(arrays[name].tobytes() for name in arrays.files)
        assert not made.shows_patient(data), path
        assert not made.shows_patient(path.name)
    fine(*("export", "one", "-f", "dicom-seg", "--scan", file, "-o", "p.dcm", "--patient"))
    assert made.shows_patient((work / "p.dcm").read_bytes())
