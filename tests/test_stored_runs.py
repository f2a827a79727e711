"""`hshap view`, `hshap export` and `hshap report` on run folders and on results of tiles."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from commands import GIVEN, Image, fine, folder_of_user, picture, written

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
import pyarrow.parquet as pq

import hshap
from hshap.cli.faults import Refusal
from hshap.cli.inputs.formats import Format
from hshap.cli.inputs.images import Reader
from hshap.cli.runs import stored
from hshap.cli.runs.folder_views import _located, folder_views
from hshap.cli.runs.originals import Originals

ALL_GREY = "its findings on grey"
SMALL = hshap.Explainer(
    hshap.demo.brightest, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(min_size=2)
)
DOT = np.eye(2)[None]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with four images in two folders, a run of them, and the same explained."""
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch, folder_of_user(folder, patch) as name:
        for number in range(4):
            file = f"images/{number % 2}/cell{number // 2}.png"
            picture(file, 100 + 30 * number, column=4 * number)
        given = ("-m", f"{name}:two", *GIVEN, "--target", 0)
        fine("run", "images", *given, "-o", "RUN")
        fine("explain", *sorted(Path("images").rglob("*.png")), *given, "-o", "EXPLAINED")
        fine("run", "images", *given, "--target", 1, "-o", "TWO")
    return folder


