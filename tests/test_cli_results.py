"""`hshap view` and `hshap export`: what becomes of explanations in files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import demo_network, fine, folder_of_user, picture, pixels, written

pytest.importorskip("matplotlib")
stats = pytest.importorskip("scipy.stats")

import hshap

FOUND = "a/small.npz", "b/small.npz"


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """Two explanations of one image by the command, which many tests start from."""
    folder = tmp_path_factory.mktemp("explained")
    with pytest.MonkeyPatch.context() as patch, folder_of_user(folder, patch) as name:
        picture("small.png")
        for out, size in (("a", 4), ("b", 8)):
            words = ("-m", f"{name}:brightest", "--baseline", "constant:0")
            more = ("--min-size", size, "--partition", "bisection", "--out", out)
            fine("explain", "small.png", *words, *more)
    return folder


@pytest.fixture
def here(explained, tmp_path, monkeypatch):
    shutil.copytree(explained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("here")
def test_view_makes_a_page_once(monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    done = fine("view", FOUND[0], "small.png", "--open")
    assert "a/small.html" in done.stdout
    assert opened[0].startswith("file://")
    assert "small.png" in Path("a/small.html").read_text()
    fine("view", FOUND[0], code=5)
    fine("view", FOUND[0], "--force")
    picture("tiny.png", size=(8, 8))
    refused = fine("view", FOUND[0], "tiny.png", "--out", "x.html", code=4)
    assert "the explanation is of 16 x 16" in refused.stderr
    fine("view", FOUND[0], "tiny.png", "--out", "x.html", "--resize")


KINDS = ["coco", "geojson", "png", "tiff", pytest.param("csv", marks=pytest.mark.frameworks)]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("kind", KINDS)
def test_exports_are_what_other_tools_read(kind):
    file = Path(json.loads(fine("export", FOUND[0], "-f", kind, "--json").stdout)["file"])
    if kind == "coco":
        document = json.loads(file.read_text())
        assert document["images"][0]["file_name"] == "small.png"
        assert [one["bbox"] for one in document["annotations"]] == [[4, 4, 4, 4]]
    elif kind == "geojson":
        assert json.loads(file.read_text())["type"] == "FeatureCollection"
    elif kind == "csv":
        assert len(file.read_text().splitlines()) == 2
    else:
        heat = hshap.Explanation.load(FOUND[0]).coefficients()
        assert np.array_equal(pixels(file) > 0, heat > 0)
    fine("export", FOUND[0], "--format", kind, code=5)
    assert Path("a/small.png").stat().st_size > 1000  # explain's own picture is still there


@pytest.mark.usefixtures("blank_pictures")
def test_classes_are_categories_of_one_coco_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written("model.onnx", demo_network())
    for name in ("one", "other"):
        picture(f"images/{name}.png", size=(100, 120))
    words = ("-m", "model.onnx", "--target", 0, "--target", 1, "--min-size", 50, "--out", "both")
    fine("explain", "images", *words)
    fine("export", "both", "--format", "coco")
    document = json.loads(Path("both/coco.json").read_text())
    assert len(document["images"]) == 2
    assert len(document["categories"]) == 2
    used = {(each["image_id"], each["category_id"]) for each in document["annotations"]}
    assert used <= {(image, category) for image in (1, 2) for category in (1, 2)}
    fine("export", "both", "--format", "geojson", "--out", "shapes")
    names = {file.stem for file in Path("both").glob("*.npz")}
    assert {file.stem for file in Path("shapes").glob("*.geojson")} == names
    refused = fine("export", "both", "-f", "coco", "--name", "x", "--out", "y.json", code=2)
    assert "leave out --name" in refused.stderr


@pytest.mark.usefixtures("here")
def test_view_measures_the_agreement_of_two_explanations():
    told = json.loads(fine("view", *FOUND, "--json").stdout)["agreement"]
    # A leaf of 4 x 4 pixels in the one, and of 8 x 8 around it in the other.
    assert told["iou"] == pytest.approx(16 / 64)
    assert told["same_leaves"] == 0
    maps = [hshap.Explanation.load(file).coefficients().ravel() for file in FOUND]
    assert told["rank_correlation"] == pytest.approx(stats.spearmanr(*maps).statistic)
    assert "rank correlation" in fine("view", *FOUND, "--force").stdout


def test_two_empty_explanations_agree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    explainer = hshap.Explainer(
        lambda batch: np.zeros(len(batch)), hshap.Constant(0.0), hshap.Dyadic(2)
    )
    explainer.explain(np.ones((1, 4, 4)), 0).save("empty.npz")
    shutil.copy("empty.npz", "same.npz")
    told = json.loads(fine("view", "empty.npz", "same.npz", "--json").stdout)["agreement"]
    assert (told["iou"], told["rank_correlation"]) == (1, None)
