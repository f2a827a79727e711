"""`hshap exam` explains whole volumes: files of hospitals go to findings at their place."""

from __future__ import annotations

import json
import logging
import re
import sys

import format_files as made
import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("PIL")
pydicom = pytest.importorskip("pydicom")
nibabel = pytest.importorskip("nibabel")
hd = pytest.importorskip("highdicom")

from typer.testing import CliRunner

import hshap
from hshap.cli.app import app
from hshap.cli.faults import Code

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


def print_scores(batch):
    print("noise of the user's own code")
    return bright(batch)


def small(batch):
    assert batch.shape[2:] == (16, 12), batch.shape
    return bright(batch)
"""
REGIONS = ("--partition", "bisection", "--min-size", "1", "--baseline", "constant:0")
OPTIONS = ("--all", *REGIONS, "--tolerance", "0", "--channels", "grey", "--budget", "20000")
SLICES, VOLUME = ("--model", "exam_models:bright"), ("--model", "exam_models:whole", "--volume")
BOX = [
    {
        "start": [side.start for side in made.OBJECT],
        "stop": [side.stop for side in made.OBJECT],
    }
]


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def done(*words):
    ended = run("exam", *words)
    assert ended.exit_code == 0, ended.output
    return ended


def only_entry(folder):
    record = json.loads((folder / "summary.json").read_text())
    ((image,), command) = record["images"], record["command"]
    assert command == "exam"
    (entry,) = image["explanations"]
    return image, entry


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with volumes of one object, models, and the exam of a DICOM series."""
    tmp_path, monkeypatch = tmp_path_factory.mktemp("exam"), pytest.MonkeyPatch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "exam_models.py").write_text(MODEL)
    made.dicom_series(tmp_path / "series")
    made.nifti(tmp_path / "scan.nii.gz")
    made.ome_tiff(tmp_path / "scan.ome.tif")
    made.ome_zarr(tmp_path / "scan.ome.zarr")
    np.save(tmp_path / "scan.npy", made.volume()[None])
    np.save(tmp_path / "slices.npy", made.volume())
    done("series", *SLICES, *OPTIONS, "--out", "dicom")
    yield tmp_path
    monkeypatch.undo()
    sys.modules.pop("exam_models", None)


@pytest.mark.parametrize(
    "name",
    ["series", "scan.nii.gz", "scan.ome.tif", "scan.ome.zarr", "scan.npy", "slices.npy"],
)
def test_every_kind_of_volume_is_explained_to_the_voxel(name, work):
    out = work / "dicom"
    if name != "series":
        out = work / f"out-{name}"
        done(name, *SLICES, *OPTIONS, "--window", "-100.5,899.5", "--out", out.name)
    image, entry = only_entry(out)
    assert image["size"] == list(made.volume().shape)
    assert image["window"] == [-100.5, 899.5]
    if not name.endswith(".npy"):
        np.testing.assert_allclose(image["spacing"], made.SPACING, rtol=1e-5)
    assert [{k: box[k] for k in ("start", "stop")} for box in entry["regions"]] == BOX
    found = hshap.Explanation.load(out / entry["explanation"])
    assert np.array_equal(hshap.export.labels(found) > 0, made.mask())
    assert sorted(one["slice"] for one in entry["slices"]) == [3, 4, 5]
    assert (out / "index.html").stat().st_size > 1000


def test_coefficients_of_slices_are_those_of_the_library(work):
    _, entry = only_entry(work / "dicom")
    scan = hshap.read_image(work / "series")

    def bright(batch):
        return (batch > 0.6).mean(axis=(1, 2, 3))

    explainer = hshap.Explainer(
        bright,
        hshap.Constant(0.0),
        hshap.Bisection(1),
        hshap.DepthFirst(tolerance=0.0, max_evaluations=20000),
    )
    found = hshap.explain_slices(explainer, scan.shown(), 0, layout=scan.axes, spacing=scan.spacing)
    expected = {one.number: one.coefficient for one in hshap.found_slices(found)}
    assert {one["slice"]: one["coefficient"] for one in entry["slices"]} == pytest.approx(expected)
    # By hand: slices are halved. 3 is alone in its half, where 4 and 5 share theirs evenly.
    share = made.mask()[4].mean()
    assert expected == pytest.approx({3: share, 4: share / 2, 5: share / 2})
    assert entry["score"] == pytest.approx(share)
    assert [one["alone"] for one in entry["slices"]] == pytest.approx([share] * 3)
    names = {one["slice"]: one["file"] for one in entry["slices"]}
    assert names == {number: scan.files[number].name for number in (3, 4, 5)}


