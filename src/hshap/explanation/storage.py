"""Explanations in files: compressed arrays and a JSON header, never pickle.

A file may come from anywhere: `archive` reads it with limits, and `validity` checks its types, its
shapes and its tree. Regions are stored once, in a table (`region_tables`), and referred to by
number. An explanation of a large image is one file that holds those of its tiles.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError, FormatError
from hshap.evaluators.protocol import Provenance
from hshap.explanation.archive import DamagedError, FileForm, expect, limit, only_damage
from hshap.explanation.guarantees.calibration import stored_calibration
from hshap.explanation.guarantees.significance import read_tests
from hshap.explanation.placement import Placement, whole
from hshap.explanation.region_tables import pack_regions
from hshap.explanation.settings import Settings
from hshap.explanation.validity import PLACEMENT, Stored, check
from hshap.games.game import Game, InContext
from hshap.games.search import Certificate

if TYPE_CHECKING:
    import os
    from collections.abc import Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Json
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.region_tables import RegionTable
    from hshap.explanation.tiled import TiledExplanation
    from hshap.partitions.protocol import Region

MAX_BYTES = 2**30
"""Default limit of the memory that a loaded explanation and one of its maps may take."""

PLAIN = (
    "target",
    "class_index",
    "evaluations",
    "seconds",
    "draws",
    "position",
    "filled",
)
FORM = FileForm(
    "hshap explanation",
    4,
    {
        "game_region": ("int64", 1),
        "game_children": ("int64", 1),
        "game_players": ("int64", 1),
        "game_values": ("float64", 1),
        "game_coefficients": ("float64", 1),
        "game_errors": ("float64", 1),
        "leaves": ("int64", 1),
        "unfinished": ("int64", 1),
        "region_kind": ("uint8", 1),
        "region_corners": ("int64", 3),
        "cells": ("uint8", 1),
    },
)

TILED_PLAIN = ("name", "side", "overlap", "level", "evaluations", "seconds")
SEVERAL = {"files": ("uint8", 1), "sizes": ("int64", 1)}
"""The arrays of explanations one after the other: their files, and the size of each."""

TILED_FORM = FileForm(
    "hshap tiled explanation",
    1,
    {
        **SEVERAL,
        "tile_scores": ("float64", 2),
        "skipped": ("uint8", 2),
        "thumbnail": ("uint8", 3),
    },
)


def write(path: str | os.PathLike[str], explanation: Explanation) -> None:
    """Write an explanation to a file."""
    FORM.write(path, *pack(explanation))


def read(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Return the fields of the explanation in a file, all checked."""
    most = checks.integer("max_bytes", max_bytes, minimum=1)
    return FORM.read(path, most, partial(unpack, most=most))


def pack(explanation: Explanation) -> tuple[dict[str, Json], dict[str, Array]]:
    """Return the header and the arrays of an explanation, those of `FORM`, all checked."""
    arrays, regions = pack_games(explanation)
    header = header_of(explanation, regions)
    with only_sound():
        table = check([Stored(json.loads(json.dumps(header)), arrays)], most=2**62)
        table.check_regions(0, regions)
    return header, arrays


def unpack(header: dict[str, Any], arrays: dict[str, Array], most: int) -> dict[str, Any]:
    """Return the fields of the explanation that `pack` packed; a `DamagedError` if it is none."""
    stored = Stored(header, arrays)
    return fields_of(stored, check([stored], most=most), 0)


def fields_of(stored: Stored, table: RegionTable, place: int) -> dict[str, Any]:
    """Return the fields of an explanation that was checked, at its place in the table."""
    with only_damage():
        regions = table.regions(place, adaptive=stored.header["adaptive"])
        return _fields(stored.header, stored.arrays, regions)


@contextmanager
def only_sound() -> Generator[None, None, None]:
    """Tell the caller which rule an explanation breaks: better now than when it is read again."""
    try:
        yield
    except DamagedError as error:
        message = (
            f"the explanation cannot be saved ({error}); try its partition and its search with "
            "hshap.testing, which names the rule that they break"
        )
        raise ArgumentError(message) from error


def pack_games(explanation: Explanation) -> tuple[dict[str, Array], list[Region]]:
    """Return the arrays of an explanation, not checked, and its regions by number."""
    games = explanation.games
    regions: dict[Region, int] = {}

    def numbers(items: Sequence[Region]) -> NDArray[np.int64]:
        return np.array([regions.setdefault(item, len(regions)) for item in items], dtype=np.int64)

    children = [part for game in games for part in game.children]
    arrays: dict[str, Array] = {
        "game_region": numbers([game.region for game in games]),
        "game_children": numbers(children),
        "game_players": np.array([len(game.children) for game in games], dtype=np.int64),
        "game_values": _joined([game.values for game in games]),
        "game_coefficients": _joined([game.coefficients for game in games]),
        "game_errors": _joined([game.errors for game in games]),
        "leaves": numbers(explanation.leaves),
        "unfinished": numbers(explanation.unfinished),
    }
    every = list(regions)
    return arrays | pack_regions(every, arrays, explanation.grid), every


