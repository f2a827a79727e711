"""Carriers of the score, and the commands `hshap report` and `hshap calibrate`."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from commands import fine
from commands import run as call

pytest.importorskip("typer")
pytest.importorskip("pyarrow")

import hshap
from hshap import ArgumentError, Bisection, Constant, Explainer
from hshap.cli.inputs.annotated_runs import Annotation, mask_of, on_grid
from hshap.guarantees import Calibration, carriers

SIDE = 32


def reads(*places):
    """Return a model that sums the brightness of some boxes `(top, left, bottom, right)`."""

    def model(batch):
        return sum(batch[:, 0, a:c, b:d].sum(axis=(1, 2)) for a, b, c, d in places)

    return model


CORNER, CENTRE = (0, 0, 4, 4), (12, 12, 20, 20)


def explain(model, image=None, **options):
    given = {"baseline": Constant(0.0), "partition": Bisection(min_size=4), **options}
    shown = np.ones((1, SIDE, SIDE)) if image is None else image
    return Explainer(model, **given).explain(shown, target=0)


def truth(box=CENTRE):
    return [((box[0], box[1]), (box[2], box[3]))]


def test_each_pixel_counts_once():
    found = explain(reads(CORNER, CENTRE))
    (row,) = carriers({"a": (found, truth())}).images
    assert sum(row.shares.values()) == pytest.approx(1.0)
    assert sum(row.areas.values()) == pytest.approx(1.0)
    # 64 of the 80 pixels that the model sums lie on the object, 16 in the corner.
    assert row.shares["objects"] == pytest.approx(0.8)
    assert row.shares["corners"] == pytest.approx(0.2)
    assert row.shares["border"] == row.shares["background"] == 0.0
    # Marks of the user come before corners, and objects before marks.
    marks = {"text": {"a": truth(CORNER)}, "logo": {"a": truth(CENTRE)}}
    shares = carriers({"a": (found, truth())}, marks=marks).images[0].shares
    assert shares["text"] == pytest.approx(0.2)
    assert shares["corners"] == shares["logo"] == 0.0
    assert shares["objects"] == pytest.approx(0.8)
    # Shares are those at the original size.
    placed = explain(reads(CENTRE)).placed((2 * SIDE, 2 * SIDE))
    row = carriers({"a": (placed, [((24, 24), (40, 40))])}).images[0]
    assert row.shares["objects"] == pytest.approx(1.0)
    assert row.areas["corners"] == pytest.approx(4 * (SIDE // 8) ** 2 / SIDE**2)


def test_a_model_that_reads_corners_is_suspicious():
    rng = np.random.default_rng(0)
    images = {str(i): rng.uniform(0.5, 1.0, (1, SIDE, SIDE)) for i in range(12)}
    for model, expected in ((reads(CORNER, CENTRE), ("corners",)), (reads(CENTRE), ())):
        every = {name: (explain(model, image), truth()) for name, image in images.items()}
        report = carriers(every)
        assert report.suspicious == expected
        assert report.verdict.startswith(
            "suspicious: corners" if expected else "no mark is suspicious"
        )
        assert list(report.images) == sorted(
            report.images, key=lambda row: (row.shares["objects"], row.image)
        )


def test_the_verdict_claims_no_more_than_its_check():
    every = {str(i): (explain(reads((0, 0, SIDE, SIDE))), truth()) for i in range(10)}
    report = carriers(every)
    assert report.means["border"].value == pytest.approx(report.images[0].areas["border"])
    assert report.suspicious == ()
    # Corners of 6 % of the image with 9 % of the score have more than by area, and no tenth.
    model = lambda batch: reads(CENTRE)(batch) * 91 / 64 + reads((0, 0, 3, 3))(batch)
    every = {str(i): (explain(model, partition=Bisection(1)), truth()) for i in range(8)}
    report = carriers(every)
    assert report.area("corners") < 0.07 < report.means["corners"].low < 0.1
    assert report.verdict.startswith("no mark is suspicious: none has surely more than a tenth")


def test_the_margin_grows_objects():
    found = explain(reads((10, 10, 12, 12)), partition=Bisection(min_size=1))
    assert carriers({"a": (found, truth())}).images[0].shares["objects"] == 0.0
    assert carriers({"a": (found, truth())}, margin=2).images[0].shares["objects"] == 1.0
    nothing = explain(lambda batch: np.zeros(len(batch)))
    report = carriers({"a": (found, truth()), "b": (nothing, truth())})
    assert report.empty == ("b",)
    assert len(report.images) == 1
    assert "nothing can be said" in carriers({"b": (nothing, truth())}).verdict
    with pytest.raises(ArgumentError, match="explanations is empty"):
        carriers({})


# The command line.


@pytest.mark.parametrize("library", [None, pytest.param("coco", marks=pytest.mark.frameworks)])
def test_masks_of_coco_are_those_of_its_library(library):
    mask = np.random.default_rng(2).uniform(size=(13, 17)) < 0.4
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.T.ravel(), [2]])))
    counts = np.diff(np.concatenate([[0], edges])).tolist()
    if library:
        coco_masks = pytest.importorskip("pycocotools.mask")
        counts = coco_masks.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()
    runs = {"size": [13, 17], "counts": counts}
    assert (mask_of(Annotation("a", [0, 0, 1, 1], runs), (13, 17)) == mask).all()
    square = [[2, 3, 8, 3, 8, 9, 2, 9]]
    drawn = np.zeros((13, 17), bool)
    drawn[3:9, 2:8] = True
    assert (mask_of(Annotation("a", [2, 3, 6, 6], square), (13, 17)) == drawn).all()


def test_polygons_hold_pixels_by_their_centres():
    path = pytest.importorskip("matplotlib.path")
    corners = [1.2, 0.3, 9.7, 4.1, 6.2, 11.4, 4.9, 5.8, 0.6, 9.9]
    polygon = path.Path(np.reshape(corners, (-1, 2)))
    found = mask_of(Annotation("a", [0, 0, 10, 12], [corners]), (12, 11))
    for (row, column), inside in np.ndenumerate(found):
        assert inside == polygon.contains_point((column + 0.5, row + 0.5))


def test_a_mask_at_original_size_comes_to_the_grid():
    found = explain(reads(CENTRE)).placed((2 * SIDE, 2 * SIDE))
    mask = np.zeros((2 * SIDE, 2 * SIDE), bool)
    mask[24:40, 24:40] = True
    assert on_grid(mask, found)[12:20, 12:20].all()
    assert on_grid(mask, found).sum() == 64
    small = np.zeros((8 * SIDE, 8 * SIDE), bool)
    small[81, 81] = True
    there = on_grid(small, explain(reads(CENTRE)).placed(small.shape))
    assert np.argwhere(there).tolist() == [[10, 10]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run folder of 12 images by a model that reads a corner too, and its annotations."""
    place = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    images = {f"{i}.png": rng.uniform(0.5, 1.0, (1, SIDE, SIDE)) for i in range(12)}
    stored(reads(CORNER, CENTRE), images, place / "run")
    document = {
        "images": [
            {"id": n, "file_name": name, "width": SIDE, "height": SIDE}
            for n, name in enumerate(images)
        ],
        "categories": [{"id": 1, "name": "cell"}, {"id": 2, "name": "text"}],
        "annotations": [
            {"id": 2 * n + k, "image_id": n, "category_id": k + 1, "bbox": box}
            for n in range(12)
            for k, box in enumerate((CELL, [0, 0, 4, 4]))
        ],
    }
    (place / "truth.json").write_text(json.dumps(document))
    return place


