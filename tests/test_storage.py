"""A file that is not a valid explanation is refused when it is loaded, never later."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import struct
import threading
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from oracle import any_marked, marked, same_explanation

import hshap
from hshap import Bisection, Constant, Dyadic, Explainer, Explanation, Shifted
from hshap.errors import ArgumentError, FormatError
from hshap.explanation.region_tables import pack_labels, unpack_labels
from hshap.explanation.validity import wrong_numbers
from hshap.protocols import Box, Pixels

GRID = (8, 8)


def mean(batch):
    return batch.mean(axis=(1, 2, 3)) + batch[:, 0, 2, 3]


def explain(partition, **recipes):
    image = np.random.default_rng(1).random((1, *GRID))
    recipes = {"baseline": Constant(0.0), **recipes}
    return Explainer(mean, partition=partition, **recipes).explain(image, target=0)


def stripes(image):
    """Split an image into a row and, below it, every second pixel, again and again."""

    def rule(region):
        halves = [region.flat[i::2] for i in range(2)] if region.area >= 12 else []
        return tuple(Pixels(half, GRID, rule) for half in halves)

    parts = lambda region: (Box((0, 0), (1, 8)), Pixels(region.flat[8:], GRID, rule))
    return Pixels(np.arange(64), GRID, parts)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.npz"


def rewrite(path, found, change):
    """Save an explanation, let `change` edit its header and arrays, and write a valid archive."""
    found.save(path)
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name].copy() for name in archive.files}
    header = json.loads(arrays["header"].tobytes())
    change(header, arrays)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **arrays)


def entry(name, place, value):
    """Return a change of one number in an array."""

    def change(header, arrays):
        arrays[name].reshape(-1)[place] = value

    return change


def top(name, value):
    """Return a change of one value in the header."""
    return lambda header, arrays: header.__setitem__(name, value)


def fact(name, value):
    """Return a change of one fact about the scores."""
    return lambda header, arrays: header["provenance"].__setitem__(name, value)


def within(*names, value):
    """Return a change of one value in the settings."""

    def change(header, arrays):
        holder = header["settings"]
        for name in names[:-1]:
            holder = holder[name]
        holder[names[-1]] = value

    return change


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


def swap_rows(header, arrays):
    """Let the second game come first."""
    for name in ("game_region", "game_players"):
        arrays[name][[0, 1]] = arrays[name][[1, 0]]
    for name, size in (("children", 4), ("coefficients", 4), ("errors", 4), ("values", 16)):
        rows = arrays[f"game_{name}"].reshape(-1, size)
        rows[[0, 1]] = rows[[1, 0]]


def drop_game(header, arrays):
    """Leave out the last game: its parts are then parts of nothing."""
    for name, size in (("region", 1), ("players", 1), ("children", 4), ("coefficients", 4)):
        arrays[f"game_{name}"] = arrays[f"game_{name}"][:-size]
    arrays["game_errors"] = arrays["game_errors"][:-4]
    arrays["game_values"] = arrays["game_values"][:-16]


def more_of(name):
    def change(header, arrays):
        arrays[name] = np.concatenate([arrays[name], arrays[name][-1:]])

    return change


def as_type(name, dtype):
    def change(header, arrays):
        arrays[name] = arrays[name].astype(dtype)

    return change


def shift_all_values(header, arrays):
    arrays["game_values"][16:32] += 1.0


# The quadtree of an image of 8 x 8 down to boxes of 2 x 2: game 0 is the root's, region 0 is the
# root, and regions 1 to 4 are its parts.
FAULTS = {
    "no grid": (top("grid", []), "grid is no list"),
    "a negative grid": (top("grid", [-8, -8]), "side -8"),
    "a huge grid": (top("grid", [2**52, 2**52]), "too many pixels"),
    "a smaller grid": (top("grid", [8, 7]), "outside of the grid"),
    "a larger grid": (top("grid", [8, 9]), "misses pixels"),
    "another number of axes": (top("grid", [8, 8, 1]), "region_corners has another shape"),
    "a target that is none": (top("target", None), "target"),
    "a class that is not the target": (top("class_index", 3), "class_index is not the target"),
    "a class that is text": (top("class_index", "0"), "class_index"),
    "no evaluations": (top("evaluations", 0), "evaluations"),
    "no draws": (top("draws", 0), "draws"),
    "a negative position": (top("position", -1), "position"),
    "negative seconds": (top("seconds", -0.5), "seconds"),
    "seconds that are no number": (top("seconds", float("nan")), "seconds"),
    "settings that are a list": (top("settings", []), "settings is no mapping"),
    "deep settings": (within("model", value=nested(100)), "over 64 levels"),
    "a search with unknown options": (within("search", "depth", value=1), "has no option depth"),
    "a search with a bad option": (within("search", "tolerance", value=-1), "tolerance must be"),
    "a missing entry": (lambda header, arrays: header.pop("draws"), "KeyError: .*draws"),
    "no provenance": (lambda header, arrays: header.pop("provenance"), "KeyError: .*provenance"),
    "no facts of the scores": (top("provenance", {}), "provenance lacks facts"),
    "a negative count": (fact("full", -1), "full is no number"),
    "a comparison of another name": (fact("comparison", "PASSED"), "comparison is not one of"),
    "batches of no name": (fact("batches", None), "batches is not one of"),
    "a reason that is no text": (fact("reason", 1), "reason is no text"),
    "an unknown kind": (entry("region_kind", 2, 3), "of no known kind"),
    "a box beyond the grid": (entry("region_corners", 2, 9), "outside of the grid"),
    "a box that is inside out": (
        lambda h, a: a["region_corners"][1].__setitem__(slice(None), [[4, 4], [2, 2]]),
        "no pixels",
    ),
    "a part that overlaps": (
        lambda h, a: a["region_corners"].__setitem__(4, a["region_corners"][3]),
        "two parts overlap|outside of its region",
    ),
    "a part elsewhere": (
        lambda h, a: a["region_corners"].__setitem__([5, 9], a["region_corners"][[9, 5]]),
        "outside of its region",
    ),
    "cells that no region has": (
        lambda h, a: a.__setitem__("cells", np.zeros(64, np.uint8)),
        "cells, but no region of that kind",
    ),
    "a negative number of a region": (entry("game_region", 1, -1), "number of no region"),
    "a negative leaf": (entry("leaves", 0, -1), "leaves has a number of no region"),
    "a leaf twice": (more_of("leaves"), "leaves has a region twice"),
    "a leaf inside of a leaf": (entry("leaves", 0, 0), "a leaf holds another"),
    "an unfinished region that was split": (
        lambda h, a: a.__setitem__("unfinished", np.zeros(1, np.int64)),
        "an unfinished region was split",
    ),
    "no players": (entry("game_players", 0, 0), "players"),
    "many players": (entry("game_players", 0, 60), "players"),
    "a game too many": (more_of("game_region"), "another length"),
    "no games": (
        lambda h, a: a.update({name: a[name][:0] for name in a if name.startswith("game_")}),
        "there is no game",
    ),
    "a game left out": (drop_game, "no part of any other"),
    "a game of one region twice": (entry("game_region", 2, 1), "two games|precedes|two scores"),
    "a part before its whole": (swap_rows, "no part of any other|precedes|misses"),
    "NaN in the values": (entry("game_values", 3, np.nan), "values are not finite"),
    "enormous values": (entry("game_values", 3, 1e307), "values are not finite"),
    "errors of a fixed baseline": (entry("game_errors", 0, 0.1), "standard errors"),
    "missing errors": (entry("game_errors", 0, np.nan), "standard errors are missing"),
    "values of another type": (as_type("game_values", np.float32), "float32 numbers"),
    "corners without axes": (
        lambda h, a: a.__setitem__("region_corners", a["region_corners"].ravel()),
        "has 1 axes, not 3",
    ),
    "an array more": (lambda h, a: a.__setitem__("more", np.zeros(2)), "has others besides"),
    "an array less": (lambda h, a: a.pop("unfinished"), "lacks arrays"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_file_with_a_fault_is_refused_and_the_fault_named(case, path):
    change, told = FAULTS[case]
    rewrite(path, explain(Dyadic(2)), change)
    with pytest.raises(FormatError, match=told) as caught:
        Explanation.load(path)
    message = str(caught.value)
    assert re.fullmatch(r".*x\.npz is damaged \(.*\); save the explanation again", message)


def labels_as(change):
    """Change the label of each pixel."""

    def apply(header, arrays):
        grid, count = tuple(header["grid"]), len(arrays["region_kind"])
        labels = unpack_labels(arrays["cells"].tobytes(), count, grid).reshape(grid)
        arrays["cells"] = np.frombuffer(pack_labels(change(labels, count)), np.uint8)

    return apply


CELLS = {
    "of no region": (labels_as(lambda labels, count: np.full_like(labels, 255)), "of no region"),
    "of the root": (labels_as(lambda labels, _: 0 * labels), "a region with parts"),
    "that a region lacks": (
        labels_as(lambda labels, _: np.where(labels == labels.max(), labels.min(), labels)),
        "a region has no pixels",
    ),
    "too few": (lambda h, a: a.update(cells=a["cells"][:-1]), "cells miss pixels"),
    "none": (lambda h, a: a.update(cells=a["cells"][:0]), "cells miss pixels"),
}


@pytest.mark.parametrize("case", CELLS)
def test_faulty_cells_are_refused(case, path):
    change, told = CELLS[case]
    rewrite(path, explain(stripes), change)
    with pytest.raises(FormatError, match=told):
        Explanation.load(path)


@pytest.mark.parametrize(
    "partition",
    [Dyadic(2), Bisection(1), Shifted(Bisection(2), (3, 5)), Shifted(stripes, (1, 2)), stripes],
)
@pytest.mark.parametrize("random", [False, True])
def test_every_run_is_saved_and_loaded_and_so_are_its_readings(partition, random, path, rng):
    baseline = hshap.References(rng.random((3, 1, *GRID))) if random else Constant(0.0)
    found = explain(partition, baseline=baseline)
    for read in (found, found.at(min_area=20), found.at(min_area=100)):
        read.save(path)
        again = Explanation.load(path)
        assert again.leaves == read.leaves
        for name in ("coefficients", "attribution"):
            assert np.array_equal(getattr(read, name)(), getattr(again, name)())
        assert str(again.parts) == str(read.parts)  # NaN is an error that is not known
        assert again.settings == read.settings
        assert (again.provenance, again.audit) == (read.provenance, read.audit)
    assert same_explanation(Explanation.load(path), found.at(min_area=100)) or random


def test_draws_that_cancel_are_still_saved(path):
    """Means over draws lose digits; their Shapley values are then equal only up to those."""
    references = np.zeros((2, 1, *GRID))
    references[0], references[1] = 1e6, -1e6
    found = explain(Bisection(2), baseline=hshap.References(references))
    found.save(path)
    assert Explanation.load(path).leaves == found.leaves


def overlapping(image):
    def rule(region):
        return (Pixels(np.arange(40), GRID), Pixels(np.arange(24, 64), GRID))

    return Pixels(np.arange(64), GRID, rule)


def uncovered(image):
    return Pixels(np.arange(60), GRID, lambda region: ())


@pytest.mark.parametrize(
    ("partition", "told"),
    [(overlapping, "cover|overlap"), (uncovered, "misses pixels|do not cover")],
)
def test_unsound_explanations_are_not_saved(partition, told, path):
    with pytest.raises(ArgumentError, match=rf"cannot be saved \(.*({told}).*hshap\.testing"):
        explain(partition).save(path)
    assert not path.exists()


# Limits


def bomb(path, name, count):
    """Write a small archive with an array of very many zeros."""
    explain(Dyadic(2)).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    text = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({count},), }}\n".encode()
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            if member != f"{name}.npy":
                archive.writestr(member, content)
        with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
            file.write(start)
            for _ in range(count // 2**17):
                file.write(bytes(2**20))


def test_a_small_file_of_much_data_is_refused_before_it_is_unpacked(path):
    bomb(path, "game_region", 2**24)
    assert path.stat().st_size < 2**18
    tracemalloc.start()
    with pytest.raises(FormatError, match=r"too large: it takes 134,\d+,\d+ bytes .* max_bytes"):
        Explanation.load(path, max_bytes=2**26)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def declare(path, size):
    """Let the list of members announce other sizes than they have."""
    data = bytearray(path.read_bytes())
    place = data.find(b"PK\x01\x02")
    while place >= 0:
        data[place + 24 : place + 28] = struct.pack("<I", size)
        place = data.find(b"PK\x01\x02", place + 4)
    path.write_bytes(data)


def test_announced_sizes_are_not_trusted(path):
    bomb(path, "leaves", 2**24)
    declare(path, 100)
    tracemalloc.start()
    with pytest.raises(FormatError, match="not an hshap explanation"):
        Explanation.load(path)
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


def test_a_grid_of_more_pixels_than_memory_is_refused(path):
    box = np.array([[[0, 0], [2**20, 2**20]]])

    def change(header, arrays):
        header["grid"] = [2**20, 2**20]
        header["evaluations"] = 2
        arrays.update(
            game_region=np.zeros(1, np.int64),
            game_children=np.zeros(1, np.int64),
            game_players=np.ones(1, np.int64),
            game_values=np.array([0.0, 1.0]),
            game_coefficients=np.ones(1),
            game_errors=np.zeros(1),
            leaves=np.zeros(1, np.int64),
            region_kind=np.zeros(1, np.uint8),
            region_corners=box,
        )

    rewrite(path, explain(Dyadic(2)), change)
    with pytest.raises(FormatError, match=r"too large: .* pass a larger max_bytes if you trust"):
        Explanation.load(path)
    # Nothing else is wrong with it.
    assert Explanation.load(path, max_bytes=2**44).score == 1.0


def test_a_list_of_very_many_members_is_refused(path):
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(2000):
            archive.writestr(str(number), b"")
    with pytest.raises(FormatError, match="not an hshap explanation") as caught:
        Explanation.load(path)
    assert "more than 1000 members" in str(caught.value.__cause__)


def test_the_limit_is_a_whole_number(path):
    explain(Dyadic(2)).save(path)
    for value in (0, -1, 1.5, "1 GiB", None):
        with pytest.raises(ArgumentError, match="max_bytes"):
            Explanation.load(path, max_bytes=value)


# Archives


def repack(path, *, method=zipfile.ZIP_DEFLATED, rename=None, twice=None):
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    members += [member for member in members if member[0] == twice]
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr((rename or {}).get(name, name), content)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unusual_compression_is_refused(method, path):
    explain(Dyadic(2)).save(path)
    repack(path, method=method)
    with pytest.raises(FormatError, match="not an hshap explanation"):
        Explanation.load(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["header.npy", "leaves.npy"])
def test_two_members_of_one_name_are_refused(name, path):
    explain(Dyadic(2)).save(path)
    repack(path, twice=name)
    with pytest.raises(FormatError, match="not an hshap explanation"):
        Explanation.load(path)


@pytest.mark.parametrize("name", ["../leaves.npy", "nested/leaves.npy", "leaves"])
def test_members_of_other_names_are_refused(name, path):
    explain(Dyadic(2)).save(path)
    repack(path, rename={"leaves.npy": name})
    with pytest.raises(FormatError, match="damaged"):
        Explanation.load(path)


class Harm:
    """An object whose pickle makes a folder when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["header", "leaves"])
