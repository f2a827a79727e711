"""`hshap run`, `hshap query` and `hshap verify`: archives from the command line."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from commands import GIVEN, Image, fine, folder_of_user, picture, run, written

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

import hshap

WHOLE = hshap.Explainer(
    lambda batch: batch.max(axis=(1, 2, 3)), hshap.Constant(0.0), hshap.Dyadic(min_size=2)
)


@pytest.fixture
def name(tmp_path, monkeypatch):
    """The name of a module of models in the current folder, next to a folder of five images."""
    with folder_of_user(tmp_path, monkeypatch) as name:
        for number in range(5):
            picture(f"images/{number}.png", 100 + 30 * number, column=2 * number)
        yield name


def archived(name, *words, images=("images",), code=0, target=("--target", 0), model="two"):
    given = ("-m", f"{name}:{model}", "-o", "RUN", *target, *GIVEN, *words)
    return fine("run", *images, *given, code=code)


def counted(table="explanations"):
    done = fine("query", "RUN", f"select count(*) as n from {table}", "--json")  # noqa: S608
    return json.loads(done.stdout)["rows"][0]["n"]


# Runs


def test_a_folder_becomes_a_run_that_goes_on(name):
    done = archived(name)
    assert "5 explanations of 5 images, and 0 failed" in done.stdout
    assert "5 of 5 images (5 explained, 0 negative, 0 failed)" in done.stderr
    found = hshap.runs.open("RUN")
    assert found["3.png"].boxes()[0].score > 0.5
    row = next(found.rows())
    assert row["path"] == str(Path("images/0.png").absolute())
    assert json.loads(row["transform"]) == {"size": [16, 16]}
    assert "5 from before" in archived(name).stderr
    picture("images/5.png")
    archived(name)
    assert counted() == 6
    line = next(line for line in done.stdout.splitlines() if "hshap query" in line)
    fine(*shlex.split(line.partition("hshap ")[2]))


def test_a_run_ends_with_a_page(name):
    done = archived(name, "--page", "page.html", "--json")
    assert json.loads(done.stdout)["page"] == "page.html"
    first = Path("page.html").read_text()
    assert all(f"{number}.png" in first for number in range(5))
    fine("view", "RUN", "--out", "viewed.html")
    assert Path("viewed.html").read_text() == first
    picture("images/5.png")
    # It is replaced.
    assert "the page is page.html" in archived(name, "--page", "page.html").stdout
    assert "5.png" in Path("page.html").read_text()


def test_a_bad_image_is_listed_and_tried_again(name):
    written("images/bad.png", "no")
    done = archived(name, code=7)
    assert "failed: bad.png: bad.png is not an image" in done.stderr
    assert counted("errors") == 1
    picture("images/bad.png")
    archived(name, "--retry-failed")
    assert (counted(), counted("errors")) == (6, 0)


@pytest.mark.parametrize("kind", ["list", "tar", "files", "scan"])
def test_other_sources_are_read(name, kind):
    target, more, count = ("--target", 0), (), 5
    if kind == "list":
        images, target, count = ("list.csv",), (), 2
        written("list.csv", "image,target\nimages/0.png,0\nimages/1.png,1\n")
    elif kind == "tar":
        images = ("all.tar",)
        with tarfile.open("all.tar", "w") as archive:
            archive.add("images")
    elif kind == "files":
        images = sorted(Path("images").iterdir())
    else:
        nibabel = pytest.importorskip("nibabel")
        values = np.zeros((16, 16, 1), np.float32)
        values[4:8, 4:8] = 1
        nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), "images/scan.nii.gz")
        images, more, count = ("images",), ("--frame", 0), 6
    archived(name, *more, images=images, target=target)
    assert counted() == count
    found = hshap.runs.open("RUN")
    if kind == "list":
        assert [key.target for key in found.keys] == ["0", "1"]
    if kind == "scan":
        assert found["scan.nii.gz"].boxes()


def test_the_top_class_is_chosen_for_each_image(name):
    archived(name, target=())
    rows = hshap.runs.open("RUN").query("select image, target, class_index from explanations")
    assert {row["target"] for row in rows} == {"top"}
    assert [row["class_index"] for row in rows] == [1, 0, 0, 0, 0]


def test_a_run_of_other_settings_is_refused(name):
    archived(name)
    assert "another model" in archived(name, model="half", code=2).stderr
    told = archived(name, "--tolerance", 0.3, "--background", "black", code=2).stderr
    assert "another decode.reader.background ('white' there, 'black' here)" in told
    assert "another search.tolerance" in told or "another search (" in told


def test_a_larger_limit_of_pixels_goes_on(name):
    assert "and 0 failed" in archived(name, "--max-pixels", 300).stdout
    picture("images/large.png", size=(20, 20))
    told = archived(name, "--resize", "--max-pixels", 300, code=2).stderr
    assert "another decode.reader.resize" in told
    Path("RUN").rename("SMALL")
    given = ("--size", "16x16", "--resize")
    assert "large.png" in archived(name, *given, "--max-pixels", 300, code=7).stderr
    archived(name, *given, "--max-pixels", 1000, "--retry-failed")
    assert (counted(), counted("errors")) == (6, 0)


def test_an_image_without_a_class_fails_alone(name):
    rows = "image,target\nimages/0.png,0\nimages/1.png,\nimages/2.png,9\nimages/3.png,1\n"
    written("list.csv", rows)
    done = archived(name, images=("list.csv",), target=(), code=7)
    assert "class 9 is out of range: the model has 2 outputs" in done.stderr
    assert counted() == 2
    errors = {row["image"]: row["reason"] for row in hshap.runs.open("RUN").errors}
    assert "no class for this image" in errors["images/1.png"]
    assert "9 is out of range" in errors["images/2.png"]
    written("list.csv", "image,target\nimages/0.png,9\n")
    assert "out of range" in archived(name, images=("list.csv",), target=(), code=2).stderr


def test_rows_of_many_bytes_are_told(name):
    done = archived(name)
    found = hshap.runs.open("RUN")
    size = sum(path.stat().st_size for path in Path("RUN/explanations").iterdir())
    assert found.row_bytes == size / 5
    assert ("more than the usual 5,000" in done.stdout) == (found.row_bytes > 5000)
    Path("RUN").rename("ALL")
    one = archived(name, images=("images/0.png",)).stdout
    assert "more than the usual 5,000" in one


def test_a_query_prints_a_table_json_or_csv(name):
    archived(name)
    sql = "select image, complete from explanations where image < '2' order by image"
    assert "0.png" in fine("query", "RUN", sql).stdout
    assert fine("query", "RUN", sql, "--csv").stdout == "image,complete\n0.png,True\n1.png,True\n"
    rows = json.loads(fine("query", "RUN", sql, "--json").stdout)["rows"]
    assert rows[0] == {"image": "0.png", "complete": True}
    fine("query", "RUN", "select * from explanations", "--json")


def test_verify_checks_digests_and_values(name):
    archived(name)
    done = fine("verify", "RUN")
    assert "1 shard with 5 rows is as written" in done.stdout
    assert "no value was computed again" in done.stdout
    again = ("verify", "RUN", "images", "--json")
    found = json.loads(fine(*again, "-m", f"{name}:two").stdout)
    assert found["problems"] == []
    assert found["values"] > 50
    assert found["largest_difference"] == 0
    fine("verify", "RUN", "--seal", found["seal"])
    fine("verify", "RUN", "--seal", "0" * 64, code=3)
    told = fine(*again, "-m", f"{name}:half", code=3).stderr
    assert "another model" in told
    assert "a coalition value differs by" in told
    shard = next(Path("RUN/explanations").iterdir())
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 255
    shard.write_bytes(data)
    told = fine("verify", "RUN", code=3).stderr
    assert f"shard explanations/{shard.name} was altered" in told


def test_values_of_a_run_of_python_are_verified_there(name):
    hshap.runs.explain_dataset(WHOLE, np.ones((2, 1, 4, 4)), "RUN", target=0)
    fine("verify", "RUN")
    told = fine("verify", "RUN", "images", "-m", f"{name}:two", code=2).stderr
    assert "hshap.runs.verify" in told


def test_findings_of_resized_images_are_in_their_pixels(name):
    array = np.zeros((64, 32, 3), np.uint8)
    array[16:32, 8:16] = 255
    Image.fromarray(array).save("large.png")
    archived(name, "--size", "16x16", "--resize", images=("large.png",))
    (row,) = hshap.runs.open("RUN")
    assert row.placement.shape == (64, 32)
    (found,) = row.boxes()
    assert (found.start, found.stop) == ((16, 8), (32, 16))
    done = fine("query", "RUN", "select boxes from explanations", "--json")
    assert json.loads(done.stdout)["rows"][0]["boxes"][0]["start"] == [16, 8]


# Files that a run does not read

LARGE = ["b.svs", "c.mrxs", "d.btf", "deeper/a.NDPI", "e.zarr"]


@pytest.fixture
def mixed(name):
    """A folder of images with files of other kinds, and the name of the module of models."""
    for file in ("b.svs", "deeper/a.NDPI", "c.mrxs", "d.btf", "notes.txt", ".hidden.svs"):
        written(f"images/{file}", "not read")
    for file in ("Slidedat.ini", "Data0000.dat"):
        written(f"images/c/{file}", "part of c.mrxs")
    for file in (".zgroup", ".zattrs", "0/.zarray", "0/0"):
        written(f"images/e.zarr/{file}", "{}")
    return name


def test_large_images_are_errors_with_the_way_out(mixed):
    done = archived(mixed, "--workers", 2, code=7)
    found = hshap.runs.open("RUN")
    assert {row["image"] for row in found.errors} == set(LARGE)
    assert all("hshap tiles" in row["reason"] for row in found.errors)
    assert len(found) == 5
    assert "failed: b.svs: b.svs is a large image" in done.stderr
    assert "10 of 10 images (5 explained, 0 negative, 5 failed)" in done.stderr
    assert "images: 1 entry is not an image that is read here, and left out (1 .txt)" in done.stderr
    assert "10 from before" in archived(mixed, code=7).stderr
    assert counted("errors") == 5
    fine("verify", "RUN")
    Path("RUN").rename("FOLDER")
    with tarfile.open("images.tar", "w") as archive:
        archive.add("images", arcname=".")
    done = archived(mixed, images=("images.tar",), code=7)
    assert {row["image"] for row in hshap.runs.open("RUN").errors} >= set(LARGE)
    assert "left out (1 .txt)" in done.stderr


def test_large_images_alone_are_refused(name):
    for slide in ("a.svs", "b.svs"):
        written(f"slides/{slide}", "not read")
    told = archived(name, images=("slides",), code=2).stderr
    assert "a.svs is a large image" in told
    assert "hshap tiles, or run --tiles, and 1 more like it" in told
    assert not Path("RUN").exists()
    for number in range(30):  # as many do not end a run of others
        written(f"images/{number:02d}.svs", "not read")
    archived(name, code=7)
    assert (counted(), counted("errors")) == (5, 30)


@pytest.mark.parametrize("command", ["explain", "cost"])
def test_other_commands_skip_large_images(mixed, command):
    words = ["images", "-m", f"{mixed}:two", "--target", 0, *GIVEN]
    words += ["-o", "found"] if command == "explain" else []
    told = fine(command, *words, code=7).stderr
    for large in ("b.svs", "c.mrxs", "d.btf", "e.zarr"):
        assert f"{Path('images', large)} is a large image" in told
    left = "images: 2 entries are not images that are read here, and left out (1 folder, 1 .txt)"
    assert told.count(left) == 1


def test_python_reads_pictures_by_a_decoder_alone(tmp_path):
    written(tmp_path / "a.png", "7")
    np.save(tmp_path / "a.npy", np.ones((1, 4, 4)))
    with pytest.warns(RuntimeWarning, match=r"1 entry is not an image .*\(1 \.png\)"):
        hshap.runs.explain_dataset(WHOLE, tmp_path, tmp_path / ".run", target=0)
    (tmp_path / "a.npy").unlink()
    decode = lambda data, _: np.full((1, 4, 4), float(data))
    made = hshap.runs.explain_dataset(WHOLE, tmp_path, tmp_path / ".b", target=0, decode=decode)
    assert made["a.png"].score == 7


# Names of files

ODD = (
    *(b"caf\xe9.png", b"\xff\xfe.png", b"a\nb.png", b"e\x1b[2J.png", b"q\"'$(x).png", b"--out.png"),
    *("r\u202egnp.png".encode(), "\u2028.png".encode(), "\u6f22".encode() * 83 + b".png"),
    *(b"x" * 251 + b".png", b"#a?b%41.png"),
)
TEXTS = {b"caf\xe9.png": r"caf\xe9.png", b"\xff\xfe.png": r"\xff\xfe.png"}


@pytest.fixture
def odd(name):
    """Odd names of images as text, in the folder `images`; the i-th image has the score i / 255."""
    for number, file in enumerate(ODD, 1):
        try:
            picture("made.png", number).rename(os.fsdecode(b"images/" + file))
        except OSError:
            pytest.skip("the file system refuses such names")
    return {TEXTS.get(file) or file.decode(): number for number, file in enumerate(ODD, 1)}


def archive(kind):
    """Return the images of the folder as another source of a run."""
    if kind == "list.csv":
        rows = [b'"images/%s",0\n' % file.replace(b'"', b'""') for file in ODD]
        written(kind, b"image,label\n" + b"".join(rows))
    if kind == "list.parquet":
        import pyarrow as pa
        from pyarrow import parquet

        paths = pa.array([b"images/" + file for file in ODD]).view(pa.string())
        parquet.write_table(pa.table({"image": paths}), kind)
    if kind == "images.tar":
        with tarfile.open(kind, "w", format=tarfile.GNU_FORMAT) as tar:
            tar.add("images")
    return kind


@pytest.mark.parametrize("kind", ["images", "list.csv", "list.parquet", "images.tar"])
def test_odd_names_cost_no_image(name, odd, kind):
    source = archive(kind)
    archived(name, images=(source,))
    made = hshap.runs.open("RUN")
    start = "" if kind == "images" else "images/"
    for text, number in odd.items():
        assert made[f"{start}{text}"].score == pytest.approx(number / 255), text
    assert "from before" in archived(name, images=(source,)).stderr
    fine("verify", "RUN", source, "-m", f"{name}:two")
    assert r"caf\xe9.png" in fine("query", "RUN", "select image from explanations", "--csv").stdout


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("command", ["run", "explain"])
def test_pages_find_images_of_odd_names(name, odd, command):
    fine(command, "images", "-m", f"{name}:two", "-o", "OUT", "--target", 0, *GIVEN)
    for images in ((), ("images",)):
        # An image that is not found is told, and shown as grey.
        assert fine("view", "OUT", *images, "-o", "page.html", "--force").stderr == ""
    assert json.dumps(r"caf\xe9.png")[1:-1] in Path("page.html").read_text("utf-8")
    for kind in ("coco", "cvat"):
        fine("export", "OUT", "--format", kind, "-o", kind)
    images = json.loads(Path("coco").read_text())["images"]
    assert {Path(image["file_name"]).name for image in images} >= set(odd)
    drawn = ET.parse("cvat")  # noqa: S314, our own
    assert len(drawn.findall("image")) == len(odd) + 5


def test_tiles_of_odd_names_are_explained(name):
    file = os.fsdecode(b"s\xe9\n.npy")
    np.save("made.npy", np.ones((3, 32, 32), np.float32))
    Path("made.npy").rename(file)
    words = ("-m", f"{name}:two", "--baseline", "constant:0", "--target", 0)
    fine("tiles", file, *words, "-o", "TILES", "--side", 16)
    odd = os.fsdecode(b"RUN\xff")  # a run folder may have any name
    done = fine("run", file, file, *words, "-o", odd, "--tiles", 16, "--json")
    assert json.loads(done.stdout)["out"] == r"RUN\xff"
    fine("query", odd, "select count(*) from explanations")
    for folder in ("TILES", odd):
        fine("view", folder, "-o", "page.html", "--force")
        assert r"s\\xe9\\n.npy" in Path("page.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"image\n\nimages/0.png\n,\n", ["the list has no path in this row"]),
        (b"image\nimages/0.png\nimages/no\xfa.png\n", [r"images/no\xfa.png does not exist"]),
        (b"image,label\nimages/0.png,0,more\nimages/1.png\n", []),
    ],
)
def test_rows_of_a_list_fail_alone(name, text, told):
    written("list.csv", text)
    done = archived(name, images=("list.csv",), code=7 if told else 0)
    assert all(line in done.stderr for line in told)
    assert "images/0.png" in {key.image for key in hshap.runs.open("RUN").keys}


@pytest.mark.parametrize(
    ("command", "package"),
    [("run", "pyarrow"), ("run", "duckdb"), ("serve", "starlette"), ("explain", "matplotlib")],
)
def test_a_missing_package_is_named_before_anything_is_written(name, monkeypatch, command, package):
    monkeypatch.setitem(sys.modules, package, None)
    before = set(Path().rglob("*"))
    done = run(command, "images", "-m", f"{name}:two", "-o", "OUT", "-t", 0)
    assert f"hshap {command} needs {package}: pip install" in done.stderr
    assert done.exit_code == 6
    assert set(Path().rglob("*")) == before
