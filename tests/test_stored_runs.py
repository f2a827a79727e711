"""`hshap view`, `hshap export` and `hshap report` on run folders and on results of tiles."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
Image = pytest.importorskip("PIL.Image")
from typer.testing import CliRunner

import hshap
from hshap.cli.app import app
from hshap.cli.faults import Refusal
from hshap.cli.inputs.formats import Format
from hshap.cli.inputs.images import Reader
from hshap.cli.runs import stored
from hshap.cli.runs.folder_views import _located, folder_views
from hshap.cli.runs.originals import Originals

MODELS = """
import numpy as np
def brightest(batch):
    score = batch.max(axis=(1, 2, 3))
    return np.stack([score, 1 - score], axis=1)
"""
GIVEN = ("--all", "--baseline", "constant:0", "--partition", "quadtree", "--min-size", 4)
ALL_GREY = "its findings on grey"


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def done(*words, code=0):
    made = call(*words)
    assert made.exit_code == code, made.output + str(made.exception)
    return made


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with four images in two folders, a run of them, and the same explained."""
    folder = tmp_path_factory.mktemp("stored")
    before, name = Path.cwd(), f"models_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    (folder / f"{name}.py").write_text(MODELS)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        for number in range(4):
            array = np.zeros((16, 16, 3), np.uint8)
            array[4:8, 4 * number : 4 * number + 4] = 100 + 30 * number
            Path(f"images/{number % 2}").mkdir(parents=True, exist_ok=True)
            Image.fromarray(array).save(f"images/{number % 2}/cell{number // 2}.png")
        given = ("-m", f"{name}:brightest", *GIVEN, "--target", 0)
        done("run", "images", *given, "-o", "RUN")
        files = sorted(map(str, Path("images").rglob("*.png")))
        done("explain", *files, *given, "-o", "EXPLAINED")
        done("run", "images", *given, "--target", 1, "-o", "TWO")
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))
        sys.modules.pop(name, None)
    return folder