def stored(model, images, out):
    explainer = Explainer(model, baseline=Constant(0.0), partition=Bisection(min_size=4))
    hshap.runs.explain_dataset(explainer, images, out, target=0, model_id="sum")


def test_report_tells_the_carriers_of_a_run(folder):
    words = ("report", folder / "run", "--truth", folder / "truth.json", "--mark", "text")
    told = fine(*words)
    assert "suspicious: text" in told.stdout
    found = json.loads(call(*words, "--json").stdout)
    assert found["means"]["text"]["value"] == pytest.approx(0.2, abs=0.02)
    assert found["means"]["objects"]["value"] == pytest.approx(0.8, abs=0.02)
    assert found["suspicious"] == ["text"]
    lines = call(*words, "--csv").stdout.splitlines()
    assert len(lines) == 13
    assert call(*words, "--strict").exit_code == 8


def test_calibrate_writes_a_file_that_view_and_python_apply(folder, tmp_path):
    out = tmp_path / "calibration.json"
    words = ("calibrate", folder / "run", "--truth", folder / "truth.json", "--out", out)
    told = call(*words, "--category", "cell", "--level", "0.1")
    assert told.exit_code == 0, told.output
    promise = (
        "90 % of object area expected inside on images with objects, calibrated on 12 such images"
    )
    assert promise in told.stdout
    run = hshap.runs.open(folder / "run")
    made = Calibration.load(out)
    inside = [made.area(found)[12:20, 12:20].mean() for found in run]
    assert np.mean(inside) >= 0.9
    run["3.png"].save(tmp_path / "one.npz")
    page = call("view", tmp_path / "one.npz", "--calibration", out, "--out", tmp_path / "a.html")
    assert page.exit_code == 0, page.output
    text = (tmp_path / "a.html").read_text()
    assert promise in text