@pytest.fixture
def here(home, tmp_path, monkeypatch):
    """A copy of the runs, with the images at their place, as the current folder."""
    for name in ("RUN", "EXPLAINED", "TWO"):
        shutil.copytree(home / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def views_of(*files, select=None):
    """Return the views of the page of a folder, and the notes about its images."""
    originals = Originals(Reader(Format()))
    views = list(folder_views([Path(file) for file in files], select, originals))
    return views, " ".join(originals.notes)


def test_a_page_of_a_run_shows_the_files(here, home):
    views, _ = views_of("RUN")
    assert fine("view", "RUN").stdout == "the page is RUN.html\n"
    assert Path("RUN.html").read_text().startswith("<!doctype html>")
    assert [view.name for view in views] == ["cell0.png", "cell1.png"] * 2
    for view, path in zip(views, sorted((home / "images").rglob("*.png")), strict=True):
        assert np.array_equal(np.moveaxis(np.asarray(view.image), 0, -1), Image.open(path))
        assert list(view.explanations) == ["0"]
    from_files, _ = views_of("EXPLAINED", home / "images")
    assert len(views) == len(from_files) == 4
    for one, other in zip(views, from_files, strict=True):
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


@pytest.mark.parametrize("kind", ["changed", "pipe"])
def test_an_image_that_changed_is_not_shown(here, home, kind):
    path = home / "images/0/cell0.png"
    before = path.read_bytes()
    path.unlink()
    try:
        if kind == "pipe":  # which is not waited for
            os.mkfifo(path)
        else:
            Image.fromarray(np.full((16, 16, 3), 9, np.uint8)).save(path)
        views, told = views_of("RUN")
    finally:
        path.unlink()
        path.write_bytes(before)
    assert ALL_GREY in told
    assert kind == "pipe" or "it has changed since it was explained" in told
    assert [bool((np.asarray(v.image) == 200).all()) for v in views] == [True, False, False, False]


def test_a_query_chooses_images_and_their_order(here):
    sql = "select image from explanations order by score desc limit 2"
    views, _ = views_of("RUN", select=sql)
    scores = [next(iter(view.explanations.values())).score for view in views]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 2
    with pytest.raises(Refusal, match=f'more than the 3 .*"{stored.WORST} 3"'):
        stored.stored("RUN", most=3)


def test_exports_of_a_run_are_those_of_files(here):
    fine("export", "RUN", "-f", "coco", "--name", "spot", "-o", "run.json")
    fine("export", "EXPLAINED", "-f", "coco", "--name", "spot", "-o", "files.json")
    run, files = (json.loads(Path(name).read_text()) for name in ("run.json", "files.json"))
    assert run["annotations"] == files["annotations"]
    assert run["categories"] == files["categories"]
    names = ["0/cell0.png", "0/cell1.png", "1/cell0.png", "1/cell1.png"]
    assert [one["file_name"] for one in run["images"]] == names
    for kind in ("geojson", "png", "tiff"):
        fine("export", "RUN", "-f", kind, "-o", kind)
        made = sorted(path.name for path in Path(kind).iterdir())
        assert len(made) == 4
        assert all(file.endswith(kind) and file.startswith(("0-cell", "1-cell")) for file in made)


def test_classes_of_a_run_stand_side_by_side(here):
    views, _ = views_of("TWO")
    assert [list(view.explanations) for view in views] == [["0", "1"]] * 4
    fine("export", "TWO", "-f", "coco", "-o", "two.json")
    document = json.loads(Path("two.json").read_text())
    assert [one["name"] for one in document["categories"]] == ["0", "1"]


def test_a_row_names_no_file_elsewhere(tmp_path):
    images, outside = tmp_path / "images", tmp_path / "secret.png"
    images.mkdir()
    outside.write_bytes(b"secret")
    (images / "link.png").symlink_to(outside)

    def found(name):
        return _located(stored.Stored(tmp_path / "x.npz", lambda: None, image=name), images)

    for name in ("../secret.png", str(outside), "link.png", "a/../../secret.png", "file:///x.png"):
        assert found(name) is None, name
    (images / "secret.png").write_bytes(b"inside")
    assert found("a/secret.png") == images / "secret.png"


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
    found = hshap.large.explain_tiles(explainer, image, target=0, tiles=hshap.large.Tiles(side=16))
    found.save("slide.npz")
    return found


def test_a_result_of_tiles_is_exported_and_viewed(slide):
    fine("export", "slide.npz", "-f", "coco")
    (one,) = json.loads(Path("slide.json").read_text())["annotations"]
    assert one["bbox"] == [21, 40, 1, 1]
    fine("export", "slide.npz", "-f", "geojson")
    assert len(json.loads(Path("slide.geojson").read_text())["features"]) == 1
    fine("view", "slide.npz", "slide.tiff")
    assert Path("slide.html").exists()
    Path("found").mkdir()
    slide.save("found/slide-0.npz")
    record = {"image": "slide.tiff", "explanations": [{"explanation": "slide-0.npz"}]}
    document = {"hshap": "1", "command": "tiles", "images": [record]}
    written("found/summary.json", json.dumps(document))
    fine("view", "found")
    assert Path("found.html").exists()
    fine("export", "found", "-f", "coco", "-o", "all.json")
    assert len(json.loads(Path("all.json").read_text())["annotations"]) == 1
    Path("slide.tiff").unlink()
    assert "which is not there" in fine("view", "found", "--force", code=3).stderr


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
    images = np.eye(4).reshape(4, 1, 2, 2)
    hshap.runs.explain_dataset(SMALL, images, tmp_path / "small", target=0)
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


@pytest.mark.parametrize("kind", ["pickle", "object array", "empty", "folder", "pipe", "link"])
def test_a_replaced_shard_is_named_and_never_run(small, tmp_path, kind):
    exploded, shard = tmp_path / "exploded", shard_of(small)
    shard.unlink()
    if kind == "pickle":
        shard.write_bytes(pickle.dumps(Bomb(exploded)))
    elif kind == "object array":
        with shard.open("wb") as file:
            np.save(file, np.array([Bomb(exploded)], dtype=object), allow_pickle=True)
    elif kind == "empty":
        shard.touch()
    elif kind == "folder":
        shard.mkdir()
    else:  # a pipe is not waited for
        os.mkfifo(tmp_path / "pipe")
        shard.symlink_to(tmp_path / "pipe") if kind == "link" else os.mkfifo(shard)
    for place in ("explanations", "errors", "claims", "seals", "."):
        written(small / place / "bomb.pkl", pickle.dumps(Bomb(exploded)))
    told = uses(small)
    assert any(shard.name in line for line in told[0])
    assert shard.name in str(told)
    assert not exploded.exists()


ODD = ["null", "1", "[]", '"text"', "{}", '{"schema": []}', "[" * 100_000, "\ufeff{}", "{"]


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:12])
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
    *(
        "../secret.npy",
        "..\\secret.npy",
        "C:\\secret.npy",
        "\\\\server\\secret.npy",
        "~/secret.npy",
    ),
    *("file:///{root}/secret.npy", "memory://secret.npy", "http://127.0.0.1:9/secret.npy"),
    *("{root}/secret.npy", "folder/secret.npy", "link.npy", "/dev/zero", "pipe.npy", "", "."),
    *("inside/../../secret.npy", "bomb.npy"),
]