@pytest.fixture
def here(home, tmp_path, monkeypatch):
    """A copy of the runs, with the images at their place, as the current folder."""
    import shutil

    for name in ("RUN", "EXPLAINED", "TWO"):
        shutil.copytree(home / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def views_of(*files, select=None):
    """Return the views of the page of a folder, and the notes about its images."""
    originals = Originals(Reader(Format()))
    views = list(folder_views([Path(file) for file in files], select, originals))
    return views, " ".join(originals.notes)


def test_a_run_becomes_a_page_that_shows_the_files_themselves(here, home):
    views, _ = views_of("RUN")
    assert done("view", "RUN").stdout == "the page is RUN.html\n"
    assert Path("RUN.html").read_text().startswith("<!doctype html>")
    assert [view.name for view in views] == ["cell0.png", "cell1.png"] * 2
    for view, path in zip(views, sorted((home / "images").rglob("*.png")), strict=True):
        assert np.array_equal(np.moveaxis(np.asarray(view.image), 0, -1), Image.open(path))
        assert list(view.explanations) == ["0"]


def test_the_page_of_a_run_has_the_explanations_of_hshap_explain(here, home):
    from_run, _ = views_of("RUN")
    from_files, _ = views_of("EXPLAINED", home / "images")
    assert len(from_run) == len(from_files) == 4
    for one, other in zip(from_run, from_files, strict=True):
        (a,), (b,) = one.explanations.values(), other.explanations.values()
        assert np.array_equal(np.asarray(one.image), np.asarray(other.image))
        assert np.array_equal(a.attribution(), b.attribution())
        assert a.boxes() == b.boxes()


def test_images_that_moved_are_found_in_their_folder(here, home):
    (home / "images").rename(home / "moved")
    try:
        views, told = views_of("RUN")
        assert all((np.asarray(view.image) == 200).all() for view in views)
        assert "not there any more" in told
        views, told = views_of("RUN", home / "moved")
        assert ALL_GREY not in told
        assert not any((np.asarray(view.image) == 200).all() for view in views)
    finally:
        (home / "moved").rename(home / "images")


def test_an_image_that_changed_is_not_shown(here, home):
    path = home / "images/0/cell0.png"
    before = path.read_bytes()
    try:
        Image.fromarray(np.full((16, 16, 3), 9, np.uint8)).save(path)
        views, told = views_of("RUN")
    finally:
        path.write_bytes(before)
    assert "it has changed since it was explained" in told
    assert [bool((np.asarray(v.image) == 200).all()) for v in views] == [True, False, False, False]


def test_a_query_chooses_the_images_and_their_order(here):
    sql = "select image from explanations order by score desc limit 2"
    views, _ = views_of("RUN", select=sql)
    scores = [next(iter(view.explanations.values())).score for view in views]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 2


def test_two_classes_of_a_run_stand_side_by_side(here):
    views, _ = views_of("TWO")
    assert [list(view.explanations) for view in views] == [["0", "1"]] * 4


def test_coco_of_a_run_is_that_of_the_explained_files(here):
    done("export", "RUN", "-f", "coco", "--name", "spot", "-o", "run.json")
    done("export", "EXPLAINED", "-f", "coco", "--name", "spot", "-o", "files.json")
    run, files = (json.loads(Path(name).read_text()) for name in ("run.json", "files.json"))
    assert run["annotations"] == files["annotations"]
    assert run["categories"] == files["categories"]
    assert [one["file_name"] for one in run["images"]] == [
        "0/cell0.png", "0/cell1.png", "1/cell0.png", "1/cell1.png"
    ]  # fmt: skip


def test_coco_of_a_run_has_a_category_for_each_class(here):
    done("export", "TWO", "-f", "coco", "-o", "two.json")
    document = json.loads(Path("two.json").read_text())
    assert [one["name"] for one in document["categories"]] == ["0", "1"]


@pytest.mark.parametrize("kind", ["geojson", "csv", "png", "tiff"])
def test_each_explanation_of_a_run_has_a_file(here, kind):
    done("export", "RUN", "-f", kind, "-o", "maps")
    names = sorted(path.name for path in Path("maps").iterdir())
    assert len(names) == 4
    assert all(name.endswith(kind) and name.startswith(("0-cell", "1-cell")) for name in names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("export", "RUN", "-f", "coco"), "only runs write to"),
        (("export", "RUN", "-f", "coco", "-o", "RUN/coco.json"), "only runs write to"),
        (("view", "RUN", "-o", "RUN/page.html"), "which it is made from"),
        (("view", "RUN", "--select", "select score from explanations"), "no column image"),
        (("view", "RUN", "--select", "drop table x"), "cannot be run"),
        (("view", "RUN", "--select", "select image from explanations limit 0"), "no images"),
        (("view", "RUN", "EXPLAINED/summary.json"), "is no folder"),
        (("view", "EXPLAINED", "--select", "select 1"), "is for run folders"),
        (("view", "empty"), "holds no explanations"),
    ],
)
def test_mistakes_are_told_in_one_line(here, words, message):
    Path("empty").mkdir()
    made = call(*words)
    assert made.exit_code in {2, 3, 4, 5, 6}
    assert message in " ".join(made.stderr.split())
    assert not Path("RUN/coco.json").exists()
    assert not Path("RUN.html").exists()


def test_too_many_images_for_one_page_are_refused_with_the_way_out(here):
    with pytest.raises(Refusal, match=f'more than the 3 .*"{stored.WORST} 3"'):
        stored.stored("RUN", most=3)


def test_a_row_cannot_name_a_file_outside_of_the_folder_of_images(tmp_path):
    images, outside = tmp_path / "images", tmp_path / "secret.png"
    images.mkdir()
    outside.write_bytes(b"secret")
    (images / "link.png").symlink_to(outside)
    for name in ("../secret.png", str(outside), "link.png", "a/../../secret.png", "file:///x.png"):
        one = stored.Stored(tmp_path / "x.npz", lambda: None, image=name)
        assert _located(one, images) is None, name
    (images / "secret.png").write_bytes(b"inside")
    assert _located(one, images) is None
    one = stored.Stored(tmp_path / "x.npz", lambda: None, image="a/secret.png")
    assert _located(one, images) == images / "secret.png"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_in_place_of_an_image_is_not_waited_for(here, home):
    path = home / "images/0/cell0.png"
    before = path.read_bytes()
    path.unlink()
    try:
        os.mkfifo(path)
        _, told = views_of("RUN")
    finally:
        path.unlink()
        path.write_bytes(before)
    assert ALL_GREY in told


@pytest.fixture
def slide(tmp_path, monkeypatch):
    """The result of tiles, and its image."""
    tifffile = pytest.importorskip("tifffile")
    monkeypatch.chdir(tmp_path)
    image = np.zeros((1, 64, 64), np.float32)
    image[0, 40, 21] = 1.0
    tifffile.imwrite("slide.tiff", (image[0] * 255).astype(np.uint8), tile=(16, 16))
    explainer = hshap.Explainer(
        hshap.demo.brightest, baseline=hshap.Constant(0.0), partition=hshap.Bisection(min_size=1)
    )
    found = hshap.explain_tiles(explainer, image, target=0, tiles=hshap.Tiles(side=16))
    found.save("slide.npz")
    return found