BOMBS = {
    "deep": "[" * 200_000,
    "deep in an object": '{"images": ' + "[" * 200_000,
    "long number": '{"images": [{"id": 1, "height": ' + "9" * 5000 + "}]}",
    "nothing": "",
    "a list": "[]",
    "a number": '{"images": 3}',
    "box without end": ("bbox", [0, 0, float("inf"), 4]),
    "box that is no number": ("bbox", [0, float("nan"), 4, 4]),
    "box of three": ("bbox", [0, 1, 2]),
    "box too far away": ("bbox", [0, 10**400, 4, 4]),
    "polygon without end": ("segmentation", [[0, 0, 5, float("inf"), 5, 5]]),
    "polygon of very many corners": ("segmentation", [[0, 0, 5, 0, 5, 5] * 30_000]),
    "polygon in a polygon": ("segmentation", [[[0, 0], [5, 0], [5, 5]]]),
    "run of very many digits": ("segmentation", {"size": [SIDE] * 2, "counts": "o" * 10**6}),
    "runs beyond the image": ("segmentation", {"size": [SIDE] * 2, "counts": [10**30]}),
}


def test_annotations_made_to_overflow_get_one_line(folder, tmp_path):
    for name, text in BOMBS.items():
        if not isinstance(text, str):
            document = json.loads((folder / "truth.json").read_text())
            document["annotations"][0][text[0]] = text[1]
            text = json.dumps(document)  # noqa: PLW2901
        (tmp_path / "bad.json").write_text(text)
        bad = call("report", folder / "run", "--truth", tmp_path / "bad.json")
        assert (bad.exit_code, bad.stdout) == (3, ""), (name, bad.output)
        (line,) = bad.stderr.splitlines()
        assert "pass a COCO file with images, annotations and categories" in line


def test_mistakes_of_the_commands_get_one_line(folder, tmp_path):
    right = folder / "truth.json"
    document = json.loads(right.read_text())
    for image in document["images"]:
        image["width"] = 64
    (tmp_path / "large.json").write_text(json.dumps(document))
    none = written(tmp_path / "none.json", {})
    few = "takes at least 99 images with objects, but there are 12 among 12"
    for words, code, said in (
        (("calibrate", "--truth", right, "--level", 0.01, "-o", tmp_path / "x"), 2, few),
        (("report", "--truth", right, "--mark", "logo"), 2, "is no category of the truth; it has"),
        (("report", "--truth", tmp_path / "large.json"), 3, "annotate the images that were expl"),
        (("report", "--truth", none), 3, "has none of the images"),
        (("report", "--truth", right, "--mark", "cell", "--mark", "text"), 2, "every category"),
    ):
        done = fine(words[0], folder / "run", *words[1:], code=code)
        (line,) = done.stderr.splitlines()
        assert said in line


