"""`hshap run`, `hshap query` and `hshap verify`: archives from the command line."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
Image = pytest.importorskip("PIL.Image")
from typer.testing import CliRunner

import hshap
from hshap.cli.app import app

MODELS = """
import numpy as np
def brightest(batch):
    score = batch.max(axis=(1, 2, 3))
    return np.stack([score, 1 - score], axis=1)
def other(batch):
    return brightest(batch) * 0.5
"""
GIVEN = ("--all", "--baseline", "constant:0", "--partition", "quadtree", "--min-size", 4)


@pytest.fixture
def name(tmp_path, monkeypatch):
    """The name of a module of models in the current folder, next to a folder of five images."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("images").mkdir()
    for number in range(5):
        array = np.zeros((16, 16, 3), np.uint8)
        array[4:8, 2 * number : 2 * number + 4] = 100 + 30 * number
        Image.fromarray(array).save(f"images/{number}.png")
    name = f"models_{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}"
    Path(f"{name}.py").write_text(MODELS)
    yield name
    sys.modules.pop(name, None)


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def run(name, *words, images=("images",), code=0, target=("--target", 0)):
    done = call("run", *images, "-m", f"{name}:brightest", "-o", "RUN", *target, *GIVEN, *words)
    assert done.exit_code == code, done.stderr
    return done


def counted(table="explanations"):
    done = call("query", "RUN", f"select count(*) as n from {table}", "--json")  # noqa: S608
    return json.loads(done.stdout)["rows"][0]["n"]


def test_a_folder_becomes_a_run(name):
    done = run(name)
    assert "5 explanations of 5 images, and 0 failed" in done.stdout
    assert "5 of 5 images (5 explained, 0 negative, 0 failed)" in done.stderr
    assert counted() == 5
    found = hshap.runs.open("RUN")
    assert found["3.png"].boxes()[0].score > 0.5
    row = next(found.rows())
    assert row["path"] == str(Path("images/0.png").absolute())
    assert json.loads(row["transform"]) == {"size": [16, 16]}


def test_the_same_command_goes_on(name):
    run(name)
    assert "5 from before" in run(name).stderr
    Path("images/5.png").write_bytes(Path("images/4.png").read_bytes())
    run(name)
    assert counted() == 6


def test_a_run_ends_with_a_page(name):
    done = run(name, "--page", "page.html", "--json")
    assert json.loads(done.stdout)["page"] == "page.html"
    first = Path("page.html").read_text()
    assert all(f"{number}.png" in first for number in range(5))
    call("view", "RUN", "--out", "viewed.html")
    assert Path("viewed.html").read_text() == first
    Path("images/5.png").write_bytes(Path("images/4.png").read_bytes())
    assert "the page is page.html" in run(name, "--page", "page.html").stdout  # it is replaced
    assert "5.png" in Path("page.html").read_text()


def test_a_page_that_cannot_be_written_is_told_before_the_run(name):
    Path("notes.html").write_text("mine")
    for page, code in (("notes.html", 5), ("RUN/page.html", 2), ("images", 5)):
        assert "--page" in run(name, "--page", page, code=code).stderr
    assert not Path("RUN").exists()
    assert Path("notes.html").read_text() == "mine"


def test_a_bad_image_is_listed_and_tried_again_on_request(name):
    Path("images/bad.png").write_text("no")
    done = run(name, code=7)
    assert "failed: bad.png: bad.png is not an image" in done.stderr
    assert counted("errors") == 1
    Path("images/bad.png").write_bytes(Path("images/4.png").read_bytes())
    run(name, "--retry-failed")
    assert (counted(), counted("errors")) == (6, 0)


@pytest.mark.parametrize("kind", ["list", "tar", "files"])
def test_other_archives(name, kind):
    if kind == "list":
        Path("list.csv").write_text("image,target\nimages/0.png,0\nimages/1.png,1\n")
        run(name, images=("list.csv",), target=())
        found = hshap.runs.open("RUN")
        assert [(key.image, key.target) for key in found.keys] == [
            ("images/0.png", "0"),
            ("images/1.png", "1"),
        ]
        return
    if kind == "tar":
        with tarfile.open("all.tar", "w") as archive:
            for path in sorted(Path("images").iterdir()):
                member = tarfile.TarInfo(path.name)
                member.size = path.stat().st_size
                archive.addfile(member, io.BytesIO(path.read_bytes()))
        run(name, images=("all.tar",))
    else:
        run(name, images=sorted(Path("images").iterdir()))
    assert counted() == 5