def test_a_result_of_tiles_is_exported_and_viewed(slide):
    done("export", "slide.npz", "-f", "coco")
    (one,) = json.loads(Path("slide.json").read_text())["annotations"]
    assert one["bbox"] == [21, 40, 1, 1]
    done("export", "slide.npz", "-f", "geojson")
    assert len(json.loads(Path("slide.geojson").read_text())["features"]) == 1
    done("view", "slide.npz", "slide.tiff")
    assert Path("slide.html").exists()


def test_a_folder_of_tiles_is_viewed_and_exported(slide):
    Path("found").mkdir()
    slide.save("found/slide-0.npz")
    record = {"image": "slide.tiff", "explanations": [{"explanation": "slide-0.npz"}]}
    document = {"hshap": "1", "command": "tiles", "images": [record]}
    Path("found/summary.json").write_text(json.dumps(document))
    done("view", "found")
    assert Path("found.html").exists()
    done("export", "found", "-f", "coco", "-o", "all.json")
    assert len(json.loads(Path("all.json").read_text())["annotations"]) == 1
    Path("slide.tiff").unlink()
    assert "which is not there" in done("view", "found", "--force", code=3).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("view", "slide.npz"), "pass the image after it"),
        (("export", "slide.npz", "-f", "png"), "explains a large image by tiles"),
        (("compare", "slide.npz", "slide.npz"), "explains a large image by tiles"),
    ],
)
def test_uses_that_tiles_have_not_are_refused(slide, words, message):
    made = call(*words)
    assert made.exit_code
    assert message in " ".join(made.stderr.split())


# Folders and lists of others


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.fixture
def small(tmp_path):
    """The folder of a small run."""
    explainer = hshap.Explainer(
        hshap.demo.brightest, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(min_size=2)
    )
    hshap.runs.explain_dataset(
        explainer, np.eye(4).reshape(4, 1, 2, 2), tmp_path / "small", target=0
    )
    return tmp_path / "small"


def shard_of(folder):
    return next((folder / "explanations").glob("*.parquet"))


def uses(folder):
    """Try every way to read a run folder; all errors must be those of hshap."""
    told = []
    for use in (
        lambda run: hshap.runs.verify(run).problems,
        list,
        lambda run: run.query("select * from explanations"),
        lambda run: run.boxes(),
        lambda run: (run.errors, run.batch_difference, run.row_bytes),
    ):
        try:
            told.append(use(hshap.runs.open(folder)))
        except hshap.errors.HshapError as error:
            told.append(str(error))
    return told


@pytest.mark.parametrize("kind", ["pickle", "object array", "empty", "folder"])
def test_a_shard_that_is_replaced_is_named_and_never_run(small, tmp_path, kind):
    exploded, shard = tmp_path / "exploded", shard_of(small)
    shard.unlink()
    if kind == "pickle":
        shard.write_bytes(pickle.dumps(Bomb(exploded)))
    elif kind == "object array":
        with shard.open("wb") as file:
            np.save(file, np.array([Bomb(exploded)], dtype=object), allow_pickle=True)
    elif kind == "empty":
        shard.touch()
    else:
        shard.mkdir()
    told = uses(small)
    assert any(shard.name in line for line in told[0])
    assert shard.name in told[1]
    assert not exploded.exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize("which", ["shard", "run.json", "link"])
def test_a_pipe_in_a_run_folder_is_not_waited_for(small, which):
    path = small / "run.json" if which == "run.json" else shard_of(small)
    path.unlink()
    if which == "link":
        os.mkfifo(small.parent / "pipe")
        path.symlink_to(small.parent / "pipe")
    else:
        os.mkfifo(path)
    told = uses(small)
    assert any(path.name in str(line) for line in told)