def test_paths_of_a_list_never_leave_its_folder(tmp_path):
    home = tmp_path / "home"
    (home / "inside").mkdir(parents=True)
    np.save(home / "good.npy", DOT)
    np.save(tmp_path / "secret.npy", DOT)
    bomb = np.array([Bomb(tmp_path / "exploded")], dtype=object)
    np.save(home / "bomb.npy", bomb, allow_pickle=True)
    (home / "link.npy").symlink_to(tmp_path / "secret.npy")
    (home / "folder").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(home / "pipe.npy")
    names = [name.format(root=tmp_path) for name in HOSTILE]
    pq.write_table(pa.table({"image": ["good.npy", *names]}), home / "list.parquet")
    run = hshap.runs.explain_dataset(SMALL, home / "list.parquet", tmp_path / "run", target=0)
    assert [key.image for key in run.keys] == ["good.npy"]
    assert {row["image"] for row in run.errors} == set(names)
    with pytest.warns(RuntimeWarning, match=r"1 \.parquet"):
        by_folder = hshap.runs.explain_dataset(SMALL, home, tmp_path / "other", target=0)
    assert [key.image for key in by_folder.keys] == ["good.npy"]
    assert {path.name for path in tmp_path.iterdir()} == {"home", "secret.npy", "run", "other"}


def test_names_never_lead_exports_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["../../x", "/abs", "..\\x", "C:\\x", "a\nb", "..", "CON", "x" * 300, "é/日本"]
    hshap.runs.explain_dataset(SMALL, dict.fromkeys(names, DOT), "home/RUN", target=0)
    fine("export", "home/RUN", "-f", "geojson", "-o", "home/out")
    fine("view", "home/RUN")
    assert len(list(Path("home/out").iterdir())) == len(names)
    assert {path.name for path in Path().iterdir()} == {"home"}
    assert {path.name for path in Path("home").iterdir()} == {"RUN", "RUN.html", "out"}


def npy(array):
    data = io.BytesIO()
    np.save(data, array)
    return data.getvalue()


def pack(path, members):
    """Write a tar of names, kinds and data."""
    with tarfile.open(path, "w") as archive:
        for name, kind, data in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(data), "secret.npy"
            archive.addfile(member, io.BytesIO(data))


def test_members_of_a_tar_are_read_in_place(tmp_path):
    np.save(tmp_path / "secret.npy", DOT)
    good = [(name, tarfile.REGTYPE, npy(DOT)) for name in ("good.npy", "../out.npy", "/abs.npy")]
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
    pack(tmp_path / "images.tar", [*good, *((f"{k.decode()}.npy", k, b"") for k in kinds)])
    run = hshap.runs.explain_dataset(SMALL, tmp_path / "images.tar", tmp_path / "run", target=0)
    assert [key.image for key in run.keys] == ["../out.npy", "/abs.npy", "good.npy"]
    assert {path.name for path in tmp_path.iterdir()} == {"images.tar", "secret.npy", "run"}


# Lists and archives made to attack: they are opened in a process of little memory

OPENED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
from hshap.errors import ArgumentError
from hshap.runs.sources import as_source
for name in sys.argv[1:]:
    try:
        source = as_source(name)
    except ArgumentError as error:
        print(name, "refused:", error)
        continue
    for item in source.items():
        try:
            print(name, item.name, source.read(item).image().shape)
        except (ArgumentError, OSError, ValueError) as error:
            print(name, item.name, "fails:", error)