def test_annotations_of_two_images_are_refused(folder, tmp_path):
    """Joined files have ids or names twice, and folders number their images alike."""
    document = json.loads((folder / "truth.json").read_text())
    for part, key in (("images", "id"), ("images", "file_name"), ("categories", "id")):
        entries = [{**one, key: document[part][0][key]} for one in document[part]]
        (tmp_path / "twice.json").write_text(json.dumps({**document, part: entries}))
        told = fine("report", folder / "run", "--truth", tmp_path / "twice.json", code=3)
        assert f"{len(entries)} {part} have the {key} {entries[0][key]}" in told.stderr
    found = explain(reads(CENTRE))
    for place in ("train", "test"):
        (tmp_path / "found" / place).mkdir(parents=True)
        source = {"image": f"{place}/0.png"}
        named = replace(found, settings=found.settings.updated(source=source))
        named.save(tmp_path / "found" / place / "0.npz")
    bare = written(tmp_path / "bare.json", {"0.png": [CELL]})
    train, test = tmp_path / "found" / "train", tmp_path / "found" / "test"
    fine("report", train, "--truth", bare)
    other = written(tmp_path / "other.json", {"test/0.png": [CELL]})
    assert "has none of the images" in fine("report", train, "--truth", other, code=3).stderr
    named.save(test / "0-2.npz")
    told = fine("report", test, "--truth", bare, code=2).stderr
    assert "explains two images named test/0.png" in told
    images = {"a/0.png": np.ones((1, SIDE, SIDE)), "b/0.png": np.ones((1, SIDE, SIDE))}
    stored(reads(CENTRE), images, tmp_path / "run")
    told = fine("report", tmp_path / "run", "--truth", bare, code=3).stderr
    assert "0.png of" in told
    assert "may be a/0.png or b/0.png of" in told


# Clean images, and objects that nobody could find.


def written(path, images, size=(SIDE, SIDE)):
    """Write a COCO file; `images` has the boxes (or segmentations) of each image by name."""
    document = {
        "images": [
            {"id": n, "file_name": name, "height": size[0], "width": size[1]}
            for n, name in enumerate(images)
        ],
        "categories": [{"id": 1, "name": "cell"}],
        "annotations": [
            {"image_id": n, "category_id": 1, "bbox": box, "segmentation": None}
            if isinstance(box, list)
            else {"image_id": n, "category_id": 1, "bbox": [0, 0, 1, 1], "segmentation": box}
            for n, boxes in enumerate(images.values())
            for box in boxes
        ],
    }
    path.write_text(json.dumps(document))
    return path


CELL = [12, 12, 8, 8]
CLEAN = {f"{n}.png": [] if n < 2 else [CELL] for n in range(12)}


def test_objects_carry_the_score_of_images_that_have_them():
    found, lost = explain(reads(CENTRE)), explain(lambda batch: np.zeros(len(batch)))
    images = {str(n): (found, truth() if n % 2 else []) for n in range(12)}
    images |= {"lost": (lost, truth()), "none": (lost, [])}
    report = carriers(images)
    assert report.means["objects"].value == 1.0
    assert [row.image for row in report.images] == ["1", "11", "3", "5", "7", "9"]
    assert report.empty == ("lost",)
    assert report.clean == ("0", "2", "4", "6", "8", "10", "none")
    assert "over 6 images with objects" in repr(report)
    alone = carriers({"a": (found, []), "b": (found, np.zeros((SIDE, SIDE), bool))})
    assert alone.verdict == "no image with objects has findings, so nothing can be said"


