"""Large images as members of runs: rows with the whole explanation beside them, and all promises.

The oracle is `hshap.large.explain_tiles` on each image by itself.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("cloudpickle")
pytest.importorskip("duckdb")

import pyarrow.parquet as pq

import hshap
from hshap import runs
from hshap.errors import ArgumentError, FormatError
from hshap.runs.storing.files import LocalFiles

TILES = hshap.large.Tiles(side=16)
COUNT = 4


def brightest(tiles):
    return tiles.max(axis=(1, 2, 3))


def explainer(model=brightest):
    return hshap.Explainer(
        model, baseline=hshap.Constant(0.0), partition=hshap.Bisection(min_size=1)
    )


@pytest.fixture
def slides(tmp_path):
    """A folder of arrays that are read tile by tile; each has two bright pixels."""
    folder = tmp_path / "slides"
    (folder / "deeper").mkdir(parents=True)
    for number in range(COUNT):
        image = np.random.default_rng(number).random((1, 64, 80), dtype=np.float32) / 10
        image[0, 10 + number, 21] = image[0, 50, 60 + number] = 1.0
        np.save(folder / ("deeper" if number == 3 else ".") / f"{number}.npy", image)
    return folder


def explain(slides, out, **others):
    given = {"target": 0, "tiles": TILES, **others}
    return runs.explain_dataset(explainer(), slides, out, **given)


def content(found):
    """Return the numbers of an explanation, without times."""
    games = [
        (one.position, [game.values.tolist() for game in one.games], [str(x) for x in one.leaves])
        for one in (found.tiles, *found.inside)
    ]
    return found.boxes(), found.scores.tolist(), games, found.evaluations


def table(run):
    return {key.image: content(run[key.image]) for key in run.keys}


def direct(slides):
    names = ["0.npy", "1.npy", "2.npy", "deeper/3.npy"]
    found = {n: hshap.large.explain_tiles(explainer(), slides / n, 0, tiles=TILES) for n in names}
    return {name: content(one) for name, one in found.items()}


@pytest.mark.parametrize("executor", [None, runs.Processes(2, start="fork")], ids=["one", "two"])
def test_a_run_has_what_explain_tiles_finds(tmp_path, slides, executor):
    for number in range(6):  # copies of one slide do not disturb each other
        shutil.copy(slides / "0.npy", slides / f"copy-{number}.npy")
    run = explain(slides, tmp_path / "run", executor=executor, task_images=1)
    expected = direct(slides)
    assert table(run) == expected | {f"copy-{n}.npy": expected["0.npy"] for n in range(6)}
    assert all(isinstance(one, hshap.large.TiledExplanation) for one in run)
    assert not list((tmp_path / "run" / "unfinished").glob("*"))
    found = run["1.npy"]
    sql = "select score, evaluations, len(boxes) as boxes from explanations where image = '1.npy'"
    numbers = {"score": found.score, "evaluations": found.evaluations, "boxes": 2}
    assert run.query(sql) == [numbers]
    assert run.boxes()["1.npy", "0"] == found.boxes()


def test_the_same_call_goes_on_and_explains_nothing_again(tmp_path, slides):
    calls = []

    def counting(tiles):
        calls.append(len(tiles))
        return brightest(tiles)

    def call():
        return runs.explain_dataset(
            explainer(counting), slides, tmp_path / "run", target=0, tiles=TILES, model_id="x"
        )

    first = table(call())
    assert calls
    calls.clear()
    assert table(call()) == first
    assert sum(calls) <= 50  # the probes of the model
    np.save(slides / "new.npy", np.load(slides / "1.npy"))
    np.save(slides / "2.npy", np.load(slides / "2.npy") * np.float32(0.7))
    run = call()
    assert len(run) == COUNT + 1
    assert [key.image for key in run.history] == ["2.npy"]


def test_other_tiles_are_another_run(tmp_path, slides):
    explain(slides, tmp_path / "run")
    with pytest.raises(ArgumentError, match="side"):
        explain(slides, tmp_path / "run", tiles=hshap.large.Tiles(side=32))
    with pytest.raises(ArgumentError, match=r"tiles \(Tiles there, None here\)"):
        explain(slides, tmp_path / "run", tiles=None)


def test_a_poisoned_image_goes_to_the_errors(tmp_path, slides):
    (slides / "4.npy").write_bytes(b"no array")
    image = np.load(slides / "0.npy")
    image[0, 5, 5] = np.nan
    np.save(slides / "5.npy", image)
    run = explain(slides, tmp_path / "run")
    assert table(run) == direct(slides)
    assert [row["image"] for row in run.errors] == ["4.npy", "5.npy"]


@dataclass(frozen=True)
class FullDisk(LocalFiles):
    """A disk with room for shards, but not for the explanations of large images."""

    def write(self, name, data):
        if name.startswith("tiled/"):
            raise OSError(errno.ENOSPC, "No space left on device", name)
        super().write(name, data)


def test_a_full_disk_ends_the_run_and_blames_no_slide(tmp_path, slides):
    with pytest.raises(runs.RunStoppedError, match="No space left"):
        explain(slides, FullDisk(tmp_path / "run"))
    run = explain(slides, tmp_path / "run")
    assert not run.errors
    assert table(run) == direct(slides)


def test_an_ome_zarr_folder_may_end_in_a_slash(tmp_path):
    pytest.importorskip("zarr")
    image = np.zeros((1, 32, 32), np.float32)
    image[0, 4, 5] = 1.0
    scan, labels = hshap.images.Scan(image, "CYX", spacing=(1.0, 1.0)), np.zeros((32, 32), np.uint8)
    hshap.export.write_ome_zarr(tmp_path / "z.ome.zarr", labels, scan)
    for end in ("", "/"):
        run = explain(f"{tmp_path}/z.ome.zarr{end}", tmp_path / f"run{len(end)}")
        assert not run.errors
        assert [box.start for box in run["z.ome.zarr"].boxes()] == [(4, 5)]


def test_an_altered_or_missing_file_is_named(tmp_path, slides):
    run = explain(slides, tmp_path / "run")
    assert runs.verify(run).is_sound
    sha256 = json.loads(next(run.rows())["transform"])["tiled"]
    file = tmp_path / "run" / "tiled" / f"{sha256}.npz"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    told = f"row of image '0.npy': its file tiled/{sha256}.npz was altered"
    assert runs.verify(run).problems == (told,)
    with pytest.raises(FormatError, match="was altered"):
        run["0.npy"]
    file.unlink()
    assert "is missing" in runs.verify(run).problems[0]
    with pytest.raises(FormatError, match="is missing"):
        run["0.npy"]
    # A row cannot name a file elsewhere.
    shard = next((tmp_path / "run" / "explanations").iterdir())
    found = pq.read_table(shard)
    for name in ("../../secret", "a" * 63, "A" * 64, 7, None, ["a" * 64]):
        rows = found.to_pylist()
        rows[0]["transform"] = json.dumps({"tiled": name})
        pq.write_table(pa.Table.from_pylist(rows, schema=found.schema), shard)
        read = runs.open(tmp_path / "run")[rows[0]["image"]]
        assert not isinstance(read, hshap.large.TiledExplanation)


def test_stored_values_are_computed_again(tmp_path, slides):
    run = explain(slides, tmp_path / "run")
    found = runs.verify(run, explainer(), slides, target=0, tiles=TILES)
    assert (found.is_sound, found.largest) == (True, 0.0)
    assert found.values > 100
    image = np.load(slides / "0.npy")
    np.save(slides / "0.npy", image * 0.5)
    changed = runs.verify(run, explainer(), slides, target=0, tiles=TILES)
    assert "has changed since it was explained" in changed.problems[0]
    doubled = explainer(lambda tiles: 2 * tiles.max(axis=(1, 2, 3)))
    other = runs.verify(run, doubled, slides, target=0, tiles=TILES)
    assert "another model" in other.problems[0]
    assert any("differs by" in problem for problem in other.problems)


def test_mistakes_are_told_in_one_line(tmp_path, slides):
    for change, message in (
        ({"tiles": 512}, "tiles is 512"),
        ({"layout": "CYX"}, "layout='CYX' is for whole images"),
        ({"decode": lambda data, name: data}, "decode is for whole images"),
        ({"target": runs.Chosen("top", max)}, "'top' is chosen for each image"),
        ({"slides": "memory://slides"}, "on another machine"),
        ({"slides": np.zeros((2, 1, 4, 4))}, "pass a folder, a list or paths"),
        ({"slides": [("z.zarr", 0)]}, "for tiles, pass paths of images"),
    ):
        with pytest.raises(ArgumentError, match=message):
            explain(**{"slides": slides, "out": tmp_path / "run", **change})


# Kills


@dataclass(frozen=True)
class DeadlyFiles(LocalFiles):
    """Files that kill the process that uses them, at random points."""

    def _perhaps(self):
        if random.SystemRandom().random() < 0.15:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, name, data):
        self._perhaps()
        if random.SystemRandom().random() < 0.15:
            super().write(name, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(name, data)

    def rename(self, name, to):
        self._perhaps()
        super().rename(name, to)
        self._perhaps()


def deadly(tiles):
    """Kill the process in the middle of an image, at random."""
    if random.SystemRandom().random() < 0.05:
        os.kill(os.getpid(), signal.SIGKILL)
    return tiles.max(axis=(1, 2, 3))


@pytest.mark.kills
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot fork here")
def test_a_run_killed_at_random_points_is_an_undisturbed_one(tmp_path, slides):
    out, kills = tmp_path / "run", 0
    for _ in range(300):
        child = os.fork()
        if not child:
            code = 1
            try:
                runs.explain_dataset(
                    explainer(deadly),
                    slides,
                    DeadlyFiles(out),
                    target=0,
                    tiles=TILES,
                    model_id="brightest",
                )
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, -signal.SIGKILL)
        kills += code != 0
        if code == 0:
            if kills >= 20:
                break
            shutil.rmtree(out)  # complete before enough kills: from the beginning
    assert kills >= 20
    run = runs.open(out)
    assert table(run) == direct(slides)
    assert runs.verify(run).is_sound
    assert not list((out / "unfinished").iterdir())


def test_a_killed_image_goes_on_from_its_finished_tiles(tmp_path, slides):
    """Tiles that were looked into before an end are not given to the model again."""
    seen = []

    def counting(tiles):
        seen.append(len(tiles))
        if limit and sum(seen) > limit:
            raise KeyboardInterrupt
        return tiles.max(axis=(1, 2, 3))

    def call(out):
        seen.clear()
        return runs.explain_dataset(
            explainer(counting),
            [slides / "0.npy"],
            out,
            target=0,
            tiles=TILES,
            model_id="counting",
        )

    limit = 0
    whole = table(call(tmp_path / "quiet"))
    every = sum(seen)
    limit = every - 1
    with pytest.raises(KeyboardInterrupt):
        call(tmp_path / "run")
    limit = 0
    assert table(call(tmp_path / "run")) == whole
    assert sum(seen) < every


# On the command line


def test_all_commands_read_a_run_of_slides(tmp_path, slides, monkeypatch):
    pytest.importorskip("typer")
    from commands import fine, folder_of_user, written

    model = "def grey(batch):\n    return batch.max(axis=(1, 2, 3))[:, None]\n"
    with folder_of_user(tmp_path, monkeypatch, model) as name:
        written("slides/notes.txt", "mine")
        given = ("-m", f"{name}:grey", "--channels", "grey", "--target", 0)
        given += ("--baseline", "constant:0", "--partition", "bisection", "--min-size", 1)
        done = fine("run", "slides", *given, "--tiles", 16, "-o", "RUN")
        assert "4 explanations of 4 images, and 0 failed" in done.stdout
        assert "left out (1 .txt)" in done.stderr
        assert "4 rows" in fine("verify", "RUN").stdout
        again = fine("verify", "RUN", "slides", "-m", f"{name}:grey")
        assert "the largest difference is 0" in again.stdout
        sql = "select image, len(boxes) as n from explanations order by image"
        rows = json.loads(fine("query", "RUN", sql, "--json").stdout)["rows"]
        assert [row["n"] for row in rows] == [2, 2, 2, 2]
        fine("view", "RUN", "--out", "page.html")
        assert "3.npy" in Path("page.html").read_text()
        fine("export", "RUN", "--format", "coco", "--out", "found.json")
        assert len(json.loads(Path("found.json").read_text())["annotations"]) == 8
        found = {(box.start, box.stop) for box in runs.open("RUN")["2.npy"].boxes()}
        assert found == {((12, 21), (13, 22)), ((50, 62), (51, 63))}