"""


def tar_header(name, size, kind=b"0"):
    """Return the header of a member that announces a size, also one below 0."""
    header = bytearray(tarfile.TarInfo(name).tobuf(format=tarfile.USTAR_FORMAT)[:512])
    header[124:136], header[156:157] = tarfile.itn(size, 12, tarfile.GNU_FORMAT), kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


TARS = {
    "below-0.tar": (tar_header("a.npy", -1024), "do not follow each other"),
    "name-below-0.tar": (tar_header("././@LongLink", -512, b"L"), "a header of -512 bytes"),
    "name.tar": (tar_header("././@LongLink", 50 * 2**30, b"L"), "a header of 53687091200"),
    "header.tar": (tar_header("x", 50 * 2**30, b"x"), "a header of 53687091200"),
    "shared.tar": (tar_header("x", 50 * 2**30, b"g"), "a header of 53687091200"),
    "headers.tar": (tar_header("x", 0, b"x") * 5000, "refused: dataset='headers.tar'"),
}
LISTS = {
    "long.parquet": "has a text of 1000000 bytes in 'image'",
    "many.parquet": "has more than 20000000 rows; split it",
    "lists.parquet": "has lists in 'image'",
    "cut.parquet": "is not a Parquet file that can be read",
    "long.csv": "is not a CSV file (field larger than field limit",
    "huge.csv": "huge.csv has 53687091200 bytes, more than 1073741824",
    "digits.csv": "a.npy fails: a.npy does not exist",  # int() would raise: it names a class
    "pipe.tar": "is not a regular file",
}


def made_to_attack():
    pack("good.tar", [("good.npy", tarfile.REGTYPE, npy(np.ones((1, 4, 4))))])
    for name, (head, _) in TARS.items():
        with Path(name).open("wb") as file:
            file.write(head + Path("good.tar").read_bytes())
            file.truncate(60 * 2**30)  # a hole, which takes no disk
    repeated = pa.array(np.zeros(10**6, np.int32))
    long = pa.DictionaryArray.from_arrays(repeated, ["x" * 10**6])  # a terabyte in 50 kB
    many = pa.DictionaryArray.from_arrays(pa.array(np.zeros(21 * 10**6, np.int8)), ["a"])
    for name, column in {"long": long, "many": many, "lists": [["a"]]}.items():
        pq.write_table(pa.table({"image": column}), f"{name}.parquet")
    written("cut.parquet", Path("lists.parquet").read_bytes()[:-40] + b"PAR1")
    written("long.csv", "image\n" + "x" * 10**6 + "\n")
    written("digits.csv", f"image,label\na.npy,{'9' * 5000}\n")
    with Path("huge.csv").open("wb") as file:
        file.truncate(50 * 2**30)
    os.mkfifo("pipe.tar")


def test_sources_made_to_attack_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_to_attack()
    array, memory = npy(np.ones((1, 4, 4))), io.BytesIO()
    huge = np.lib.format.header_data_from_array_1_0(np.zeros((1, 1, 1)))
    np.lib.format.write_array_header_1_0(memory, {**huge, "shape": (1, 10**6, 10**6)})
    odd = [
        ("good.npy", tarfile.REGTYPE, array),
        ("link.npy", tarfile.SYMTYPE, b""),
        ("pipe.npy", tarfile.FIFOTYPE, b""),
        ("sparse.npy", tarfile.GNUTYPE_SPARSE, b""),
        ("announced.npy", tarfile.REGTYPE, memory.getvalue() + array[128:]),
        ("cut.npy", tarfile.REGTYPE, array[:40]),
        ("last.npy", tarfile.REGTYPE, array),
    ]
    pack("odd.tar", odd)
    done = subprocess.run(  # noqa: S603, our own program
        [sys.executable, "-c", OPENED, *TARS, *LISTS, "odd.tar"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.stderr == ""
    told = {name: [] for name in (*TARS, *LISTS, "odd.tar")}
    for line in done.stdout.splitlines():
        name, _, rest = line.partition(" ")
        told[name].append(rest)
    for name, expected in {**{name: said for name, (_, said) in TARS.items()}, **LISTS}.items():
        (line,) = told[name]
        assert expected in line
    members = {line.split()[0]: line for line in told["odd.tar"]}  # odd ones fail alone
    assert members["good.npy"] == "good.npy (1, 4, 4)"
    assert members["last.npy"] == "last.npy (1, 4, 4)"
    assert "sparse member of odd.tar; pack it without --sparse" in members["sparse.npy"]
    assert "does not hold the (1, 1000000, 1000000) numbers" in members["announced.npy"]
    assert "fails:" in members["cut.npy"]
    assert not {"link.npy", "pipe.npy"} & set(members)
