"""Runs: every image once, whatever happens; rows read back as the explanations they were."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import itertools
import json
import os
import pickle
import random
import re
import subprocess
import sys
import tarfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
pytest.importorskip("fsspec")
import pyarrow.parquet as pq

import hshap
from hshap import Bisection, Constant, Dyadic, Explainer, References, Shifted, runs
from hshap._util.processes import Owner, this_process
from hshap.errors import ArgumentError, FormatError
from hshap.explanation.validity import check
from hshap.runs.driver import Driver
from hshap.runs.sources import as_source
from hshap.runs.storing.cells import CellTable, pack_labels, runs_of, unpack_labels
from hshap.runs.storing.files import LocalFiles, files_at, publish, temporary_of
from hshap.runs.storing.folder import Folder, Writer
from hshap.runs.storing.identity import Fingerprint
from hshap.runs.storing.life import Watch, sign_of
from hshap.runs.storing.rows import Origin, as_row, as_rows, blocks
from hshap.runs.storing.schema import EXPLANATIONS, TABLES, VOLATILE, schema_of
from hshap.runs.storing.stored_rows import from_row, from_rows, size_of, stored_row
from hshap.runs.worker import Job

BLANK = Constant(0.0)
ORIGIN = Origin("a.png", "1" * 64, "/data/a.png", "2" * 64, "0")


def brightest(batch):
    return batch.max(axis=(1, 2, 3))


def explainer(model=brightest, partition=None):
    return Explainer(model, baseline=BLANK, partition=partition or Dyadic(2))


@pytest.fixture
def images():
    return np.random.default_rng(3).random((10, 1, 8, 8))


def rows(run):
    return [{k: v for k, v in row.items() if k not in VOLATILE} for row in run.rows()]


class Counted:
    """A model that counts its inputs, outside of its own content."""

    def __init__(self, path):
        self.path = str(path)

    def __call__(self, batch):
        with open(self.path, "a") as file:  # noqa: PTH123
            file.write("." * len(batch))
        return brightest(batch)

    @property
    def inputs(self):
        return Path(self.path).stat().st_size if Path(self.path).exists() else 0


# Rows


def smooth_image():
    y, x = np.mgrid[:40, :48]
    image = np.exp(-((y - 12) ** 2 + (x - 30) ** 2) / 40) + 0.5 * (np.abs(x - 8) < 3)
    return np.stack([image, image / 2, 1 - image])


def mean_red(batch):
    return np.clip(batch[:, 0], 0, 1).mean(axis=(1, 2)) * 50


PARTITIONS = {
    "dyadic": Dyadic(5),
    "bisection": Bisection("auto"),
    "shifted": Shifted(Dyadic(6), (3, 5)),
    "superpixels": hshap.Superpixels(),
    "spots": hshap.Spots(cell_size=6),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_row_reads_back_as_the_explanation_that_a_file_holds(name, tmp_path):
    if name == "superpixels":
        pytest.importorskip("higra")
    made = Explainer(mean_red, baseline=BLANK, partition=PARTITIONS[name]).explain(
        smooth_image(), target=0
    )
    made.save(tmp_path / "x.npz")
    saved, read = hshap.Explanation.load(tmp_path / "x.npz"), from_row(as_row(made, ORIGIN))
    for field in ("grid", "target", "leaves", "evaluations", "draws", "unfinished", "class_index"):
        assert getattr(read, field) == getattr(saved, field), field
    assert read.settings.document == saved.settings.document
    assert [game.region for game in read.games] == [game.region for game in saved.games]
    assert [game.children for game in read.games] == [game.children for game in saved.games]
    for one, other in zip(read.games, made.games, strict=True):
        assert one.values.tobytes() == other.values.tobytes()
        assert one.coefficients.tobytes() == other.coefficients.tobytes()
    assert read.boxes() == made.boxes()
    assert read.at(tolerance=1.0).boxes() == made.at(tolerance=1.0).boxes()


def quarters(change):
    """Return an explanation whose free regions are halves and quarters; one region is changed."""
    grid = (4, 4)
    flat = {
        "all": range(16),
        "left": [0, 1, 4, 5, 8, 9, 12, 13],
        "right": [2, 3, 6, 7, 10, 11, 14, 15],
        "top": [0, 1, 4, 5],
        "bottom": [8, 9, 12, 13],
    } | change
    regions = {name: hshap.Pixels(np.array(list(pixels)), grid) for name, pixels in flat.items()}
    parts = {"all": ("left", "right"), "left": ("top", "bottom")}
    values = np.array([0.0, 1.0, 0.0, 1.0])
    games = tuple(
        hshap.Game(
            regions[whole],
            tuple(regions[part] for part in two),
            values,
            hshap.shapley(values),
            np.zeros(2),
        )
        for whole, two in parts.items()
    )
    return hshap.Explanation(grid, 0, (regions["top"],), games, 6, 0.0)


def test_regions_of_any_pixels_are_read_back():
    made = quarters({})
    read = from_row(as_row(made, ORIGIN))
    assert [game.children for game in read.games] == [game.children for game in made.games]
    assert read.leaves == made.leaves


@pytest.mark.parametrize(
    "change",
    [
        {"left": [0, 1, 4, 5, 8, 9, 12, 14]},
        {"left": [0, 1, 4, 5, 8, 9, 12, 12]},
        {"left": [0, 1, 4, 5, 8, 9, 12]},
        {"top": [0, 1, 4, 8]},
        {"top": [0, 1, 4, 4]},
        {"top": [0, 1, 4, 2]},
        {"right": [2, 3, 6, 7, 10, 11, 14]},
        {"right": [2, 3, 6, 7, 10, 11, 14, 13]},
        {"all": range(15)},
    ],
    ids=str,
)
def test_regions_that_overlap_or_miss_pixels_do_not_become_a_row(change, tmp_path):
    made = quarters(change)
    with pytest.raises(ArgumentError, match="cannot be saved"):
        made.save(tmp_path / "x.npz")  # the rule of files and of rows is one
    with pytest.raises(ArgumentError, match="cannot be saved"):
        as_row(made, ORIGIN)


def test_a_random_baseline_keeps_its_errors():
    references = np.random.default_rng(0).random((3, 3, 40, 48)) / 9
    made = Explainer(mean_red, baseline=References(references), partition=Dyadic(8)).explain(
        smooth_image(), target=0
    )
    read = from_row(as_row(made, ORIGIN))
    assert made.draws > 1
    for one, other in zip(read.games, made.games, strict=True):
        assert one.errors.tobytes() == other.errors.tobytes()
        assert one.coefficients.tobytes() == other.coefficients.tobytes()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("header", "{"),
        ("header", "[]"),
        ("cells", b"1"),
        ("game_players", [0]),
        ("game_players", []),
        ("game_values", []),
        ("leaves", [10**6]),
        ("leaves", [-1]),
        ("region_kind", [9]),
        ("region_corners", [1]),
        ("game_children", [0]),
        ("image", None),
    ],
)
def test_a_damaged_row_is_refused_or_whole(name, value):
    made = explainer().explain(np.eye(8)[None], target=0)
    row = {**as_row(made, ORIGIN), name: value}
    if name == "image":
        assert from_row(row).boxes() == made.boxes()
    else:
        with pytest.raises(FormatError, match="damaged"):
            from_row(row)


WHOLE_NUMBERS = [0, 1, -1, 2, 17, 255, 2**31 - 1, -(2**31)]
FLOATS = [float("nan"), float("inf"), 1e308, -1.0, 0.0, 7.5]
HEADERS = [None, True, -1, 0, 2**63, "x", [], [[]], {}, [1, 2], [2**40, 2**40], [8, 8, 8], [0, 5]]


def changed(row, name, rng):
    """Return a column with a change that nobody makes by intention."""
    value = row[name]
    if isinstance(value, list):
        place, numbers = rng.randrange(len(value) + 1), WHOLE_NUMBERS
        if name in ("game_values", "game_coefficients", "game_errors"):
            numbers = FLOATS
        return rng.choice(
            [value[:place], value[::-1], [*value[:place], rng.choice(numbers), *value[place + 1 :]]]
        )
    if isinstance(value, bytes):
        flipped = bytes(byte ^ (rng.random() < 0.01) for byte in value)
        return rng.choice([flipped, value[: len(value) // 2], value + b"x"])
    if name == "header":
        header = json.loads(value)
        return json.dumps({**header, rng.choice(list(header)): rng.choice(HEADERS)})
    return rng.choice(["none", "all", "leaves", "x", None])


def test_rows_that_are_changed_at_random_are_refused_or_whole():
    rng, image = random.Random(0), np.zeros((1, 8, 8))
    image[0, 2:4, 5:8] = 1.0
    parts = [{"partition": Dyadic(2)}, {"partition": Shifted(Dyadic(3), (1, 2))}]
    parts.append({"partition": hshap.Spots(cell_size=3)})
    made = [Explainer(brightest, baseline=BLANK, **part).explain(image, target=0) for part in parts]
    names = [name for name in EXPLANATIONS if name.startswith(("game", "region"))]
    names += ["header", "leaves", "unfinished", "cells"]
    refused = 0
    for _ in range(300):
        row, name = as_row(rng.choice(made), ORIGIN), rng.choice(names)
        try:
            read = from_row({**row, name: changed(row, name, rng)})
        except FormatError:
            refused += 1
        else:
            assert np.isfinite(read.attribution()).all()
            read.boxes()
    assert 100 < refused < 290


@pytest.fixture(scope="module")
def mixed_rows():
    """Rows of all kinds: blocks, rolled blocks, cells, errors of draws, and a volume."""
    rng, image = np.random.default_rng(0), np.zeros((1, 12, 12))
    image[0, 2:5, 6:11] = rng.random((3, 5)) + 0.5
    references = References(rng.random((3, 1, 12, 12)) / 9)
    parts = [
        {"partition": Dyadic(3)},
        {"partition": Shifted(Dyadic(3), (1, 2))},
        {"partition": hshap.Spots(cell_size=3)},
        {"partition": Dyadic(4), "baseline": references},
    ]
    explained = [(image, {"baseline": BLANK, **part}) for part in parts]
    explained.append((image[None, :, :, 2:8], {"baseline": BLANK, "partition": Bisection(3)}))
    rows = [
        as_row(Explainer(highest, **part).explain(shown, target=0), ORIGIN)
        for shown, part in explained
    ]
    return [*rows, as_row(quarters({}), ORIGIN)]


def highest(batch):
    return batch.reshape(len(batch), -1).max(axis=1)


def outcome(read):
    """Return all that a row tells, in bytes, or the line that refuses it."""
    try:
        found = read()
    except FormatError as error:
        return str(error)
    games = [
        (game.region, game.children, game.values.tobytes(), game.coefficients.tobytes())
        for game in found.games
    ]
    return games, found.leaves, found.unfinished, found.boxes(), found.attribution().tobytes()


def test_rows_of_all_kinds_pass_as_one_block(mixed_rows):
    flat = [row for row in mixed_rows if len(json.loads(row["header"])["grid"]) == 2]
    assert len(flat) == 5
    check([stored_row(row, 2**30) for row in flat], most=2**30, kind=CellTable)
    together = [outcome(lambda one=one: one) for one in from_rows(mixed_rows)]
    assert together == [outcome(lambda row=row: from_row(row)) for row in mixed_rows]


def test_a_block_refuses_what_one_by_one_is_refused(mixed_rows):
    rng = random.Random(3)
    names = [name for name in EXPLANATIONS if name.startswith(("game", "region"))]
    names += ["header", "leaves", "unfinished", "cells"]
    refused = whole = 0
    for _ in range(250):
        rows = [dict(rng.choice(mixed_rows)) for _ in range(rng.randrange(2, 6))]
        for number, row in enumerate(rows):
            row["image"] = f"image {number}"
        damaged, name = rng.choice(rows), rng.choice(names)
        damaged[name] = changed(damaged, name, rng)
        alone = [outcome(lambda row=row: from_row(row)) for row in rows]
        together = from_rows(rows)
        for expected in alone:
            assert outcome(lambda: next(together)) == expected  # noqa: B023, it is called here
            if isinstance(expected, str):
                break
        refused += any(isinstance(one, str) for one in alone)
        whole += not any(isinstance(one, str) for one in alone)
    assert refused > 100
    assert whole > 20


@pytest.mark.parametrize("name", ["game_region", "game_children", "leaves", "unfinished"])
def test_a_row_cannot_name_regions_of_its_neighbour_in_a_block(mixed_rows, name):
    row = mixed_rows[0]
    beyond = {**row, name: [*row[name][:-1], len(row["region_kind"])]}
    with pytest.raises(FormatError, match=f"{name} has a number of no region"):
        list(from_rows([row, beyond, {**row, "leaves": [], "unfinished": []}]))


def test_a_damaged_row_in_a_block_is_named_after_those_before_it(mixed_rows):
    rows = [{**row, "image": f"image {number}"} for number, row in enumerate(mixed_rows[:4])]
    rows[2]["leaves"] = [-1]
    found = from_rows(rows)
    assert next(found).boxes() == from_row(rows[0]).boxes()
    assert next(found).boxes() == from_row(rows[1]).boxes()
    with pytest.raises(FormatError, match="the row of 'image 2' is damaged"):
        next(found)


def test_rows_of_many_regions_or_numbers_are_checked_alone(mixed_rows):
    row = mixed_rows[0]
    regions = {**row, "region_kind": [2] * 2**13, "cells": b""}
    numbers = {**row, "game_values": [0.0] * 2**17, "cells": None}
    assert [len(block) for block in blocks([regions] * 3, size_of)] == [1, 1, 1]
    assert [len(block) for block in blocks([numbers] * 3, size_of)] == [1, 1, 1]
    assert [len(block) for block in blocks([row] * 20, size_of)] == [16, 4]


def test_rows_before_a_shard_that_cannot_be_read_are_not_lost():
    def given():
        yield from range(18)
        raise OSError

    found = blocks(given(), lambda _: 1)
    assert [len(next(found)), len(next(found))] == [16, 2]
    with pytest.raises(OSError):
        next(found)


def test_explanations_become_rows_at_once_as_one_by_one():
    sound = [explainer().explain(np.eye(8)[None] * (1 + i), target=0) for i in range(3)]
    given = [(one, ORIGIN) for one in [*sound, quarters({"top": [0, 1, 4, 8]}), quarters({})]]
    made = as_rows(given)
    assert isinstance(made.pop(3), ArgumentError)
    del given[3]
    assert made == [as_row(*one) for one in given]


def test_a_typical_row_takes_at_most_five_kilobytes(tmp_path):
    pytest.importorskip("higra")
    y, x = np.mgrid[:224, :224]
    dataset = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        image = 0.2 * rng.random((3, 224, 224)) + 0.3
        for _ in range(12):
            cy, cx, radius = rng.integers(10, 214), rng.integers(10, 214), rng.integers(5, 15)
            image[:, (y - cy) ** 2 + (x - cx) ** 2 < radius**2] = rng.random((3, 1))
        dataset.append(image)

    def reddish(batch):
        return 20 * (np.clip(batch[:, 0] - batch[:, 1] - 0.3, 0, 1) > 0).mean(axis=(1, 2))

    out = tmp_path / "run"
    run = runs.explain_dataset(Explainer(reddish), dataset, out, target=0, positives=None)
    size = sum(file.stat().st_size for file in (tmp_path / "run").rglob("*.parquet"))
    assert len(run) == 12
    assert size / 12 <= 5000


# Going on

MOST_PROBES = 50
"""Inputs that a resumed run asks its model for, to recognise it."""


def test_every_image_is_explained_once(tmp_path, images):
    model = Counted(tmp_path / "count")
    run = runs.explain_dataset(explainer(model), images, tmp_path / "run", target=0)
    assert [key.image for key in run.keys] == [f"{number:08d}" for number in range(10)]
    before = model.inputs
    again = runs.explain_dataset(explainer(model), images, tmp_path / "run", target=0)
    assert before > 0
    assert model.inputs - before <= MOST_PROBES
    assert list(again.rows()) == list(run.rows())


def test_the_explanations_are_those_of_the_explainer(tmp_path, images):
    run = runs.explain_dataset(explainer(), images, tmp_path / "run", target=0)
    for number, read in enumerate(run):
        made = explainer().explain(images[number], target=0)
        assert read.leaves == made.leaves
        assert read.position == number
        assert np.array_equal(read.attribution(), made.attribution())


def test_only_new_images_and_targets_are_explained(tmp_path, images):
    model = Counted(tmp_path / "count")

    def two(batch):
        scores = model(batch)
        return np.stack([scores, -scores], axis=1)

    both = Explainer(two, baseline=BLANK, partition=Dyadic(4))
    first = runs.explain_dataset(both, images[:4], tmp_path / "run", target=0)
    assert len(first) == 4
    spent = model.inputs
    out = tmp_path / "run"
    second = runs.explain_dataset(both, images[:5], out, target=[0, 1], positives=None)
    assert len(second) == 10
    assert {key.target for key in second.keys} == {"0", "1"}
    assert model.inputs - spent < 3 * spent
    with pytest.raises(ArgumentError, match="pass target="):
        second["00000000"]
    assert second.explanation("00000000", 1).class_index == 1


def test_an_image_whose_bytes_changed_is_explained_again(tmp_path, images):
    runs.explain_dataset(explainer(), images, tmp_path / "run", target=0)
    changed = images.copy()
    changed[3] /= 2
    run = runs.explain_dataset(explainer(), changed, tmp_path / "run", target=0, positives=None)
    assert len(run) == 10
    assert run["00000003"].score == pytest.approx(changed[3].max())
    assert [key.image for key in run.history] == ["00000003"]


def test_a_folder_of_another_model_or_setting_is_refused(tmp_path, images):
    runs.explain_dataset(explainer(), images, tmp_path / "run", target=0)
    with pytest.raises(ArgumentError, match=r"another partition.min_size \(\d there, 4 here\)"):
        runs.explain_dataset(explainer(partition=Dyadic(4)), images, tmp_path / "run", target=0)
    other = explainer(lambda batch: batch.mean(axis=(1, 2, 3)))
    with pytest.raises(ArgumentError, match="another model"):
        runs.explain_dataset(other, images, tmp_path / "run", target=0)


def test_a_folder_with_files_of_others_is_refused(tmp_path, images):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ArgumentError, match=r"letter\.txt"):
        runs.explain_dataset(explainer(), images, tmp_path, target=0)
    assert os.listdir(tmp_path) == ["letter.txt"]  # noqa: PTH208


def test_rows_that_two_drivers_computed_are_shown_once(tmp_path, images):
    one = runs.explain_dataset(explainer(), images, tmp_path / "run", target=0)
    runs.explain_dataset(explainer(), images, tmp_path / "other", target=0)
    for file in (tmp_path / "other" / "explanations").iterdir():
        file.rename(tmp_path / "run" / "explanations" / file.name)
    both = runs.open(tmp_path / "run")
    assert len(list((tmp_path / "run" / "explanations").iterdir())) == 2
    assert rows(both) == rows(one)
    assert both.query("select count(*) as n from explanations") == [{"n": 10}]
    assert both.table(["image"]).num_rows == 10


# Errors


class Flawed:
    """A data set with an image that cannot be read and one with NaN, until it is mended."""

    def __init__(self, images, mended):
        self.images, self.mended = images, mended

    def __len__(self):
        return len(self.images)

    def __getitem__(self, number):
        if number == 2 and not self.mended:
            raise OSError("cannot be\nread")
        image = self.images[number].copy()
        if number == 4:
            image[0, 0, 0] = np.nan
        return image


def test_a_bad_image_goes_to_the_errors_with_its_reason(tmp_path, images):
    seen = []
    flawed = Flawed(images, mended=False)
    run = runs.explain_dataset(
        explainer(), flawed, tmp_path / "run", target=0, progress=seen.append
    )
    assert len(run) == 8
    assert [(row["image"], row["kind"]) for row in run.errors] == [
        ("00000002", "image"),
        ("00000004", "image"),
    ]
    assert run.errors[0]["reason"] == "OSError: cannot be read"
    assert "not finite" in run.errors[1]["reason"]
    assert (seen[-1].done, seen[-1].failed) == (8, 2)
    assert run.query("select image from errors order by image")[0] == {"image": "00000002"}


def test_failed_images_are_tried_again_on_request_alone(tmp_path, images):
    runs.explain_dataset(explainer(), Flawed(images, False), tmp_path / "run", target=0)
    again = runs.explain_dataset(explainer(), Flawed(images, False), tmp_path / "run", target=0)
    assert len(list((tmp_path / "run" / "errors").iterdir())) == 1
    assert len(again.errors) == 2
    mended = runs.explain_dataset(
        explainer(), Flawed(images, True), tmp_path / "run", target=0, retry_failed=True
    )
    assert len(mended) == 9
    assert [row["image"] for row in mended.errors] == ["00000004"]


def test_a_run_gives_up_if_all_its_first_images_fail(tmp_path):
    images = np.full((70, 1, 4, 4), np.nan)
    with pytest.raises(runs.RunStoppedError, match=r"given up.*not finite"):
        runs.explain_dataset(explainer(), images, tmp_path / "run", target=0)


@dataclass(frozen=True)
class FullDisk(LocalFiles):
    """A disk with room for some bytes. Like a real one, it is full in the middle of a file."""

    room: int = 0

    def write(self, name, data):
        used = sum(file.stat().st_size for file in self.root.rglob("*") if file.is_file())
        if used + len(data) > self.room:
            super().write(name, data[: max(0, self.room - used)])
            raise OSError(28, "No space left on device")
        super().write(name, data)


def test_a_full_disk_ends_the_run_and_keeps_all_committed_rows(tmp_path, images):
    quiet = runs.explain_dataset(explainer(), images, tmp_path / "quiet", target=0)
    home = tmp_path / "run"
    counts, told = [], []
    for room in (2000, 30_000, 45_000, 10**9):
        try:
            run = runs.explain_dataset(
                explainer(), images, FullDisk(home, room), target=0, task_images=2
            )
        except (runs.RunStoppedError, OSError) as error:
            told.append(str(error))
            if not (home / "run.json").exists():
                continue
            run = runs.open(home)
        counts.append(len(run))
        assert rows(run) == rows(quiet)[: len(run)]
    assert counts == sorted(counts)
    assert len(set(counts)) > 1
    assert counts[-1] == 10
    assert told
    assert all("No space left" in line for line in told)
    assert not list(home.rglob(".tmp-*"))


def test_temporary_files_and_strangers_are_never_read(tmp_path, images):
    run = runs.explain_dataset(explainer(), images, tmp_path / "run", target=0)
    shard = next((tmp_path / "run" / "explanations").iterdir())
    (shard.parent / ".tmp-1234").write_bytes(shard.read_bytes()[:100])
    (shard.parent / "notes.parquet").write_bytes(b"hello")
    assert rows(runs.open(tmp_path / "run")) == rows(run)


# Sources


def save_arrays(folder, images):
    folder.mkdir(parents=True)
    for number, image in enumerate(images):
        np.save(folder / f"{number}.npy", image)


def test_a_folder_of_arrays(tmp_path, images):
    save_arrays(tmp_path / "in", images[:3])
    save_arrays(tmp_path / "in" / "deeper", images[3:5])
    run = runs.explain_dataset(explainer(), tmp_path / "in", tmp_path / "run", target=0)
    names = [key.image for key in run.keys]
    assert names == ["0.npy", "1.npy", "2.npy", "deeper/0.npy", "deeper/1.npy"]
    paths = run.table(["path"]).column("path").to_pylist()
    assert paths[3] == str(tmp_path / "in" / "deeper" / "0.npy")


def test_files_of_any_kind_through_a_function(tmp_path, images):
    (tmp_path / "in.csv").write_text("image,target\nx.bin,0\n")
    (tmp_path / "x.bin").write_bytes(images[0].tobytes())

    def decode(data, name):
        return runs.Decoded(np.frombuffer(data).reshape(1, 8, 8), {"name": name})

    run = runs.explain_dataset(explainer(), tmp_path / "in.csv", tmp_path / "run", decode=decode)
    assert run.query("select transform from explanations") == [{"transform": '{"name": "x.bin"}'}]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_list_of_paths_and_targets(tmp_path, images, kind):
    save_arrays(tmp_path / "data", images[:3])
    columns = {"image": [f"data/{n}.npy" for n in range(3)], "target": [0, 0, 0]}
    if kind == "csv":
        with (tmp_path / "list.csv").open("w", newline="") as file:
            csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    else:
        pq.write_table(pa.table(columns), tmp_path / "list.parquet")
    run = runs.explain_dataset(explainer(), tmp_path / f"list.{kind}", tmp_path / "run")
    assert [key.image for key in run.keys] == columns["image"]


@pytest.mark.parametrize(
    "name", ["../secret.npy", "{root}/secret.npy", "link.npy", "a/../../secret.npy"]
)
def test_a_path_in_a_list_cannot_lead_out_of_its_folder(tmp_path, images, name):
    inside = tmp_path / "inside"
    save_arrays(inside, images[:1])
    np.save(tmp_path / "secret.npy", images[1])
    (inside / "link.npy").symlink_to(tmp_path / "secret.npy")
    (inside / "list.csv").write_text(f"image\n0.npy\n{name.format(root=tmp_path)}\n")
    run = runs.explain_dataset(explainer(), inside / "list.csv", tmp_path / "run", target=0)
    assert [key.image for key in run.keys] == ["0.npy"]
    assert "leads out of" in run.errors[0]["reason"]
    written = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")}
    assert written == {"inside", "secret.npy", "run"}
    if "link" not in name:
        wide = runs.explain_dataset(
            explainer(), inside / "list.csv", tmp_path / "wide", target=0, root=tmp_path
        )
        assert [row["image"] for row in wide.errors] != []


def test_a_tar_in_the_style_of_webdataset(tmp_path, images):
    with tarfile.open(tmp_path / "in.tar", "w") as archive:
        for number, image in enumerate(images[:3]):
            for suffix, data in ((".npy", npy(image)), (".cls", b"0"), (".json", b"{}")):
                member = tarfile.TarInfo(f"part/{number:03d}{suffix}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    run = runs.explain_dataset(explainer(), tmp_path / "in.tar", tmp_path / "run")
    assert [key.image for key in run.keys] == [f"part/{n:03d}.npy" for n in range(3)]
    assert run["part/001.npy"].leaves == explainer().explain(images[1], target=0).leaves


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_a_torch_data_set_gives_images_and_classes(tmp_path, images):
    torch = pytest.importorskip("torch")
    pairs = torch.utils.data.TensorDataset(
        torch.tensor(images, dtype=torch.float32), torch.zeros(10, dtype=torch.int64)
    )
    run = runs.explain_dataset(explainer(), pairs, tmp_path / "run")
    assert len(run) == 10
    assert {key.target for key in run.keys} == {"0"}


def test_a_generator_may_fill_one_array_again_and_again(tmp_path, images):
    def stream():
        held = np.empty((1, 8, 8))
        for image in images:
            held[:] = image
            yield held, 0

    run = runs.explain_dataset(explainer(), stream(), tmp_path / "run")
    whole = runs.explain_dataset(explainer(), images, tmp_path / "whole", target=0)
    assert rows(run) == rows(whole)


def test_a_mapping_gives_names(tmp_path, images):
    named = {"left": images[0], "right": images[1]}
    run = runs.explain_dataset(explainer(), named, tmp_path / "run", target=0)
    assert [key.image for key in run.keys] == ["left", "right"]


def test_a_list_of_paths_in_memory(tmp_path, images):
    save_arrays(tmp_path / "in", images[:2])
    paths = sorted((tmp_path / "in").iterdir())
    run = runs.explain_dataset(explainer(), paths, tmp_path / "run", target=0)
    assert [key.image for key in run.keys] == [str(path) for path in paths]


def test_a_pickle_in_a_list_or_folder_is_never_opened(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    np.save(tmp_path / "x.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    np.save(tmp_path / "y.npy", np.eye(4)[None])
    (tmp_path / "list.csv").write_text("image\nx.npy\ny.npy\n")
    run = runs.explain_dataset(explainer(), tmp_path / "list.csv", tmp_path / "run", target=0)
    assert [row["image"] for row in run.errors] == ["x.npy"]
    for place in ("explanations", "errors", "claims", "seals", "."):
        (tmp_path / "run" / place / "bomb.pkl").write_bytes(pickle.dumps(Bomb()))
    assert not (tmp_path / "exploded").exists() or (tmp_path / "exploded").unlink()
    runs.open(tmp_path / "run").query("select * from explanations")
    runs.verify(tmp_path / "run")
    assert not (tmp_path / "exploded").exists()


# Lists and archives made to attack: each is opened in a process of little memory


MOST_MEMORY = 3 * 2**30
OPENED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({most}, {most}))
from hshap.errors import ArgumentError
from hshap.runs.sources import as_source
try:
    source = as_source(sys.argv[1])
except ArgumentError as error:
    sys.exit(f"refused: {{error}}")
for item in source.items():
    try:
        print(item.name, source.read(item).image().shape)
    except (ArgumentError, OSError, ValueError) as error:
        print(item.name, "fails:", error)
"""