def test_no_pickle_is_ever_read(name, path, tmp_path):
    made = tmp_path / "made"
    content = io.BytesIO()
    np.lib.format.write_array(content, np.array([Harm(made)], object), allow_pickle=True)
    explain(Dyadic(2)).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for member, own in members.items():
            archive.writestr(member, content.getvalue() if member == f"{name}.npy" else own)
    with pytest.raises(FormatError):
        Explanation.load(path)
    assert not made.exists()


def test_numbers_are_checked_when_they_are_verified(path):
    """A file whose numbers do not follow from its scores is loaded: its tree is sound."""
    for change, fault in (
        (entry("game_values", 3, 9.0), "not the Shapley values"),
        (entry("game_coefficients", 1, 0.3), "not the Shapley values"),
        (shift_all_values, "the baseline has two scores"),
    ):
        found = explain(Dyadic(2))
        assert wrong_numbers(found) == ""
        rewrite(path, found, change)
        assert fault in wrong_numbers(Explanation.load(path))


def test_what_is_no_explanation_is_refused(path, tmp_path):
    for content in (b"", b"hello", b"PK\x03\x04garbage"):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=r"x\.npz is not an hshap explanation"):
            Explanation.load(path)
    for content in (b"[]", b"1", b"null", b'"format"', b"{}", b"\xff\xfe", b"[" * 100_000):
        np.savez(path, header=np.frombuffer(content, np.uint8))
        with pytest.raises(FormatError, match="not an hshap explanation"):
            Explanation.load(path)
    with pytest.raises(FileNotFoundError):
        Explanation.load(tmp_path / "missing.npz")
    with pytest.raises(IsADirectoryError):
        Explanation.load(tmp_path)


