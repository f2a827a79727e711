"""Rows of a run: they read back as the explanations that were made, or are refused as damaged."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
import pyarrow.parquet as pq

import hshap
from hshap import Bisection, Constant, Dyadic, Explainer, References, Shifted, runs
from hshap.errors import FormatError

SIDE = 12
RANDOM = References(np.random.default_rng(1).random((3, 1, SIDE, SIDE)) / 9)


def highest(batch):
    return batch.reshape(len(batch), -1).max(axis=1)


def images(count=3):
    rng, made = np.random.default_rng(0), np.zeros((count, 1, SIDE, SIDE))
    for image in made:
        image[0, 2:5, 6:11] = rng.random((3, 5)) + 0.5
    return made


KINDS = {
    "blocks": {"partition": Dyadic(3)},
    "halves": {"partition": Bisection("auto")},
    "rolled blocks": {"partition": Shifted(Dyadic(3), (1, 2))},
    "cells": {"partition": hshap.Spots(cell_size=3)},
    "superpixels": {"partition": hshap.Superpixels()},
    "random baseline": {"partition": Dyadic(4), "baseline": RANDOM},
}


def explainer(kind):
    return Explainer(highest, **{"baseline": Constant(0.0), **KINDS[kind]})


def stored(kind, out, dataset=None):
    dataset = images() if dataset is None else dataset
    return runs.explain_dataset(explainer(kind), dataset, out, target=0, positives=None)


def same(read, made):
    for field in ("grid", "target", "leaves", "evaluations", "draws", "unfinished", "class_index"):
        assert getattr(read, field) == getattr(made, field), field
    assert [game.region for game in read.games] == [game.region for game in made.games]
    assert [game.children for game in read.games] == [game.children for game in made.games]
    for one, other in zip(read.games, made.games, strict=True):
        for numbers in ("values", "coefficients", "errors"):
            assert getattr(one, numbers).tobytes() == getattr(other, numbers).tobytes()
    assert read.boxes() == made.boxes()
    assert read.at(tolerance=1.0).boxes() == made.at(tolerance=1.0).boxes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_reads_back_as_the_explanation(kind, tmp_path):
    if kind == "superpixels":
        pytest.importorskip("higra")
    run = stored(kind, tmp_path / "run")
    for read, image in zip(run, images(), strict=True):
        made = explainer(kind).explain(image, target=0)
        made.save(tmp_path / "x.npz")
        same(read, made)
        same(read, hshap.Explanation.load(tmp_path / "x.npz"))
        again = pickle.loads(pickle.dumps(read))  # noqa: S301, our own
        assert again.leaves == made.leaves
    parts = [part for game in read.games for part in (game.region, *game.children)]
    free = [part for part in parts if isinstance(part, hshap.protocols.Pixels)]
    assert bool(free) == (kind in ("cells", "superpixels"))
    for one, other in zip(
        parts, [p for game in made.games for p in (game.region, *game.children)], strict=True
    ):
        assert (one.area, hash(one), one) == (other.area, hash(other), other)


def test_volumes_are_rows_too(tmp_path):
    volume = images(1)[0][:, None, :, 2:8].repeat(4, axis=1)
    made = Explainer(highest, Constant(0.0), Bisection(3))
    run = runs.explain_dataset(made, [volume], tmp_path, target=0, positives=None)
    same(run["00000000"], made.explain(volume, target=0))


def test_a_typical_row_takes_five_kilobytes(tmp_path):
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

    run = runs.explain_dataset(Explainer(reddish), dataset, tmp_path, target=0, positives=None)
    size = sum(file.stat().st_size for file in tmp_path.rglob("*.parquet"))
    assert len(run) == 12
    assert size / 12 <= 5000


# Damaged rows


def altered(run, number, name, value):
    """Write another value into a row of a run; return the run as it is read then."""
    place = Path(run.folder.files.location)
    (shard,) = (place / "explanations").iterdir()
    table = pq.read_table(shard)
    rows = table.to_pylist()
    rows[number][name] = value
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), shard)
    return runs.open(place), lambda: pq.write_table(table, shard)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Runs of three images, whose rows are of all kinds."""
    place = tmp_path_factory.mktemp("sound")
    kinds = ("blocks", "rolled blocks", "cells", "random baseline")
    return [stored(kind, place / kind) for kind in kinds]


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
    ],
)
def test_a_damaged_row_is_named_after_sound_ones(sound, name, value):
    run, mend = altered(sound[0], 1, name, value)
    try:
        found = iter(run)
        next(found).boxes()
        with pytest.raises(FormatError, match="the row of '00000001' is damaged"):
            next(found)
        run["00000002"].boxes()
    finally:
        mend()


WHOLE_NUMBERS = [0, 1, -1, 2, 17, 255, 2**31 - 1, -(2**31)]
FLOATS = [float("nan"), float("inf"), 1e308, -1.0, 0.0, 7.5]
HEADERS = [None, True, -1, 0, 2**63, "x", [], [[]], {}, [1, 2], [2**40, 2**40], [8, 8, 8], [0, 5]]


def changed(row, name, rng):
    """Return a column with a change that nobody makes by intention."""
    value = row[name]
    if isinstance(value, list):
        place = rng.randrange(len(value) + 1)
        floats = ("game_values", "game_coefficients", "game_errors")
        other = rng.choice(FLOATS if name in floats else WHOLE_NUMBERS)
        with_other = [*value[:place], other, *value[place + 1 :]]
        beyond = [*value[:-1], len(row["region_kind"])]  # a region of the next row in a block
        return rng.choice([value[:place], value[::-1], with_other, beyond])
    if isinstance(value, bytes):
        flipped = bytes(byte ^ (rng.random() < 0.01) for byte in value)
        return rng.choice([flipped, value[: len(value) // 2], value + b"x"])
    if name == "header":
        header = json.loads(value)
        return json.dumps({**header, rng.choice(list(header)): rng.choice(HEADERS)})
    return rng.choice(["none", "all", "leaves", "x", None])


@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.fuzz)])
def test_rows_changed_at_random_are_refused_or_whole(sound, count):
    rng, refused, wholes = random.Random(0), 0, 0
    columns = [name for name in next(sound[0].rows()) if name.startswith(("game", "region"))]
    columns += ["header", "leaves", "unfinished", "cells"]
    for _ in range(count):
        run, number, name = rng.choice(sound), rng.randrange(3), rng.choice(columns)
        row = list(run.rows())[number]
        try:
            run, mend = altered(run, number, name, changed(row, name, rng))
        except (pa.ArrowInvalid, OverflowError, pa.ArrowTypeError):  # no such file can be written
            continue
        read = 0
        try:
            for found in run:
                assert np.isfinite(found.attribution()).all()
                found.boxes()
                read += 1
            wholes += 1
        except FormatError as error:
            refused += 1
            assert read == number
            assert f"the row of '0000000{number}'" in str(error)  # noqa: PT017
        finally:
            mend()
    assert refused > count / 4
    assert wholes > count / 20