def test_the_page_has_the_scan_s_spacing_and_the_table_its_slices(work):
    page = (work / "dicom" / "index.html").read_text()
    assert "<title>hshap: series</title>" in page
    (sides,) = re.findall(r'"sides":(\[[\d.,]+\]),"letters":"ZYX"', page)
    np.testing.assert_allclose(json.loads(sides), np.array(made.SPACING) / 0.7, rtol=1e-5)
    ended = done("series", *SLICES, *OPTIONS, "--out", "again")
    rows = [line.split() for line in ended.stdout.splitlines()]
    assert ["class", "slice", "coefficient", "alone", "findings"] in rows
    assert sorted(row[1] for row in rows if row[:1] == ["0"]) == ["3", "4", "5"]
    assert "values from -100.5 to 899.5 were shown from black to white" in ended.stderr
    refused = run("exam", "series", *SLICES, *OPTIONS, "--out", "again")
    assert refused.exit_code == Code.OUTPUT
    before = (work / "again" / "series.npz").stat().st_mtime_ns
    done("series", *SLICES, *OPTIONS, "--out", "again", "--force")
    assert (work / "again" / "series.npz").stat().st_mtime_ns > before
    assert sorted(path.name for path in (work / "again").iterdir()) == [
        "index.html",
        "series.npz",
        "summary.json",
    ]


def test_a_model_of_volumes_is_explained_with_spacing(work):
    ended = done("scan.nii.gz", *VOLUME, *OPTIONS, "--window", "-100.5,899.5", "--out", "whole")
    _, entry = only_entry(work / "whole")
    assert [{k: box[k] for k in ("start", "stop")} for box in entry["regions"]] == BOX
    assert "slices" not in entry
    assert "3:6, 10:18, 12:18" in ended.stdout
    found = hshap.Explanation.load(work / "whole" / "scan.npz")
    np.testing.assert_allclose(found.settings.spacing, made.SPACING, rtol=1e-5)
    scan = hshap.read_image(work / "scan.nii.gz")

    def whole(batch):
        return (batch > 0.6).mean(axis=(1, 2, 3, 4))

    search = hshap.DepthFirst(tolerance=0.0, max_evaluations=20000)
    explainer = hshap.Explainer(whole, hshap.Constant(0.0), hshap.Bisection(1), search)
    seen = scan.shown((-100.5, 899.5))
    same = explainer.explain(seen, 0, layout=scan.axes, spacing=scan.spacing)
    plain = explainer.explain(seen, 0, layout=scan.axes)
    cuts = [[game.children for game in one.games] for one in (found, same, plain)]
    assert cuts[0] == cuts[1] != cuts[2]  # slices are far apart, so they are cut first