def header_of(explanation: Explanation, regions: Sequence[Region]) -> dict[str, Json]:
    """Return all facts of an explanation that are no arrays; `regions` are those by number."""
    header: dict[str, Json] = {"grid": list(explanation.grid)}
    header |= {name: getattr(explanation, name) for name in PLAIN}
    header["settings"] = explanation.settings.document
    header["provenance"] = dict(vars(explanation.provenance))
    place = explanation.placement
    header["placement"] = None if place.is_identity else _line(place)
    header["adaptive"] = explanation.games[0].region.adaptive
    contexts = [
        [i, one.number, one.shown, one.values.tolist()]
        for i, game in enumerate(explanation.games)
        for one in game.contexts
    ]
    if contexts:
        header["contexts"] = contexts
    if explanation.certificate is not None:
        header["certificate"] = asdict(explanation.certificate)
        header["inferred"] = [i for i, game in enumerate(explanation.games) if game.inferred]
    if explanation.tests is not None:
        number = {region: place for place, region in enumerate(regions)}
        header["tests"] = explanation.tests.document(number.get)
    if explanation.calibration is not None:
        header["calibration"] = explanation.calibration.document
    return header


def _fields(
    header: Mapping[str, Any], arrays: Mapping[str, Array], regions: list[Region]
) -> dict[str, Any]:
    grid = tuple(header["grid"])
    by_number = regions.__getitem__
    players = arrays["game_players"]
    inferred = set(header.get("inferred", ()))
    contexts = _contexts(header)
    games = tuple(
        Game(
            by_number(number),
            tuple(map(by_number, parts)),
            values,
            phi,
            errors,
            i in inferred,
            contexts.get(i, ()),
        )
        for i, (number, parts, values, phi, errors) in enumerate(
            zip(
                arrays["game_region"].tolist(),
                _cut(arrays["game_children"], players),
                _cut(arrays["game_values"], 2**players),
                _cut(arrays["game_coefficients"], players),
                _cut(arrays["game_errors"], players),
                strict=True,
            )
        )
    )
    made = header.get("certificate")
    return {
        **{name: header[name] for name in PLAIN},
        "settings": Settings(header["settings"]),
        "provenance": Provenance(**header["provenance"]),
        "grid": grid,
        "placement": _placement(grid, header["placement"]),
        "games": games,
        "tests": read_tests(header.get("tests"), regions),
        "calibration": stored_calibration(header.get("calibration")),
        "certificate": None if made is None else Certificate(**made),
        "leaves": tuple(map(by_number, arrays["leaves"].tolist())),
        "unfinished": tuple(map(by_number, arrays["unfinished"].tolist())),
    }


def _contexts(header: Mapping[str, Any]) -> dict[int, tuple[InContext, ...]]:
    """Return the games in other contexts, by the number of the game."""
    found: dict[int, tuple[InContext, ...]] = {}
    for game, number, shown, values in header.get("contexts", ()):
        one = InContext(number, shown, np.array(values, dtype=np.float64))
        found[game] = (*found.get(game, ()), one)
    return found


def _placement(grid: Grid, told: Mapping[str, Any] | None) -> Placement:
    return Placement(grid, **told) if told else whole(grid)


def _line(place: Placement) -> dict[str, Json]:
    return {name: list(getattr(place, name)) for name in PLACEMENT}


def _joined(parts: list[Array]) -> NDArray[np.float64]:
    return np.concatenate([np.zeros(0), *parts])


def _cut(array: Array, lengths: Array) -> list[Array]:
    ends = [0, *np.cumsum(lengths).tolist()]
    return [array[a:b] for a, b in pairwise(ends)]


def write_tiled(path: str | os.PathLike[str], found: TiledExplanation) -> None:
    """Write an explanation of a large image to a file."""
    TILED_FORM.write(path, *_pack_tiled(found))


def tiled_bytes(found: TiledExplanation) -> bytes:
    """Return the content of the file that `write_tiled` writes."""
    return TILED_FORM.pack(*_pack_tiled(found))