ODD = ["null", "1", "[]", '"text"', "{}", '{"schema": []}', "[" * 100_000, "\ufeff{}", "{"]


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("name", ["run.json", "agreement.json", "seal", "claims/x", "whole"])
def test_documents_of_odd_types_are_told_and_nothing_else(small, name, text):
    if name == "seal":
        for seal in (small / "seals").iterdir():
            seal.unlink()
        digest = hashlib.sha256(text.encode()).hexdigest()
        name = f"seals/000000-{digest}.json"
    if name == "whole":  # the right format, and odd values in it
        document = json.loads((small / "run.json").read_text())
        try:
            odd = json.loads(text)
        except (ValueError, RecursionError):
            odd = text
        text, name = json.dumps({**document, "model": odd, "settings": odd}), "run.json"
    (small / name).parent.mkdir(exist_ok=True)
    (small / name).write_text(text, encoding="utf-8")
    told = uses(small)
    if name.startswith("seals"):
        assert any(name in line for line in told[0])
    if name == "run.json":
        assert "run.json" in str(told[0])


HOSTILE = [
    "../secret.npy",
    "..\\secret.npy",
    "C:\\secret.npy",
    "\\\\server\\secret.npy",
    "~/secret.npy",
    "file:///{root}/secret.npy",
    "memory://secret.npy",
    "http://127.0.0.1:9/secret.npy",
    "{root}/secret.npy",
    "folder/secret.npy",
    "link.npy",
    "/dev/zero",
    "pipe.npy",
    "",
    ".",
    "inside/../../secret.npy",
]


def test_paths_of_a_list_never_leave_its_folder(tmp_path):
    explainer = hshap.Explainer(
        hshap.demo.brightest, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(min_size=2)
    )
    home = tmp_path / "home"
    (home / "inside").mkdir(parents=True)
    np.save(home / "good.npy", np.eye(2)[None])
    np.save(tmp_path / "secret.npy", np.eye(2)[None])
    (home / "link.npy").symlink_to(tmp_path / "secret.npy")
    (home / "folder").symlink_to(tmp_path, target_is_directory=True)
    if hasattr(os, "mkfifo"):
        os.mkfifo(home / "pipe.npy")
    names = [name.format(root=tmp_path) for name in HOSTILE]
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    pq.write_table(pa.table({"image": ["good.npy", *names]}), home / "list.parquet")
    run = hshap.runs.explain_dataset(explainer, home / "list.parquet", tmp_path / "run", target=0)
    assert [key.image for key in run.keys] == ["good.npy"]
    assert {row["image"] for row in run.errors} == set(names)
    with pytest.warns(RuntimeWarning, match=r"1 \.parquet"):
        by_folder = hshap.runs.explain_dataset(explainer, home, tmp_path / "other", target=0)
    assert [key.image for key in by_folder.keys] == ["good.npy"]
    assert {path.name for path in tmp_path.iterdir()} == {"home", "secret.npy", "run", "other"}


def test_names_of_images_never_lead_exports_out_of_their_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    explainer = hshap.Explainer(
        hshap.demo.brightest, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(min_size=2)
    )
    names = ["../../x", "/abs", "..\\x", "C:\\x", "a\nb", "..", "CON", "x" * 300, "é/日本"]
    hshap.runs.explain_dataset(
        explainer, dict.fromkeys(names, np.eye(2)[None]), "home/RUN", target=0
    )
    done("export", "home/RUN", "-f", "geojson", "-o", "home/out")
    done("view", "home/RUN")
    assert len(list(Path("home/out").iterdir())) == len(names)
    assert {path.name for path in Path().iterdir()} == {"home"}
    assert {path.name for path in Path("home").iterdir()} == {"RUN", "RUN.html", "out"}


def test_members_of_a_tar_are_read_in_place_alone(tmp_path):
    explainer = hshap.Explainer(
        hshap.demo.brightest, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(min_size=2)
    )
    data = io.BytesIO()
    np.save(data, np.eye(2)[None])
    np.save(tmp_path / "secret.npy", np.eye(2)[None])
    with tarfile.open(tmp_path / "images.tar", "w") as archive:
        for name in ("good.npy", "../out.npy", "/abs.npy"):
            member = tarfile.TarInfo(name)
            member.size = len(data.getvalue())
            archive.addfile(member, io.BytesIO(data.getvalue()))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            member = tarfile.TarInfo(f"odd{kind.decode()}.npy")
            member.type, member.linkname = kind, str(tmp_path / "secret.npy")
            archive.addfile(member)
    run = hshap.runs.explain_dataset(explainer, tmp_path / "images.tar", tmp_path / "run", target=0)
    assert [key.image for key in run.keys] == ["../out.npy", "/abs.npy", "good.npy"]
    assert {path.name for path in tmp_path.iterdir()} == {"images.tar", "secret.npy", "run"}