def test_objects_outside_the_explained_part_are_not_there():
    crop = hshap.images.Placement((SIDE, SIDE), (2 * SIDE, 2 * SIDE), (0, 0), (SIDE, SIDE))
    found = replace(explain(reads(CENTRE)), placement=crop)
    report = carriers({"in": (found, truth()), "out": (found, truth((40, 40, 50, 50)))})
    assert ([row.image for row in report.images], report.clean) == (["in"], ("out",))
    outside, beside = np.zeros((2, 2 * SIDE, 2 * SIDE), bool)
    outside[40:50, 40:50] = True
    beside[30:40, 30:40] = True
    assert not on_grid(outside, found).any()
    assert np.argwhere(on_grid(beside, found)).tolist() == [[30, 30], [30, 31], [31, 30], [31, 31]]


def test_a_mark_is_judged_on_images_that_have_it():
    rng = np.random.default_rng(0)
    every, text = {}, {}
    for n in range(60):
        image = rng.uniform(0.5, 1.0, (1, SIDE, SIDE))
        if n % 10:
            image[0, :4, :4] = 0.0
        else:
            text[str(n)] = truth(CORNER)
        every[str(n)] = (explain(reads(CORNER, CENTRE), image), truth())
    report = carriers(every, marks={"text": text})
    assert len(report.having("text")) == 6
    assert report.means["text"].value == pytest.approx(0.2, abs=0.02)
    assert report.suspicious == ("text",)
    # Four images are too few for a suspicion, and a mark on none of them has no mean.
    few = dict(list(every.items())[:31])
    assert carriers(few, marks={"text": text, "logo": {}}).suspicious == ()
    assert "logo" not in carriers(few, marks={"logo": {}}).means


def test_report_leaves_clean_images_out_and_says_so(folder, tmp_path):
    half = {name: boxes if int(name[:-4]) % 2 else [] for name, boxes in CLEAN.items()}
    words = ("report", folder / "run", "--truth", written(tmp_path / "half.json", half))
    told = fine(*words)
    assert "5 images with objects and findings" in told.stdout
    assert "images without objects are left out: 7" in told.stderr
    found = json.loads(call(*words, "--json").stdout)
    assert found["means"]["objects"]["value"] == pytest.approx(0.8, abs=0.02)
    assert found["means"]["objects"]["images"] == 5
    assert len(found["without_objects"]) == 7
    assert {row["image"] for row in found["worst_first"]} == {f"{n}.png" for n in (3, 5, 7, 9, 11)}
    assert len(call(*words, "--csv").stdout.splitlines()) == 6


def test_calibrate_leaves_clean_images_out_and_says_so(folder, tmp_path):
    words = ("calibrate", folder / "run", "--truth", written(tmp_path / "two.json", CLEAN))
    out = tmp_path / "calibration.json"
    told = call(*words, "--out", out)
    assert "on images with objects, calibrated on 10 such images" in told.stdout
    assert "images without objects are left out: 2" in told.stdout
    document = json.loads(out.read_text())
    assert (document["images"], document["left_out"]) == (10, 2)
    only = {name: boxes for name, boxes in CLEAN.items() if boxes}
    same = ("calibrate", folder / "run", "--truth", written(tmp_path / "ten.json", only))
    said = call(*same, "--out", tmp_path / "b").stderr
    assert f"an annotated image in {tmp_path / 'ten.json'} are left out: 2" in said
    assert document == {**json.loads((tmp_path / "b").read_text()), "left_out": 2}
    false = call(*words, "--loss", "false-area", "--out", tmp_path / "c")
    assert "images without objects, background or findings are left out: 2" in false.stdout
    few = call(*words[:3], written(tmp_path / "few.json", {**CLEAN, "5.png": [], "6.png": []}))
    assert few.exit_code == 2
    assert "takes at least 9 images with objects, but there are 8 among 12 images" in few.stderr


