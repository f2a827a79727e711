"""Regions that files and rows store as labels are those of the run; rows read the same in bulk."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import hshap
from hshap.errors import FormatError
from hshap.explanation.region_tables import pack_labels, unpack_labels
from hshap.partitions.joining import touching
from hshap.partitions.regions import Pixels, blocks
from hshap.runs.storing.columns import rows_as_arrays
from hshap.runs.storing.rows import NEEDED, Origin, as_row
from hshap.runs.storing.schema import schema_of
from hshap.runs.storing.stored_rows import from_row, from_rows

GRIDS = [(40,), (1, 9), (9, 1), (7, 11), (4, 5, 6), (2, 3, 1, 4)]


@pytest.mark.parametrize("grid", GRIDS)
def test_pixels_have_the_corners_of_their_places(grid):
    rng = np.random.default_rng(0)
    for share in (0.02, 0.3, 0.95):
        chosen = rng.random(grid) < share
        chosen.reshape(-1)[rng.integers(chosen.size)] = True
        places = np.argwhere(chosen)
        expected = (tuple(places.min(0).tolist()), tuple((places.max(0) + 1).tolist()))
        assert Pixels(np.flatnonzero(chosen), grid).corners == expected


@pytest.mark.parametrize("grid", GRIDS)
def test_labels_are_read_as_they_were_packed(grid):
    for count, kind in ((7, np.uint8), (300, np.uint16), (70000, np.uint32)):
        labels = np.random.default_rng(count).integers(0, count, grid).astype(kind)
        assert np.array_equal(unpack_labels(pack_labels(labels), count, grid), labels.ravel())


@pytest.mark.parametrize("count", [2, 20, 300])
def test_groups_touch_as_pixels_do(count):
    """Along sides and not corners, pixel by pixel."""
    rng, grid = np.random.default_rng(count), (30, 40)
    owner = rng.integers(-2 * count, count, grid)
    owner.reshape(-1)[: 2 * count : 2] = np.arange(count)
    regions = tuple(Pixels(np.flatnonzero(owner == number), grid) for number in range(count))
    group = list(range(count))
    for y, x in np.ndindex(grid):
        for b in (owner[y, x + 1] if x < 39 else -1, owner[y + 1, x] if y < 29 else -1):
            a = owner[y, x]
            if a >= 0 and b >= 0 and group[a] != group[b]:
                old, new = group[b], group[a]
                group = [new if one == old else one for one in group]
    expected = {frozenset(i for i in range(count) if group[i] == one) for one in set(group)}
    pieces = [corners for region in regions for corners in blocks(region, grid)]
    assert {frozenset(found) for found in touching(pieces, regions, grid)} == expected


@pytest.fixture(scope="module")
def row():
    def score(batch):
        return np.tanh(batch[:, 0].max(axis=(1, 2))) - 0.3 * batch[:, 0].mean(axis=(1, 2))

    image = np.random.default_rng(4).random((1, 24, 24)) ** 4
    explainer = hshap.Explainer(score, hshap.Constant(0.0), hshap.Spots(3))
    found = explainer.explain(image, target=0)
    return as_row(found, Origin("a.png", "identity", "", "sha256", "0"))


def in_bulk(rows):
    schema = pa.schema([schema_of("explanations").field(name) for name in NEEDED])
    table = pa.Table.from_pylist([{name: one[name] for name in NEEDED} for one in rows], schema)
    return rows_as_arrays(table)


def test_rows_in_bulk_read_as_alone(row):
    for found in from_rows(in_bulk([row, row])[1:]):
        assert found.attribution().tobytes() == from_row(row).attribution().tobytes()
        assert found.boxes() == from_row(row).boxes()


@pytest.mark.parametrize("name", ["leaves", "game_players", "region_kind", "game_values"])
@pytest.mark.parametrize("lost", ["all", "one"])
def test_rows_that_lack_numbers_are_refused(row, name, lost):
    damaged = {**row, name: None if lost == "all" else [None, *row[name][1:]]}
    with pytest.raises(FormatError, match="damaged"):
        list(from_rows(in_bulk([row, damaged])))


def test_equal_settings_are_not_the_same(row):
    header = json.loads(row["header"])
    assert header["settings"]["search"]["keep_whole"] is False
    header["settings"]["search"]["keep_whole"] = 0  # equal to False, and no flag
    found = from_rows([row, {**row, "header": json.dumps(header)}])
    assert next(found).settings.search.keep_whole is False
    with pytest.raises(FormatError, match="keep_whole"):
        next(found)