def test_two_workers_give_the_rows_of_one(name):
    run(name)
    one = [row["game_values"] for row in hshap.runs.open("RUN").rows()]
    Path("RUN").rename("ONE")
    run(name, "--workers", 2)
    assert [row["game_values"] for row in hshap.runs.open("RUN").rows()] == one


def test_the_top_class_is_chosen_for_each_image(name):
    run(name, target=())
    rows = hshap.runs.open("RUN").query("select image, target, class_index from explanations")
    assert {row["target"] for row in rows} == {"top"}
    assert [row["class_index"] for row in rows] == [1, 0, 0, 0, 0]


def test_a_class_that_the_model_lacks_is_refused_before_the_run(name):
    done = call("run", "images", "-m", f"{name}:brightest", "-o", "RUN", "-t", 7)
    assert done.exit_code == 2
    assert "--target 7 is out of range" in done.stderr
    assert not Path("RUN").exists()


def test_another_model_or_folder_is_refused(name):
    run(name)
    done = call("run", "images", "-m", f"{name}:other", "-o", "RUN", "-t", 0, *GIVEN)
    assert done.exit_code == 2
    assert "another model" in done.stderr
    done = call("run", "images", "-m", f"{name}:brightest", "-o", "images", "-t", 0)
    assert done.exit_code == 5
    assert "is no run folder" in done.stderr


def test_a_setting_that_differs_is_named(name):
    run(name)
    done = run(name, "--tolerance", 0.3, "--background", "black", code=2)
    assert "another decode.reader.background ('white' there, 'black' here)" in done.stderr
    assert "another search.tolerance" in done.stderr or "another search (" in done.stderr


def test_a_larger_limit_of_pixels_goes_on(name):
    done = run(name, "--max-pixels", 300)
    assert "and 0 failed" in done.stdout
    Image.fromarray(np.zeros((20, 20, 3), np.uint8)).resize((20, 20)).save("images/large.png")
    done = run(name, "--resize", "--max-pixels", 300, code=2)
    assert "another decode.reader.resize" in done.stderr
    Path("RUN").rename("SMALL")
    given = ("--size", "16x16", "--resize")
    assert "large.png" in run(name, *given, "--max-pixels", 300, code=7).stderr
    run(name, *given, "--max-pixels", 1000, "--retry-failed")
    assert (counted(), counted("errors")) == (6, 0)


def test_an_image_without_a_usable_class_fails_alone(name):
    Path("list.csv").write_text(
        "image,target\nimages/0.png,0\nimages/1.png,\nimages/2.png,9\nimages/3.png,1\n"
    )
    done = run(name, images=("list.csv",), target=(), code=7)
    assert "class 9 is out of range: the model has 2 outputs" in done.stderr
    assert counted() == 2
    errors = {row["image"]: row["reason"] for row in hshap.runs.open("RUN").errors}
    assert "no class for this image" in errors["images/1.png"]
    assert "9 is out of range" in errors["images/2.png"]
    Path("list.csv").write_text("image,target\nimages/0.png,9\n")
    assert "out of range" in run(name, images=("list.csv",), target=(), code=2).stderr


def test_rows_that_take_more_than_usual_are_told(name):
    done = run(name)
    found = hshap.runs.open("RUN")
    size = sum(path.stat().st_size for path in Path("RUN/explanations").iterdir())
    assert found.row_bytes == size / 5
    assert ("more than the usual 5,000" in done.stdout) == (found.row_bytes > 5000)
    Path("RUN").rename("ALL")
    assert "more than the usual 5,000" in run(name, images=("images/0.png",)).stdout  # one row


def test_the_end_of_a_run_shows_a_query_that_works(name):
    import shlex

    line = next(line for line in run(name).stdout.splitlines() if "hshap query" in line)
    words = shlex.split(line.partition("hshap ")[2])
    assert call(*words).exit_code == 0