def read_tiled(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Return the fields of the explanation of a large image in a file, all checked."""
    most = checks.integer("max_bytes", max_bytes, minimum=1)
    return TILED_FORM.read(path, most, partial(_tiled_fields, most=most))


def tiled_from_bytes(data: bytes, name: str, most: int) -> dict[str, Any]:
    """Return the fields in the content of a file; `name` is for messages."""
    return TILED_FORM.unpack(data, name, most, partial(_tiled_fields, most=most))


def _pack_tiled(found: TiledExplanation) -> tuple[dict[str, Json], dict[str, Array]]:
    size = found.pixel_size
    header: dict[str, Json] = {
        **{name: getattr(found, name) for name in TILED_PLAIN},
        "pixel_size": None if size is None else list(size),
    }
    thumbnail = found.thumbnail
    return (
        header,
        {
            "tile_scores": found.scores,  # first, a sign for commands
            **pack_several((found.tiles, *found.inside)),
            "skipped": found.skipped.astype(np.uint8),
            "thumbnail": thumbnail.reshape(*thumbnail.shape[:2], -1),
        },
    )


def pack_several(explanations: Sequence[Explanation]) -> dict[str, Array]:
    """Return explanations as the arrays of `SEVERAL`."""
    files = [FORM.pack(*pack(one)) for one in explanations]
    return {
        "files": np.frombuffer(b"".join(files), dtype=np.uint8),
        "sizes": np.array([len(data) for data in files], dtype=np.int64),
    }


def unpack_several(arrays: Mapping[str, Array], most: int) -> tuple[Explanation, ...]:
    """Return the explanations that were packed; a `DamagedError` if they are none."""
    from hshap.explanation.explanation import Explanation  # noqa: PLC0415, it imports storage

    files, sizes = arrays["files"].tobytes(), arrays["sizes"]
    expect(len(sizes) > 0 and (sizes > 0).all(), "it lists no explanations")
    expect(int(sizes.sum()) == len(files), "its parts do not fit together")
    out: list[Explanation] = []
    start = 0
    for size in sizes.tolist():
        # Each part has its own limit, and all together too.
        limit(sum(prod(one.grid) for one in out), most)
        try:
            fields = FORM.unpack(
                files[start : start + size], "a part of it", most, partial(unpack, most=most)
            )
        except FormatError as error:
            raise DamagedError(str(error)) from error
        out.append(Explanation(**fields))
        start += size
    return tuple(out)


def _tiled_fields(header: dict[str, Any], arrays: dict[str, Array], most: int) -> dict[str, Any]:
    scores, skipped = arrays["tile_scores"], arrays["skipped"]
    thumbnail = arrays["thumbnail"]
    expect(
        set(header) == {"format", "version", "pixel_size", *TILED_PLAIN}, "its header is another"
    )
    expect(isinstance(header["name"], str), "its name is no text")
    for name, least in (("side", 1), ("overlap", 0), ("level", 0), ("evaluations", 0)):
        expect(type(header[name]) is int and header[name] >= least, f"{name} is no number")
    expect(header["overlap"] < header["side"], "its tiles overlap completely")
    expect(_is_number(header["seconds"]), "seconds is no number")
    size = header["pixel_size"]
    expect(
        size is None or (isinstance(size, list) and len(size) == 2 and all(map(_is_number, size))),
        "pixel_size is no pair of numbers",
    )
    expect(scores.size > 0 and skipped.shape == scores.shape, "its tiles do not fit together")
    expect(np.isfinite(scores).all() and skipped.max() <= 1, "its scores are none")
    expect(thumbnail.shape[2] in {1, 3} and thumbnail.size, "its small picture is none")
    explanations = unpack_several(arrays, most)
    over_tiles, inside = explanations[0], explanations[1:]
    _check_places(header, scores.shape, over_tiles, inside)
    return {
        **{name: header[name] for name in TILED_PLAIN},
        "pixel_size": None if size is None else tuple(size),
        "tiles": over_tiles,
        "inside": inside,
        "scores": scores,
        "skipped": skipped.astype(bool),
        "thumbnail": thumbnail[..., 0] if thumbnail.shape[2] == 1 else thumbnail,
    }


def _check_places(
    header: dict[str, Any],
    grid: tuple[int, ...],
    tiles: Explanation,
    inside: tuple[Explanation, ...],
) -> None:
    expect(tiles.grid == grid, "its game is over other tiles")
    shape, side = tiles.placement.shape, header["side"]
    numbers = [one.position for one in inside]
    expect(len(set(numbers)) == len(numbers), "a tile is there twice")
    found = {place for leaf in tiles.leaves for place in _numbers(leaf, grid)}
    for one in inside:
        expect(one.grid == (side, side), "a tile has another size")
        expect(one.placement.shape == shape, "a tile is of another image")
        expect(one.position in found, "a tile was not found by the game over tiles")


def _numbers(leaf: Any, grid: tuple[int, ...]) -> list[int]:
    inside = np.zeros(grid, dtype=bool)
    inside[leaf.index] = True
    return np.flatnonzero(inside).tolist()


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