def opened(path):
    """Return the lines about the images of a source, or the line with which it is refused."""
    done = subprocess.run(  # noqa: S603, our own program
        [sys.executable, "-c", OPENED.format(most=MOST_MEMORY), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    lines = (done.stdout + done.stderr).splitlines()
    assert not any("Traceback" in line for line in lines), done.stderr
    return lines


def tar_header(name, size, kind=b"0"):
    """Return the header of a member that announces a size, also one below 0."""
    header = bytearray(tarfile.TarInfo(name).tobuf(format=tarfile.USTAR_FORMAT)[:512])
    header[124:136], header[156:157] = tarfile.itn(size, 12, tarfile.GNU_FORMAT), kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def good_tar(name="good.npy"):
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w") as archive:
        member = tarfile.TarInfo(name)
        data = npy(np.ones((1, 4, 4)))
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return memory.getvalue()


TARS = {
    "size below 0": (tar_header("a.npy", -1024), "do not follow each other"),
    "name of a size below 0": (tar_header("././@LongLink", -512, b"L"), "a header of -512 bytes"),
    "name of 50 GB": (tar_header("././@LongLink", 50 * 2**30, b"L"), "a header of 53687091200"),
    "header of 50 GB": (tar_header("x", 50 * 2**30, b"x"), "a header of 53687091200"),
    "shared header of 50 GB": (tar_header("x", 50 * 2**30, b"g"), "a header of 53687091200"),
    "headers of headers": (tar_header("x", 0, b"x") * 5000, "refused: dataset='a.tar'"),
}


@pytest.mark.parametrize("name", TARS)
def test_a_tar_made_to_attack_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    head, told = TARS[name]
    with Path("a.tar").open("wb") as file:
        file.write(head + good_tar())
        file.truncate(60 * 2**30)  # a hole, which takes no disk
    (line,) = opened("a.tar")
    assert line.startswith("refused: ")
    assert told in line


def test_odd_members_of_a_tar_fail_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    array = npy(np.ones((1, 4, 4)))
    huge = np.lib.format.header_data_from_array_1_0(np.zeros((1, 1, 1)))
    memory = io.BytesIO()
    np.lib.format.write_array_header_1_0(memory, {**huge, "shape": (1, 10**6, 10**6)})
    with tarfile.open("a.tar", "w") as archive:
        for name, kind, data in (
            ("good.npy", tarfile.REGTYPE, array),
            ("link.npy", tarfile.SYMTYPE, b""),
            ("pipe.npy", tarfile.FIFOTYPE, b""),
            ("sparse.npy", tarfile.GNUTYPE_SPARSE, b""),
            ("announced.npy", tarfile.REGTYPE, memory.getvalue() + array[128:]),
            ("cut.npy", tarfile.REGTYPE, array[:40]),
            ("last.npy", tarfile.REGTYPE, array),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(data), "/etc/passwd"
            archive.addfile(member, io.BytesIO(data))
    found = {line.split()[0]: line for line in opened("a.tar")}
    assert found["good.npy"] == "good.npy (1, 4, 4)"
    assert found["last.npy"] == "last.npy (1, 4, 4)"
    assert "sparse member of a.tar; pack it without --sparse" in found["sparse.npy"]
    assert "does not hold the (1, 1000000, 1000000) numbers" in found["announced.npy"]
    assert "fails:" in found["cut.npy"]
    assert not {"link.npy", "pipe.npy"} & set(found)


def test_a_pipe_as_tar_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.tar")
    (line,) = opened(tmp_path / "a.tar")
    assert "is not a regular file" in line


def parquet_of(table, path="list.parquet"):
    pq.write_table(table, path)
    return path


def test_lists_in_parquet_made_to_attack_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    repeated = pa.array(np.zeros(10**6, np.int32))
    long = pa.DictionaryArray.from_arrays(repeated, ["x" * 10**6])  # a terabyte in 50 kB
    (line,) = opened(parquet_of(pa.table({"image": long})))
    assert "has a text of 1000000 bytes in 'image'" in line
    many = pa.DictionaryArray.from_arrays(pa.array(np.zeros(21 * 10**6, np.int8)), ["a"])
    (line,) = opened(parquet_of(pa.table({"image": many})))
    assert "has more than 20000000 rows; split it" in line
    (line,) = opened(parquet_of(pa.table({"image": [["a"]]})))
    assert "has lists in 'image'" in line
    assert Path("list.parquet").stat().st_size < 10**6
    Path("list.parquet").write_bytes(Path("list.parquet").read_bytes()[:-40] + b"PAR1")
    (line,) = opened("list.parquet")
    assert "is not a Parquet file that can be read" in line


def test_lists_in_csv_made_to_attack_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("list.csv").write_text("image\n" + "x" * 10**6 + "\n")
    (line,) = opened("list.csv")
    assert "is not a CSV file (field larger than field limit" in line
    with Path("list.csv").open("wb") as file:
        file.truncate(50 * 2**30)
    (line,) = opened("list.csv")
    assert "list.csv has 53687091200 bytes, more than 1073741824" in line
    Path("list.csv").write_text(f"image,label\na.npy,{'9' * 5000}\n")
    (line,) = opened("list.csv")  # int() would raise: it is the name of a class, as any text
    assert line == "a.npy fails: a.npy does not exist"


# Remote folders


def test_a_run_on_another_file_system(tmp_path, images):
    out = f"memory://runs/{tmp_path.name}"
    run = runs.explain_dataset(explainer(), images[:6], out, target=0, task_images=2)
    more = runs.explain_dataset(explainer(), images, out, target=0, task_images=2)
    local = runs.explain_dataset(explainer(), images, tmp_path / "run", target=0)
    assert len(run) == 6
    assert rows(more) == rows(local)
    assert runs.verify(out).is_sound


def test_images_from_another_file_system(tmp_path, images):
    import fsspec

    system = fsspec.filesystem("memory")
    for number in range(3):
        system.pipe_file(f"/{tmp_path.name}/in/{number}.npy", npy(images[number]))
    url = f"memory://{tmp_path.name}/in"
    run = runs.explain_dataset(explainer(), url, tmp_path / "run", target=0)
    assert [key.image for key in run.keys] == ["0.npy", "1.npy", "2.npy"]
    assert run.table(["path"]).column("path").to_pylist()[0].startswith("memory://")


def test_the_local_file_system_of_fsspec(tmp_path, images):
    run = runs.explain_dataset(explainer(), images[:2], f"file://{tmp_path}/run", target=0)
    assert len(run) == 2
    assert (tmp_path / "run" / "run.json").exists()


# Executors


def lines_of(executor, images, folder):
    return runs.explain_dataset(
        explainer(), images, folder, target=0, executor=executor, task_images=3
    )


@pytest.mark.parametrize("start", ["fork", "forkserver", "spawn"])
def test_processes_give_the_rows_of_one_process(tmp_path, images, start):
    flawed = Flawed(images, mended=False)
    one = lines_of(None, flawed, tmp_path / "one")
    several = lines_of(runs.Processes(2, start=start), flawed, tmp_path / "several")
    assert rows(several) == rows(one)
    assert [row["reason"] for row in several.errors] == [row["reason"] for row in one.errors]


class Deadly:
    """A data set with an image that kills the process which reads it."""

    def __len__(self):
        return 9

    def __getitem__(self, number):
        if number == 4:
            os._exit(3)
        return np.full((1, 4, 4), 1 - number / 18)


def test_an_image_that_kills_its_worker_fails_alone(tmp_path):
    run = lines_of(runs.Processes(2, start="fork"), Deadly(), tmp_path / "run")
    assert len(run) == 8
    assert [(row["image"], row["kind"]) for row in run.errors] == [("00000004", "worker")]
    assert "ended with code 3" in run.errors[0]["reason"]


def test_a_worker_that_cannot_start_says_why(tmp_path, images):
    def factory():
        raise ValueError("no model here")

    calls = itertools.count()

    def made():
        return factory() if os.getpid() != home or next(calls) else explainer()

    home = os.getpid()
    with pytest.raises(runs.RunStoppedError, match="no model here"):
        runs.explain_dataset(
            made,
            images,
            tmp_path / "run",
            target=0,
            model_id="x",
            executor=runs.Processes(1, start="fork"),
        )


def test_slurm_through_the_local_executor_of_submitit(tmp_path, images):
    pytest.importorskip("submitit")
    slurm = runs.Slurm(str(tmp_path / "jobs"), workers=2, cluster="local")
    several = lines_of(slurm, images, tmp_path / "several")
    assert rows(several) == rows(lines_of(None, images, tmp_path / "one"))


# Dask


@pytest.fixture
def dask():
    """The library of Dask clusters."""
    return pytest.importorskip("distributed")


def test_workers_of_dask_give_the_rows_of_one_process(tmp_path, images, dask):
    flawed = Flawed(images, mended=False)
    several = lines_of(runs.DaskWorkers(2), flawed, tmp_path / "several")
    one = lines_of(None, flawed, tmp_path / "one")
    assert rows(several) == rows(one)
    assert [row["reason"] for row in several.errors] == [row["reason"] for row in one.errors]


def test_the_client_of_a_caller_is_used_and_stays_open(tmp_path, images, dask):
    with (
        dask.LocalCluster(
            n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0"
        ) as cluster,
        dask.Client(cluster) as client,
    ):
        several = lines_of(runs.DaskWorkers(), images, tmp_path / "several")
        at = runs.DaskWorkers(address=cluster.scheduler_address)
        again = lines_of(at, images, tmp_path / "again")
        assert client.submit(len, "abc").result() == 3
        assert not [name for name in client.run(plugins_of)[worker_of(client)] if "hshap" in name]
    one = rows(lines_of(None, images, tmp_path / "one"))
    assert rows(several) == one
    assert rows(again) == one


def plugins_of(dask_worker):
    return list(dask_worker.plugins)


def worker_of(client):
    return next(iter(client.nthreads()))


@pytest.mark.slow
def test_an_image_that_kills_its_worker_of_dask_fails_alone(tmp_path, dask):
    run = runs.explain_dataset(
        explainer(),
        Deadly(),
        tmp_path / "run",
        target=0,
        task_images=2,
        executor=runs.DaskWorkers(2),
    )
    assert len(run) == 8
    assert [(row["image"], row["kind"]) for row in run.errors] == [("00000004", "worker")]


def test_a_worker_of_dask_that_cannot_start_says_why(tmp_path, images, dask):
    home = os.getpid()

    def made():
        if os.getpid() != home:
            raise ValueError("no model here")
        return explainer()

    with pytest.raises(runs.RunStoppedError, match="no model here"):
        runs.explain_dataset(
            made,
            images,
            tmp_path / "run",
            target=0,
            model_id="x",
            executor=runs.DaskWorkers(1),
        )


def test_a_scheduler_of_dask_that_cannot_be_reached_is_told(tmp_path, images, dask):
    config = pytest.importorskip("dask").config
    with (
        config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(hshap.ArgumentError, match="no scheduler of Dask that can be reached"),
    ):
        lines_of(runs.DaskWorkers(address="tcp://127.0.0.1:9"), images, tmp_path / "run")


# Identity


def test_batch_sizes_do_not_change_identity_or_rows(tmp_path, images):
    one, other = (
        runs.explain_dataset(
            explainer(hshap.Batched(brightest, batch_size=size)), images, tmp_path / name, target=0
        )
        for size, name in ((3, "a"), (64, "b"))
    )
    assert [key.identity for key in one.keys] == [key.identity for key in other.keys]
    assert [row["game_values"] for row in one.rows()] == [
        row["game_values"] for row in other.rows()
    ]


# Reading


def test_a_query_reaches_no_file(tmp_path, images):
    run = runs.explain_dataset(explainer(), images, tmp_path / "run", target=0)
    (tmp_path / "secret.csv").write_text("a\n1\n")
    for sql in (
        f"select * from read_csv('{tmp_path}/secret.csv')",  # noqa: S608
        f"copy explanations to '{tmp_path}/stolen.csv'",
        "set enable_external_access = true",
        "select nothing from nowhere",
    ):
        with pytest.raises(ArgumentError, match="cannot be run"):
            run.query(sql)
    assert not (tmp_path / "stolen.csv").exists()


def test_the_columns_are_those_of_the_documented_schema(tmp_path, images):
    run = runs.explain_dataset(explainer(), images, tmp_path / "run", target=0)
    assert run.table().column_names == list(EXPLANATIONS)
    frame = run.table(["image", "score", "doubt"]).to_pandas()
    assert frame["score"].tolist() == [image.max() for image in images]
    shard = pq.read_schema(next((tmp_path / "run" / "explanations").iterdir()))
    assert shard.remove_metadata().equals(schema_of("explanations").remove_metadata())
    assert shard.metadata[b"schema"] == b"1"
    with pytest.raises(ArgumentError, match="'colour'"):
        run.table(["colour"])


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(FormatError, match="no run folder"):
        runs.open(tmp_path)
    (tmp_path / "run.json").write_text('{"format": "hshap run", "schema": 99}')
    with pytest.raises(FormatError, match="schema 99"):
        runs.open(tmp_path)
    (tmp_path / "run.json").write_text("[1")
    with pytest.raises(FormatError, match="damaged"):
        runs.open(tmp_path)


def test_an_unknown_protocol_is_refused():
    with pytest.raises(ArgumentError, match="nowhere://"):
        files_at("nowhere://x")


# Verification


@pytest.fixture
def run(tmp_path, images):
    return runs.explain_dataset(
        explainer(), images, tmp_path / "run", target=0, task_images=4, shard_rows=4
    )


def test_a_run_as_it_was_written_is_sound(run):
    found = runs.verify(run)
    assert found.is_sound
    assert (found.shards, found.rows) == (3, 10)
    assert len(found.seal) == 64


def test_stored_values_are_computed_again(run, images):
    found = runs.verify(run, explainer(), images, sample=4, seed=1)
    assert found.is_sound
    assert found.values > 100
    assert found.largest == 0.0


def test_another_model_or_changed_image_is_told(run, images):
    other = explainer(lambda batch: batch.max(axis=(1, 2, 3)) * 1.001)
    found = runs.verify(run, other, images, sample=2)
    assert any("the run was made with another model" in line for line in found.problems)
    assert any("a coalition value differs by" in line for line in found.problems)
    found = runs.verify(run, explainer(), images / 2, sample=2)
    assert all("has changed since" in line for line in found.problems)


def test_settings_that_differ_are_named(run, images):
    found = runs.verify(run, explainer(partition=Dyadic(4)), images, sample=1)
    settings = next(line for line in found.problems if "other settings" in line)
    told = "partition.min_size (2 there, 4 here)"
    assert settings == f"the run was made with other settings: {told}"


def test_verification_names_the_memory_layout(tmp_path, images):
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 1)).eval()
    made = {last: explainer(hshap.Batched(net, channels_last=last)) for last in (False, True)}
    small = images[:2].astype(np.float32)
    run = runs.explain_dataset(made[False], small, tmp_path, target=0)
    assert runs.verify(run, made[False], small, sample=1).is_sound
    problems = runs.verify(run, made[True], small, sample=1).problems
    assert any("evaluator.channels_last (False there, True here)" in line for line in problems)


def shards_of(run):
    return sorted(Path(run.folder.files.location, "explanations").iterdir())


def test_an_altered_row_is_named_with_its_shard(run):
    file = shards_of(run)[1]
    table = pq.read_table(file)
    rows = table.to_pylist()
    rows[2]["score"] += 1e-9
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
    found = runs.verify(run)
    assert f"shard explanations/{file.name} was altered" in found.problems
    assert f"row of image {rows[2]['image']!r}, target 0 was altered" in found.problems
    assert len(found.problems) == 2


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_a_flipped_byte_names_its_shard(run, place):
    file = shards_of(run)[0]
    data = bytearray(file.read_bytes())
    data[int(place * len(data))] ^= 1
    file.write_bytes(data)
    found = runs.verify(run)
    assert f"shard explanations/{file.name} was altered" in found.problems


def test_a_missing_shard_is_named(run):
    file = shards_of(run)[1]
    file.unlink()
    found = runs.verify(runs.open(run.folder.files))
    assert f"shard explanations/{file.name} is missing: a seal lists it" in found.problems


def test_a_shard_that_was_replaced_with_all_its_digests_is_named_by_the_seal(run):
    """The last shard of a writer: only the seal knows the one that was there."""
    file = shards_of(run)[-1]
    table = pq.read_table(file)
    file.unlink()
    Writer(run.folder.files).commit("explanations", table.to_pylist())
    found = runs.verify(runs.open(run.folder.files))
    assert any("a seal lists it" in line for line in found.problems)


def test_a_row_of_another_run_is_named(tmp_path, run, images):
    other = runs.explain_dataset(
        explainer(partition=Dyadic(4)), images[:1], tmp_path / "other", target=0
    )
    for file in shards_of(other):
        file.rename(tmp_path / "run" / "explanations" / file.name)
    found = runs.verify(runs.open(tmp_path / "run"))
    assert any("is not of this model, settings and image" in line for line in found.problems)


# Claims


def test_a_claim_belongs_to_one_driver_and_ends_with_it(tmp_path):
    folder = Folder(LocalFiles(tmp_path))
    assert folder.claim("task")
    child = os.fork()
    if not child:
        os._exit(folder.claim("task"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    child = os.fork()
    if not child:
        os._exit(not folder.claim("other"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert folder.claim("other")  # its owner has ended


def test_a_file_is_published_whole(tmp_path):
    publish(LocalFiles(tmp_path), "a/b", b"x" * 10)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_the_reference_lists_every_column():
    page = (Path(__file__).parents[1] / "docs" / "reference" / "runs.md").read_text("utf-8")
    for table in TABLES.values():
        for column, (_, meaning) in table.items():
            assert re.search(rf"\| `{column}` \| `[^`]+` \| {re.escape(meaning)} \|", page), column


def test_a_run_says_by_how_much_values_may_differ_in_other_batches(tmp_path, images):
    run = runs.explain_dataset(explainer(), images, tmp_path / "run", target=0)
    assert run.batch_difference == 0.0
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(576, 3)
    ).eval()
    parts = {"baseline": BLANK, "partition": Dyadic(2)}
    tables = {}
    for size in (2, 5, 64):
        made = Explainer(hshap.Batched(network, batch_size=size), **parts)
        run = runs.explain_dataset(made, images.astype(np.float32), tmp_path / str(size), target=1)
        tables[size] = [np.array(row["game_values"]) for row in run.rows(["game_values"])]
        assert run.batch_difference < 1e-4
    for one, other in itertools.combinations(tables.values(), 2):
        for values, others in zip(one, other, strict=True):
            assert np.abs(values - others).max() <= 1e-5


def test_a_stream_is_read_once(tmp_path, images):
    run = runs.explain_dataset(explainer(), iter(images), tmp_path / "run", target=0)
    assert len(run) == 10
    assert run.batch_difference == 0.0


def test_an_error_of_one_target_is_shown_beside_the_rows_of_another(tmp_path, images):
    runs.explain_dataset(explainer(), images[:2], tmp_path / "run", target=0)
    run = runs.explain_dataset(explainer(), images[:2], tmp_path / "run", target=[0, 5])
    assert len(run) == 2
    assert [row["image"] for row in run.errors] == ["00000000", "00000001"]


def test_temporary_files_of_killed_processes_are_removed(tmp_path, images):
    run = runs.explain_dataset(explainer(), images, tmp_path / "run", target=0)
    child = os.fork()
    if not child:
        LocalFiles(tmp_path / "run").write(temporary_of("explanations/x"), b"half")
        os._exit(0)
    os.waitpid(child, 0)
    mine = temporary_of("explanations/x")
    LocalFiles(tmp_path / "run").write(mine, b"of a process that still runs")
    assert len(list((tmp_path / "run" / "explanations").glob(".tmp-*"))) == 2
    again = runs.explain_dataset(explainer(), images, tmp_path / "run", target=0)
    left = list((tmp_path / "run" / "explanations").glob(".tmp-*"))
    assert [path.name for path in left] == [mine.rpartition("/")[2]]
    assert rows(again) == rows(run)


def test_a_driver_waits_for_the_images_of_another_one(tmp_path, images):
    """Another process has claimed all tasks. It ends without having worked on them."""
    home, signal, ending = tmp_path / "run", tmp_path / "claimed", tmp_path / "ending"
    child = os.fork()
    if not child:
        names = "\n".join(f"{number:08d}" for number in range(10))
        Folder(LocalFiles(home)).claim(hashlib.sha256(names.encode()).hexdigest()[:32])
        signal.touch()
        while not ending.exists():
            time.sleep(0.01)
        os._exit(0)
    while not signal.exists():
        time.sleep(0.01)

    def end():
        time.sleep(1)
        ending.touch()
        os.waitpid(child, 0)

    reaper = threading.Thread(target=end)
    reaper.start()
    run = runs.explain_dataset(explainer(), images, home, target=0)
    assert ending.exists()
    reaper.join()
    assert len(run) == 10


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("count", [1, 2, 50])
def test_runs_of_labels_tell_all_labels(kind, count):
    rng = np.random.default_rng(count)
    for pixels in (rng.integers(0, count, 400), np.repeat(rng.integers(0, count, 40), 10)):
        labels = pixels.astype(kind)
        starts, lengths = runs_of(labels)
        assert np.array_equal(np.repeat(labels[starts], lengths), labels)


@pytest.mark.parametrize("grid", [(1, 9), (2, 5), (3, 7), (8, 1), (33, 4), (3, 5, 6), (64,)])
@pytest.mark.parametrize("count", [2, 300, 70_000])
def test_cells_are_read_as_they_were_packed(grid, count):
    kind = {2: np.uint8, 300: np.uint16, 70_000: np.uint32}[count]
    labels = np.random.default_rng(count).integers(0, count, np.prod(grid)).astype(kind)
    packed = np.frombuffer(pack_labels(labels, grid), kind).reshape(-1, grid[-1])
    rows = labels.reshape(-1, grid[-1])
    for above, row, stored in zip(rows, rows[1:], packed[1:], strict=False):
        assert np.array_equal(above ^ stored, row)
    assert np.array_equal(unpack_labels(packed.tobytes(), count, grid), labels)


@pytest.mark.parametrize("seed", range(4))
def test_regions_of_a_row_are_listed_late_and_are_those_that_were_stored(seed):
    image = np.kron(np.random.default_rng(seed).random((1, 7, 9)), np.ones((5, 4)))
    made = Explainer(brightest, BLANK, hshap.Superpixels()).explain(image, target=0)
    found = from_row(as_row(made, ORIGIN))
    stored = [part for game in made.games for part in (game.region, *game.children)]
    read = [part for game in found.games for part in (game.region, *game.children)]
    free = [part for part in read if isinstance(part, hshap.Pixels)]
    assert [part.area for part in read] == [part.area for part in stored]
    assert [hash(part) for part in read] == [hash(part) for part in stored]
    assert free
    assert not any("flat" in vars(part) for part in free)
    assert read == stored
    for one, other in zip(read, stored, strict=True):
        assert sorted(one.flat.tolist()) == sorted(other.flat.tolist())
    again = pickle.loads(pickle.dumps(found))  # noqa: S301
    assert again.leaves == made.leaves
    assert all(type(part) is hshap.Pixels for part in again.leaves)
    assert not free[0].flat.flags.writeable


def test_a_claim_of_another_machine_ends_when_the_folder_is_quiet(tmp_path):
    folder = Folder(LocalFiles(tmp_path))
    folder.files.create("claims/task", b"elsewhere+boot+7+99")
    assert not folder.claim("task")
    assert not folder.claim("task", lambda owner: owner.machine != "elsewhere")
    assert folder.claim("task", lambda owner: owner.machine == "elsewhere")


def test_a_driver_is_quiet_if_its_sign_of_life_stays_the_same(tmp_path, monkeypatch):
    """A slow driver commits no shard for long; another one that was lost commits none, too."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    files = LocalFiles(tmp_path)
    slow, lost, old = (Owner(name, "boot", "7", "99") for name in ("slow", "lost", "old"))
    watch = Watch(Folder(files), 300.0)
    publish(files, sign_of(lost), b"the last one")
    answers = {}
    for now[0] in (0.0, 200.0, 400.0, 600.0):
        publish(files, sign_of(slow), str(now[0]).encode())
        answers[now[0]] = [watch.is_quiet(owner) for owner in (slow, lost, old)]
        if now[0] == 200.0:  # a sign of the one that shows none of its own
            publish(files, f"errors/{'a' * 12}-000000-{'b' * 64}.parquet", b"")
    assert answers == {
        0.0: [False, False, False],
        200.0: [False, False, False],
        400.0: [False, True, False],
        600.0: [False, True, False],
    }
    now[0] = 701.0
    assert watch.is_quiet(old)


def test_a_driver_at_work_shows_that_it_lives(tmp_path):
    """Its signs change while it explains one image, and are gone at the end."""
    sign, seen = tmp_path / sign_of(this_process()), set()

    def slow(batch):
        while len(seen) < 3:
            with suppress(FileNotFoundError):
                seen.add(sign.read_bytes())
        return batch.max(axis=(1, 2, 3))

    made = hshap.Explainer(slow, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(min_size=1))
    own = Fingerprint("model", "settings")
    source = as_source(np.ones((1, 1, 2, 2), np.float32), decode=None, root=None)
    job = Job(made, source, LocalFiles(tmp_path), own, (0,))
    Driver(job, source.items(), 1, retry_failed=False, quiet=0.1).run(runs.InProcess())
    assert len(seen) == 3
    assert list((tmp_path / "claims").iterdir()) == []


def test_a_driver_gives_back_only_its_own_claims(tmp_path):
    folder = Folder(LocalFiles(tmp_path))
    folder.files.create("claims/theirs", b"elsewhere+boot+7+99")
    assert folder.claim("mine")
    folder.release("theirs")
    folder.release("mine")
    assert folder.files.names("claims") == ["theirs"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the other driver is a fork")
def test_signs_of_life_of_a_killed_driver_are_removed(tmp_path):
    folder = Folder(LocalFiles(tmp_path))
    publish(folder.files, sign_of(this_process()), b"lives")
    publish(folder.files, sign_of(Owner("elsewhere", "boot", "7", "99")), b"unknown")
    child = os.fork()
    if not child:
        publish(folder.files, sign_of(this_process()), b"ends")
        os._exit(0)
    os.waitpid(child, 0)
    folder.tidy()
    assert [name.split("+")[1] for name in folder.files.names("claims")] == sorted(
        [this_process().machine, "elsewhere"]
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the other driver is a fork")
def test_a_claim_of_a_driver_that_runs_here_never_ends(tmp_path):
    folder = Folder(LocalFiles(tmp_path))
    assert folder.claim("task")
    child = os.fork()
    if not child:
        os._exit(folder.claim("task", lambda _: True))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_run_goes_on_after_its_machine_was_lost(tmp_path, images):
    """Its claims name a process that cannot be looked at, so they could be for ever."""
    names = "\n".join(f"{number:08d}" for number in range(len(images)))
    task = hashlib.sha256(names.encode()).hexdigest()[:32]
    files = LocalFiles(tmp_path)
    files.create(f"claims/{task}", b"elsewhere+boot+7+99")
    own = Fingerprint("model", "settings")
    job = Job(explainer(), as_source(images, decode=None, root=None), files, own, (0,))
    driver = Driver(job, job.source.items(), len(images), retry_failed=False, quiet=0.5)
    driver.run(runs.InProcess())
    assert len(runs.Run.at(Folder(files))) == len(images)


def test_a_run_needs_no_hard_links(tmp_path, images, monkeypatch):
    """Some disks have none, such as exFAT and mounted object stores."""

    def no_link(source, target):
        raise OSError(errno.EPERM, "Operation not permitted", str(target))

    monkeypatch.setattr(os, "link", no_link)
    run = runs.explain_dataset(explainer(), images, tmp_path / "run", target=0)
    assert len(run) == len(images)
    assert not [path for path in (tmp_path / "run").rglob("*") if ".tmp-" in path.name]
    assert not LocalFiles(tmp_path / "run").create("run.json", b"other")


def test_a_file_that_appears_while_a_link_fails_is_left(tmp_path, monkeypatch):
    def no_link(source, target):
        Path(target).write_bytes(b"theirs")
        raise OSError(errno.EPERM, "Operation not permitted", str(target))

    monkeypatch.setattr(os, "link", no_link)
    assert not LocalFiles(tmp_path).create("claim", b"mine")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("claim", b"theirs")]


def test_a_disk_that_refuses_a_link_for_another_reason_is_told(tmp_path, monkeypatch):
    def no_link(source, target):
        raise OSError(errno.EIO, "Input/output error", str(target))

    monkeypatch.setattr(os, "link", no_link)
    with pytest.raises(OSError, match="Input/output error"):
        LocalFiles(tmp_path).create("claim", b"mine")
    assert list(tmp_path.iterdir()) == []


class Late(LocalFiles):
    """Another driver writes run.json between the first look at the folder and the second."""

    def read(self, name):
        if name == "run.json" and not (self.root / name).exists():
            self.root.mkdir(exist_ok=True)
            (self.root / name).write_bytes((self.root.parent / "first" / name).read_bytes())
            raise FileNotFoundError(name)
        return super().read(name)


def test_two_drivers_may_begin_at_the_same_moment(tmp_path, images):
    runs.explain_dataset(explainer(), images[:2], tmp_path / "first", target=0)
    run = runs.explain_dataset(explainer(), images, Late(tmp_path / "second"), target=0)
    assert len(run) == 10
    other = explainer(partition=Dyadic(4))
    with pytest.raises(ArgumentError, match=r"another partition\.min_size"):
        runs.explain_dataset(other, images, Late(tmp_path / "third"), target=0)