def test_a_query_prints_a_table_json_or_csv(name):
    run(name)
    sql = "select image, complete from explanations where image < '2' order by image"
    assert "0.png" in call("query", "RUN", sql).stdout
    assert call("query", "RUN", sql, "--csv").stdout == "image,complete\n0.png,True\n1.png,True\n"
    rows = json.loads(call("query", "RUN", sql, "--json").stdout)["rows"]
    assert rows[0] == {"image": "0.png", "complete": True}
    assert call("query", "RUN", "select * from explanations", "--json").exit_code == 0
    done = call("query", "RUN", "select colour from explanations")
    assert done.exit_code == 2
    assert "colour" in done.stderr
    assert call("query", "images", sql).exit_code == 3


def test_verify_checks_digests_and_recomputes_values(name):
    run(name)
    done = call("verify", "RUN")
    assert done.exit_code == 0
    assert "1 shard with 5 rows is as written" in done.stdout
    assert "no value was computed again" in done.stdout
    again = ("verify", "RUN", "images", "-t", 0, *GIVEN[1:], "--json")
    found = json.loads(call(*again, "-m", f"{name}:brightest").stdout)
    assert found["problems"] == []
    assert found["values"] > 50
    assert found["largest_difference"] == 0
    done = call("verify", "RUN", "--seal", found["seal"])
    assert done.exit_code == 0
    done = call("verify", "RUN", "--seal", "0" * 64)
    assert done.exit_code == 3
    done = call(*again, "-m", f"{name}:other")
    assert done.exit_code == 3
    assert "another model" in done.stderr
    assert "a coalition value differs by" in done.stderr
    assert call("verify", "RUN", "images").exit_code == 2


def test_verify_names_an_altered_shard(name):
    run(name)
    shard = next(Path("RUN/explanations").iterdir())
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 255
    shard.write_bytes(data)
    done = call("verify", "RUN")
    assert done.exit_code == 3
    assert f"shard explanations/{shard.name} was altered" in done.stderr


def test_options_that_do_not_fit_are_refused(name):
    done = run(name, "--address", "ray://x", code=2)
    assert "--executor ray" in done.stderr
    done = run(name, "--executor", "slurm", "--jobs", "RUN/jobs", code=2)
    assert "outside of --out" in done.stderr


def test_findings_of_resized_images_are_in_pixels_of_the_file(name):
    array = np.zeros((64, 32, 3), np.uint8)
    array[16:32, 8:16] = 255
    Image.fromarray(array).save("large.png")
    run(name, "--size", "16x16", "--resize", images=("large.png",))
    (row,) = hshap.runs.open("RUN")
    assert row.placement.shape == (64, 32)
    (found,) = row.boxes()
    assert (found.start, found.stop) == ((16, 8), (32, 16))
    done = call("query", "RUN", "select boxes from explanations", "--json")
    assert json.loads(done.stdout)["rows"][0]["boxes"][0]["start"] == [16, 8]


# Files that a run does not read


def mixed_folder():
    """Add files of other kinds to the folder of images."""
    images = Path("images")
    for name in ("b.svs", "deeper/a.NDPI", "c.mrxs", "d.btf"):
        (images / name).parent.mkdir(exist_ok=True)
        (images / name).write_bytes(b"not read")
    (images / "c").mkdir()
    for name in ("Slidedat.ini", "Data0000.dat"):
        (images / "c" / name).write_bytes(b"part of c.mrxs")
    (images / "e.zarr" / "0").mkdir(parents=True)
    for name in (".zgroup", ".zattrs", "0/.zarray", "0/0"):
        (images / "e.zarr" / name).write_bytes(b"{}")
    (images / "notes.txt").write_text("mine")
    (images / ".hidden.svs").write_text("mine")


LARGE = ["b.svs", "c.mrxs", "d.btf", "deeper/a.NDPI", "e.zarr"]


def test_large_images_of_a_folder_go_to_the_errors_with_the_command_that_reads_them(name):
    mixed_folder()
    done = run(name, "--workers", 2, code=7)
    found = hshap.runs.open("RUN")
    assert {row["image"]: row["reason"] for row in found.errors}.keys() == set(LARGE)
    assert all("hshap tiles" in row["reason"] for row in found.errors)
    assert len(found) == 5
    assert "failed: b.svs: b.svs is a large image" in done.stderr
    assert "10 of 10 images (5 explained, 0 negative, 5 failed)" in done.stderr
    assert "images: 1 entry is not an image that is read here, and left out (1 .txt)" in done.stderr
    again = run(name, code=7)
    assert "10 from before" in again.stderr
    assert counted("errors") == 5
    assert call("verify", "RUN").exit_code == 0