def test_onnx_tells_by_itself_that_it_takes_volumes(work):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    for name, sides in (("fits", made.volume().shape), ("other", (4, 32, 24))):
        graph = helper.make_graph(
            [
                helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0, axes=[2, 3, 4]),
            ],
            "volumes",
            [helper.make_tensor_value_info("x", kind, ["n", 1, *sides])],
            [helper.make_tensor_value_info("m", kind, ["n", 1])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(model, work / f"{name}.onnx")
    words = ("scan.npy", *REGIONS, "--tolerance", "5%", "--budget", "200", "--out", "onnx")
    refused = run("exam", *words, "--model", "other.onnx")
    assert refused.exit_code == Code.MODEL
    assert "scan.npy is 8 x 32 x 24 (z, y, x), but other.onnx takes 4 x 32 x 24" in refused.output
    assert not (work / "onnx").exists()
    done(*words, "--model", "fits.onnx", "--window", "-100,1900")
    image, entry = only_entry(work / "onnx")
    assert image["explained_size"] == list(made.volume().shape)
    assert "slices" not in entry
    assert entry["score"] == pytest.approx((made.volume().max() + 100) / 2000, abs=1e-5)


def test_findings_go_back_to_the_place_of_the_series(work):
    words = ("--format", "dicom-seg", "--scan", "series", "--out", "seg.dcm")
    ended = run("export", "dicom/series.npz", *words)
    assert ended.exit_code == 0, ended.output
    volume = hd.seg.segread(work / "seg.dcm").get_volume(combine_segments=True)
    found = np.argwhere(volume.array) @ volume.affine[:3, :3].T + volume.affine[:3, 3]
    truth = np.argwhere(made.mask()) @ made.affine()[:3, :3].T + made.affine()[:3, 3]
    assert found.shape == truth.shape
    near = np.linalg.norm(found[:, None] - truth[None], axis=2).min(axis=1)
    assert near.max() < 1e-3


def test_findings_of_nifti_have_its_affine_without_scan_being_named(work):
    done("scan.nii.gz", *SLICES, *OPTIONS, "--window", "-100.5,899.5", "--out", "nii")
    ended = run("export", "nii", "--format", "nifti", "--out", "found.nii.gz")
    assert ended.exit_code == 0, ended.output
    image, source = nibabel.load(work / "found.nii.gz"), nibabel.load(work / "scan.nii.gz")
    np.testing.assert_allclose(image.affine, source.affine, atol=1e-5)
    assert np.array_equal(np.asarray(image.dataobj) > 0, made.mask().T)


def test_slices_of_another_size_are_resized_only_on_request(work):
    words = ("series", "--model", "exam_models:small", *OPTIONS, "--size", "16x12", "--out", "half")
    refused = run("exam", *words)
    assert refused.exit_code == Code.MODEL
    assert "series is 32 x 24 (height x width), but the model takes 16 x 12" in refused.output
    done(*words, "--resize")
    image, entry = only_entry(work / "half")
    assert image["explained_size"] == [8, 16, 12]
    found = hshap.Explanation.load(work / "half" / "series.npz")
    spacing = (made.SPACING[0], 2 * made.SPACING[1], 2 * made.SPACING[2])
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
    ended = run("export", "half", "--format", "dicom-seg", "--scan", "series", "--out", "half.dcm")
    assert ended.exit_code == 0, ended.output


def test_channels_are_scaled_one_by_one_in_slices_and_volumes(work):
    """The model asserts that its first two channels differ by the means that were given."""
    words = ("--model", "exam_models:scaled", *REGIONS, "--mean", "0,1,0", "--std", "1,1,1")
    done("series", *words, "--volume", "--budget", "50", "--out", "rgb-volume")
    done("series", *words, "--budget", "50", "--out", "rgb-slices")
    scores = [only_entry(work / f"rgb-{kind}")[1]["score"] for kind in ("volume", "slices")]
    assert scores == pytest.approx([made.mask().mean(), made.mask()[4].mean()])


def test_pictures_of_a_baseline_are_shown_by_the_same_window(work):
    words = (*SLICES, "--partition", "bisection", "--channels", "grey", "--window", "-1000,2000")
    done("series", *words, "--baseline", "mean:series", "--out", "mean")
    _, entry = only_entry(work / "mean")
    scan = hshap.read_image(work / "series")
    mean = scan.shown((-1000, 2000)).mean(axis=1)
    assert entry["baseline_score"] == pytest.approx((mean > 0.6).mean())


def test_several_classes_by_name_share_one_page(work):
    words = ("--model", "exam_models:pair", *OPTIONS, "--classes", "lesion,none", "--json")
    ended = done("series", *words, "--target", "top", "--target", "none", "--out", "two")
    document = json.loads(ended.stdout)
    assert document["out"] == "two"
    names = [one["class"] for one in document["images"][0]["explanations"]]
    assert names == ["lesion", "none"]  # the top class is that of the best slice
    assert (work / "two" / "series-lesion.npz").is_file()
    assert (work / "two" / "series-none.npz").is_file()
    assert any(line.startswith("hshap: do not trust: ") for line in ended.stderr.splitlines())


def test_output_of_the_user_s_code_does_not_mix_with_json(work):
    ended = done(
        "series", "--model", "exam_models:print_scores", *OPTIONS, "--json", "--out", "noise"
    )
    assert json.loads(ended.stdout)["command"] == "exam"


def test_no_output_tells_the_patient(work, caplog):
    caplog.set_level(logging.DEBUG)
    texts = [done("series", *SLICES, *OPTIONS, "--out", "private").output]
    texts.append(done("scan.nii.gz", *SLICES, *OPTIONS, "--out", "private-nii").output)
    texts.append(caplog.text)
    assert not any(made.shows_patient(text) for text in texts)
    files = [p for name in ("private", "private-nii") for p in (work / name).rglob("*")]
    assert len(files) == 6
    for path in files:
        data = path.read_bytes()
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                data += b"".join(arrays[name].tobytes() for name in arrays.files)
        assert not made.shows_patient(data), path


@pytest.fixture(scope="module")
def bad(work):
    """Inputs that are no volume."""
    np.save(work / "picture.npy", made.volume()[0])
    np.save(work / "channels.npy", np.zeros((5, 4, 8, 8)))
    np.save(work / "nan.npy", np.full((1, 4, 8, 8), np.nan))
    (work / "text.nii").write_text("no scan")
    (work / "notes.docx").write_text("no scan")
    (work / "empty").mkdir()
    made.dicom_series(work / "gap", skip=(4,))
    return work


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("missing.nii", *SLICES), Code.INPUT, "missing.nii"),
        (("text.nii", *SLICES), Code.INPUT, "text.nii"),
        (("notes.docx", *SLICES), Code.INPUT, "is of no kind that can be read"),
        (("empty", *SLICES), Code.INPUT, "empty"),
        (("gap", *SLICES), Code.INPUT, "gap"),
        (("picture.npy", *SLICES), Code.INPUT, "is no volume, but one picture; pass it to hshap"),
        (("channels.npy", *SLICES), Code.INPUT, "has 5 channels; pass grey values or colours"),
        (("nan.npy", *SLICES), Code.INPUT, "has values that are no numbers"),
        (("series", *SLICES, "--window", "3"), Code.USAGE, "--window 3 is not a range; pass"),
        (("series", *SLICES, "--window", "5,5"), Code.USAGE, "--window 5,5 is not a range"),
        (("series", *SLICES, "--window", "0,inf"), Code.USAGE, "is not a range"),
        (("series", *SLICES, "--window", "a,b"), Code.USAGE, "is not a list of numbers"),
        (
            ("series", *SLICES, "--window", "0,1", "--white", "9"),
            Code.USAGE,
            "--window and --white exclude each other",
        ),
        (("series", *SLICES, "--target", "7"), Code.USAGE, "--target 7 is out of range"),
        (("series", "--model", "exam_models:whole"), Code.MODEL, "if it takes volumes, --volume"),
        (("series", *SLICES, "--volume"), Code.MODEL, "single slices, leave out --volume"),
        (("series", *VOLUME, "--size", "8x8"), Code.USAGE, "are for models of slices"),
        (("series", *VOLUME, "--baseline", "mean:series"), Code.USAGE, "is a picture, but the"),
        (("series", "--model", "exam_models:none"), Code.MODEL, "none"),
        (("series", *SLICES, "--out", "series"), Code.OUTPUT, "series is an input"),
        (("series",), Code.USAGE, "--model is missing"),
    ],
)
def test_a_bad_input_is_one_line_and_nothing_is_written(words, code, said, bad):
    before = sorted(bad.rglob("*"))
    out = () if "--out" in words else ("--out", "never")
    ended = run("exam", *words, *out)
    lines = [line for line in ended.stderr.splitlines() if "were shown from black" not in line]
    assert ended.exit_code == code, ended.output
    assert len(lines) == 1, lines
    assert said in lines[0]
    assert not made.shows_patient(ended.output)
    assert [p for p in sorted(bad.rglob("*")) if "__pycache__" not in p.parts] == [
        p for p in before if "__pycache__" not in p.parts
    ]


def test_help_names_the_options():
    ended = CliRunner().invoke(app, ["exam", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert ended.exit_code == 0
    for option in ("--volume", "--window", "--target", "--resize", "--out", "folder of DICOM"):
        assert option in ended.output
