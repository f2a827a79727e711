"""Regions by their runs of pixels: corners, lists and tables, against masks and lists of pixels."""

import json

import numpy as np
import pyarrow as pa
import pytest

import hshap
from hshap.errors import FormatError
from hshap.games.tree import coefficients, parts, shares
from hshap.partitions.joining import touching
from hshap.partitions.lazy import LazyPixels, corners_of, find_corners, listed_together
from hshap.partitions.regions import Pixels, blocks, runs
from hshap.runs.storing.columns import rows_as_arrays
from hshap.runs.storing.rows import NEEDED, NUMBERS, Origin, as_row
from hshap.runs.storing.schema import schema_of
from hshap.runs.storing.stored_rows import from_row, from_rows

ORIGIN = Origin("a.png", "identity", "", "sha256", "0")


def lazy(flat, grid):
    begins, ends = runs(flat).reshape(-1, 2).T
    return LazyPixels(
        grid, area=len(flat), total=int(flat.sum()), spans=lambda: (begins, ends - begins)
    )


def some_pixels(rng, grid):
    chosen = rng.random(grid) < rng.choice([0.02, 0.3, 0.95])
    chosen.reshape(-1)[rng.integers(chosen.size)] = True
    return np.flatnonzero(chosen)


@pytest.mark.parametrize("grid", [(40,), (1, 9), (9, 1), (7, 11), (4, 5, 6), (2, 3, 1, 4)])
def test_corners_of_runs_are_those_of_all_pixels(grid):
    rng = np.random.default_rng(0)
    for _ in range(100):
        flat = some_pixels(rng, grid)
        places = np.unravel_index(flat, grid)
        expected = tuple(int(a.min()) for a in places), tuple(int(a.max()) + 1 for a in places)
        begins, ends = runs(flat).reshape(-1, 2).T
        assert corners_of(begins, ends - begins, [0], grid) == [expected]
        assert lazy(flat, grid).corners == Pixels(flat, grid).corners == expected


def test_corners_of_many_regions_at_once_are_those_of_each():
    rng = np.random.default_rng(2)
    for grid in [(40,), (7, 11), (4, 5, 6)]:
        every = [some_pixels(rng, grid) for _ in range(9)]
        regions = [lazy(flat, grid) for flat in every]
        find_corners([*regions, Pixels(every[0], grid)])
        assert all(region.has_corners for region in regions)
        assert [one.corners for one in regions] == [Pixels(flat, grid).corners for flat in every]
    alone = [lazy(every[0], grid), lazy(np.arange(3), (9,))]
    find_corners(alone)  # of two grids: each finds its own
    assert not any(region.has_corners for region in alone)


def test_regions_are_listed_together_whether_they_were_listed_before_or_not():
    rng = np.random.default_rng(1)
    every = [some_pixels(rng, (9, 8)) for _ in range(4)]
    regions = [lazy(flat, (9, 8)) for flat in every]
    np.testing.assert_array_equal(listed_together(regions), np.concatenate(every))
    assert not any(region.is_listed for region in regions)
    _ = regions[1].flat
    np.testing.assert_array_equal(listed_together(regions), np.concatenate(every))


@pytest.mark.parametrize("count", [2, 20, 300])
def test_groups_that_touch_are_those_of_neighbours_pixel_by_pixel(count):
    rng, grid = np.random.default_rng(count), (30, 40)
    owner = rng.integers(-2 * count, count, grid)
    owner.reshape(-1)[: 2 * count : 2] = np.arange(count)
    regions = tuple(lazy(np.flatnonzero(owner.ravel() == number), grid) for number in range(count))
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


def score(batch):
    return np.tanh(batch[:, 0].max(axis=(1, 2))) - 0.3 * batch[:, 0].mean(axis=(1, 2))


@pytest.fixture(scope="module", params=[{"cell_size": 3}, None])
def explanation(request):
    rng = np.random.default_rng(4)
    partition = hshap.Dyadic(3) if request.param is None else hshap.Spots(**request.param)
    image = rng.random((1, 24, 24)) ** 4
    made = hshap.Explainer(score, baseline=hshap.Constant(0.0), partition=partition)
    return made.explain(image, target=0)


def test_shares_and_coefficients_are_those_of_the_parts(explanation):
    for found in (explanation, explanation.at(min_area=24), explanation.at(min_area=10**6)):
        told = parts(found.games)
        assert {key: str(part.share) for key, part in told.items()} == {
            key: str(value) for key, value in shares(found.games).items()
        }
        assert {key: part.coefficient for key, part in told.items()} == coefficients(found.games)


def as_table(rows):
    schema = pa.schema([schema_of("explanations").field(name) for name in NEEDED])
    return pa.Table.from_pylist([{name: row[name] for name in NEEDED} for row in rows], schema)


def test_rows_of_a_table_have_the_numbers_of_its_lists(explanation):
    row = as_row(explanation, ORIGIN)
    made = pa.concat_tables([as_table([row]), as_table([row, {**row, "leaves": [0]}])])
    found = rows_as_arrays(made.slice(1))
    assert [one["leaves"].tolist() for one in found] == [row["leaves"], [0]]
    assert all(found[0][name].tolist() == row[name] for name in NUMBERS if row[name])
    assert found[0]["game_values"].base is None  # it keeps no other row of the shard
    read = next(from_rows(found[:1]))
    assert read.attribution().tobytes() == from_row(row).attribution().tobytes()


@pytest.mark.parametrize("name", ["leaves", "game_players", "region_kind", "game_values"])
@pytest.mark.parametrize("lost", ["all", "one"])
def test_numbers_that_a_table_lacks_are_refused(explanation, name, lost):
    row = as_row(explanation, ORIGIN)
    damaged = {**row, name: None if lost == "all" else [None, *row[name][1:]]}
    with pytest.raises(FormatError, match="damaged"):
        list(from_rows(rows_as_arrays(as_table([row, damaged]))))


def test_settings_that_are_only_equal_are_not_the_same(explanation):
    row = as_row(explanation, ORIGIN)
    header = json.loads(row["header"])
    assert header["settings"]["search"]["keep_whole"] is False
    header["settings"]["search"]["keep_whole"] = 0  # equal to False, and no flag
    odd = {**row, "header": json.dumps(header)}
    with pytest.raises(FormatError, match="keep_whole"):
        from_row(odd)
    found = from_rows([row, odd])
    assert next(found).settings.search.keep_whole is False
    with pytest.raises(FormatError, match="keep_whole"):
        next(found)