def test_many_large_images_do_not_end_a_run(name):
    for number in range(30):
        Path(f"images/{number:02d}.svs").write_bytes(b"not read")
    Path("images/bad.png").write_text("no")
    run(name, "--workers", 2, code=7)
    assert (counted(), counted("errors")) == (5, 31)


def test_large_images_of_a_tar_are_named(name):
    mixed_folder()
    with tarfile.open("images.tar", "w") as archive:
        archive.add("images", arcname=".")
    done = run(name, images=("images.tar",), code=7)
    named = {row["image"] for row in hshap.runs.open("RUN").errors}
    assert named >= set(LARGE)
    assert "left out (1 .txt)" in done.stderr


def test_a_folder_of_large_images_alone_is_refused_with_the_command_that_reads_them(name):
    Path("slides").mkdir()
    for slide in ("a.svs", "b.svs"):
        Path("slides", slide).write_bytes(b"not read")
    done = run(name, images=("slides",), code=2)
    assert "a.svs is a large image" in done.stderr
    assert "hshap tiles, or run --tiles, and 1 more like it" in done.stderr
    assert not Path("RUN").exists()


def test_scans_of_a_folder_are_images_of_a_run(name):
    nibabel = pytest.importorskip("nibabel")
    values = np.zeros((16, 16, 1), np.float32)
    values[4:8, 4:8] = 1
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), "images/scan.nii.gz")
    run(name, "--frame", 0)
    assert hshap.runs.open("RUN")["scan.nii.gz"].boxes()


@pytest.mark.parametrize("command", ["explain", "cost"])
def test_large_images_of_a_folder_cannot_be_used_by_other_commands(name, command):
    mixed_folder()
    words = ["images", "-m", f"{name}:brightest", "--target", 0, *GIVEN]
    words += ["-o", "found"] if command == "explain" else []
    refused = call(command, *words)
    assert refused.exit_code == 3
    for large in ("b.svs", "c.mrxs", "d.btf", "e.zarr"):
        assert f"{Path('images', large)} is a large image" in refused.stderr
    told = "images: 2 entries are not images that are read here, and left out (1 folder, 1 .txt)"
    assert told in refused.stderr
    done = call(command, *words, "--skip-bad")
    assert done.exit_code == 7, done.stderr