@pytest.mark.parametrize("command", ["calibrate", "report"])
def test_objects_without_a_pixel_are_not_there(folder, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for number, shown in enumerate(
        (
            [40, 40, 8, 8],
            [-9, 3, 8, 8],
            [4, 4, 0, 0],
            {"size": [SIDE, SIDE], "counts": [SIDE * SIDE]},
            ([40, 40, 48, 40, 48, 48],),
        )
    ):
        images = {**CLEAN, "0.png": [shown], "5.png": [CELL, shown]}
        odd = written(tmp_path / "odd.json", images)
        out = ("--out", f"{number}.json") if command == "calibrate" else ()
        told = fine(command, folder / "run", "--truth", odd, *out)
        assert "pixel in the explained image are left out: 2, the first in 0.png" in told.stderr
        expected = "calibrated on 10 such" if command == "calibrate" else "10 images with objects"
        assert expected in told.stdout


def test_negative_images_with_objects_are_missed(tmp_path):
    images = {f"{n}.png": np.full((1, SIDE, SIDE), float(n > 0)) for n in range(12)}
    stored(reads(CENTRE), images, tmp_path / "run")
    truth_file = written(tmp_path / "truth.json", {name: [CELL] for name in images})
    words = (tmp_path / "run", "--truth", truth_file)
    refused = call("calibrate", *words, "--out", tmp_path / "a.json")
    assert "1 of 12 images with objects have no findings" in refused.stderr
    told = fine("calibrate", *words, "--level", "0.16", "--out", tmp_path / "a.json").stdout
    assert "calibrated on 12 such images" in told
    assert "images with objects and without findings are missed in full: 1" in told
    false = fine("calibrate", *words, "--loss", "false-area", "--out", tmp_path / "b.json").stdout
    assert "calibrated on 11 such images" in false
    assert "missed in full" not in false
    report = fine("report", *words)
    assert "11 images with objects and findings" in report.stdout
    assert "images with objects and without findings are left out: 1" in report.stderr


def test_annotations_of_odd_names_are_found(folder, tmp_path):
    """Tools of Python write a byte that is not UTF-8 as a surrogate; runs have its escape."""
    names = ["\udcff.png", "日本.png", "a\nb.png", "=1.png"]
    stored(reads(CENTRE), dict.fromkeys(names, np.ones((1, SIDE, SIDE))), tmp_path / "run")
    truth_file = written(tmp_path / "truth.json", {name: [CELL] for name in names})
    told = fine("report", tmp_path / "run", "--truth", truth_file, "--json")
    assert json.loads(told.stdout)["images"] == len(names)
    # Annotated images that were not explained are told.
    images = {**CLEAN, "new.png": [CELL], "newer.png": []}
    told = fine("report", folder / "run", "--truth", written(tmp_path / "more.json", images))
    assert "lacks are left out: 1" in told.stderr
    assert "10 images with objects and findings" in told.stdout


@pytest.mark.parametrize("command", ["calibrate", "report"])
def test_memory_holds_the_masks_of_one_image(tmp_path, command):
    side, count, images = 400, 40, 12
    found = explain(reads(CENTRE)).placed((side, side))
    (tmp_path / "found").mkdir()
    for n in range(images):
        named = replace(found, settings=found.settings.updated(source={"image": f"{n}.png"}))
        named.save(tmp_path / "found" / f"{n}.npz")
    boxes = {f"{n}.png": [[150, 150, 9 + k, 9 + k] for k in range(count)] for n in range(images)}
    written(tmp_path / "truth.json", boxes, size=(side, side))
    words = [command, tmp_path / "found", "--truth", tmp_path / "truth.json"]
    words += ["--out", tmp_path / "made.json"] if command == "calibrate" else []
    assert call(*words).exit_code == 0  # libraries are in memory by now
    tracemalloc.start()
    call(*words, *(["--force"] if command == "calibrate" else []))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < images * count * side * side / 4