def test_other_versions_are_told(path):
    for version, writer in ((3, "0.1.0"), (9, "3.1")):
        change = {"version": version, "settings": {"hshap": writer}}
        rewrite(path, explain(Dyadic(2)), lambda header, _, new=change: header.update(new))
        told = f"of version {version}, written by hshap '{writer}', but this hshap reads version 4"
        with pytest.raises(FormatError, match=told):
            Explanation.load(path)


def test_an_enormous_header_is_refused(path):
    np.savez_compressed(path, header=np.full(2**24, ord("["), np.uint8))
    with pytest.raises(FormatError, match="too large"):
        Explanation.load(path)


@pytest.mark.skipif(os.name != "posix", reason="needs pipes and devices of POSIX")
def test_pipes_and_devices_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    faults = []

    def load(path):
        try:
            Explanation.load(path)
        except FormatError as error:
            faults.append(str(error))

    for path in (tmp_path / "pipe", Path("/dev/zero")):
        thread = threading.Thread(target=load, args=(path,), daemon=True)
        thread.start()
        thread.join(5)
        assert not thread.is_alive()
    assert ["not an hshap explanation" in fault for fault in faults] == [True, True]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("share", np.linspace(0, 1, 12, endpoint=False))
def test_a_file_cut_short_is_refused(share, path):
    found = Explainer(any_marked, Constant(0.0), Dyadic(1)).explain(marked((8, 8), [9]), target=0)
    found.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FormatError, match="not an hshap explanation"):
        Explanation.load(path)