def test_python_warns_of_files_that_are_no_images(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((1, 4, 4)))
    (tmp_path / "a.png").write_bytes(b"no array")
    explainer = hshap.Explainer(
        lambda batch: batch.max(axis=(1, 2, 3)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Dyadic(min_size=2),
    )
    with pytest.warns(RuntimeWarning, match=r"1 entry is not an image .*\(1 \.png\)"):
        hshap.runs.explain_dataset(explainer, tmp_path, tmp_path / ".run", target=0)


def test_python_reads_the_pictures_of_a_folder_with_a_decoder(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(b"7")
    explainer = hshap.Explainer(
        lambda batch: batch.max(axis=(1, 2, 3)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Dyadic(min_size=2),
    )

    def decode(data, name):
        return np.full((1, 4, 4), float(data))

    made = hshap.runs.explain_dataset(
        explainer, tmp_path / "in", tmp_path / "run", target=0, decode=decode
    )
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
        array = np.zeros((16, 16, 3), np.uint8)
        array[4:8, 4:8] = number
        Image.fromarray(array).save("made.png")
        try:
            Path("made.png").rename(os.fsdecode(b"images/" + file))
        except OSError:
            pytest.skip("the file system refuses such names")
    return {TEXTS.get(file) or file.decode(): number for number, file in enumerate(ODD, 1)}


def archive(kind):
    """Return the images of the folder as another source of a run."""
    if kind == "csv":
        rows = [b'"images/%s",0\n' % file.replace(b'"', b'""') for file in ODD]
        Path("list.csv").write_bytes(b"image,label\n" + b"".join(rows))
        return "list.csv"
    if kind == "parquet":
        import pyarrow as pa
        from pyarrow import parquet

        paths = pa.array([b"images/" + file for file in ODD]).view(pa.string())
        parquet.write_table(pa.table({"image": paths}), "list.parquet")
        return "list.parquet"
    if kind == "tar":
        with tarfile.open("images.tar", "w", format=tarfile.GNU_FORMAT) as tar:
            tar.add("images")
        return "images.tar"
    return "images"


@pytest.mark.parametrize("kind", ["folder", "csv", "parquet", "tar"])
def test_odd_names_cost_no_image(name, odd, kind):
    run(name, images=(archive(kind),))
    made = hshap.runs.open("RUN")
    start = "" if kind == "folder" else "images/"
    for text, number in odd.items():
        assert made[f"{start}{text}"].score == pytest.approx(number / 255), text
    again = run(name, images=(archive(kind),))
    assert "from before" in again.stderr
    verified = call(
        *("verify", "RUN", archive(kind), "-m", f"{name}:brightest", "--target", 0), *GIVEN[1:]
    )
    assert verified.exit_code == 0, verified.output
    csv = call("query", "RUN", "select image from explanations", "--csv").stdout
    assert r"caf\xe9.png" in csv


@pytest.mark.parametrize("command", ["run", "explain"])
def test_pages_find_images_of_odd_names(name, odd, command):
    done = call(*(command, "images", "-m", f"{name}:brightest", "-o", "OUT", "--target", 0), *GIVEN)
    assert done.exit_code == 0, done.output
    for images in ((), ("images",)):
        page = call("view", "OUT", *images, "-o", "page.html", "--force")
        # An image that is not found is told, and shown as grey.
        assert (page.exit_code, page.stderr) == (0, "")
    assert json.dumps(r"caf\xe9.png")[1:-1] in Path("page.html").read_text("utf-8")
    for kind in ("coco", "cvat"):
        written = call("export", "OUT", "--format", kind, "-o", kind)
        assert written.exit_code == 0, written.output
    names = {
        Path(image["file_name"]).name for image in json.loads(Path("coco").read_text())["images"]
    }
    assert names >= set(odd)
    drawn = ET.parse("cvat")  # noqa: S314, our own
    assert len(drawn.findall("image")) == len(odd) + 5


def test_tiles_of_odd_names_are_explained(name):
    file = os.fsdecode(b"s\xe9\n.npy")
    np.save("made.npy", np.ones((3, 32, 32), np.float32))
    Path("made.npy").rename(file)
    words = ("-m", f"{name}:brightest", "--baseline", "constant:0", "--target", 0)
    done = call("tiles", file, *words, "-o", "TILES", "--side", 16)
    assert done.exit_code == 0, done.output
    done = call("run", file, file, *words, "-o", "RUN", "--tiles", 16)
    assert done.exit_code == 0, done.output
    for folder in ("TILES", "RUN"):
        assert call("view", folder, "-o", f"{folder}.html").exit_code == 0
        assert r"s\\xe9\\n.npy" in Path(f"{folder}.html").read_text("utf-8")


def test_a_run_folder_may_have_any_name(name):
    folder = os.fsdecode(b"RUN\xff")
    words = ("-m", f"{name}:brightest", "-o", folder, "--target", 0, *GIVEN, "--json")
    done = call("run", "images", *words)
    assert json.loads(done.stdout)["out"] == r"RUN\xff"
    assert call("query", folder, "select count(*) from explanations").exit_code == 0
    assert call("view", folder, "-o", "page.html").exit_code == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"image\n\nimages/0.png\n,\n", ["the list has no path in this row"]),
        (b"image\nimages/0.png\nimages/no\xfa.png\n", [r"images/no\xfa.png does not exist"]),
        (b"image,label\nimages/0.png,0,more\nimages/1.png\n", []),
    ],
)
def test_rows_of_a_list_fail_alone(name, text, told):
    Path("list.csv").write_bytes(text)
    done = run(name, images=("list.csv",), code=7 if told else 0)
    assert all(line in done.stderr for line in told)
    assert "images/0.png" in {key.image for key in hshap.runs.open("RUN").keys}
