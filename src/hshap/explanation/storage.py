"""Explanations in one file: compressed arrays and a JSON header, never pickle.

A file may come from anywhere: `archive` reads it with limits and `validity` checks all of it.
Version 4 is a NumPy .npz archive. Regions are stored once, in a table (`region_tables`), and
referred to by number.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hshap._util import checks
from hshap._util.atomic import replace
from hshap.errors import ArgumentError, FormatError
from hshap.evaluators.protocol import Provenance
from hshap.explanation.archive import (
    Archive,
    DamagedError,
    TooLargeError,
    expect,
    file_bytes,
    only_damage,
)
from hshap.explanation.guarantees.calibration import stored_calibration
from hshap.explanation.guarantees.significance import read_tests
from hshap.explanation.headers import PLACEMENT
from hshap.explanation.placement import Placement, whole
from hshap.explanation.region_tables import pack_regions
from hshap.explanation.settings import Settings
from hshap.explanation.validity import Stored, check
from hshap.games.game import Game, InContext
from hshap.games.search import Certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Json
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.region_tables import RegionTable
    from hshap.partitions.protocol import Region

FORMAT = "hshap explanation"
VERSION = 4
MAX_BYTES = 2**30
"""Default limit of the memory that a loaded explanation and one of its maps may take."""

MAX_HEADER = 2**24
"""A header of this many bytes could take twenty times as many as Python objects."""

PLAIN = (
    "target",
    "class_index",
    "evaluations",
    "seconds",
    "draws",
    "position",
    "filled",
)
ARRAYS = {
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
}
"""Type and number of axes of each array."""


def write(path: str | os.PathLike[str], explanation: Explanation) -> None:
    """Write an explanation; an existing file is replaced only once the new one is complete."""
    arrays = _archived(explanation)  # before a file is made
    replace(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


def write_to(file: IO[bytes], explanation: Explanation) -> None:
    """Write an explanation to an open file."""
    np.savez_compressed(file, allow_pickle=False, **_archived(explanation))


def _archived(explanation: Explanation) -> dict[str, Array]:
    header, arrays = pack(explanation)
    return {**arrays, "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}


def pack(explanation: Explanation) -> tuple[dict[str, Json], dict[str, Array]]:
    """Return the header and the arrays of an explanation, those of `ARRAYS`, all checked."""
    arrays, regions = pack_games(explanation)
    header = header_of(explanation, regions)
    with only_sound():
        table = check([Stored(json.loads(json.dumps(header)), arrays)], most=2**62)
        table.check_regions(0, regions)
    return header, arrays


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


def unpack(header: dict[str, Any], arrays: dict[str, Array], most: int) -> dict[str, Any]:
    """Return the fields of the explanation that `pack` packed; a `DamagedError` if it is none."""
    stored = Stored(header, arrays)
    return fields_of(stored, check([stored], most=most), 0)


def fields_of(stored: Stored, table: RegionTable, place: int) -> dict[str, Any]:
    """Return the fields of an explanation that was checked, at its place in the table."""
    with only_damage():
        regions = table.regions(place, adaptive=stored.header["adaptive"])
        return _fields(stored.header, stored.arrays, regions)


def header_of(explanation: Explanation, regions: Sequence[Region]) -> dict[str, Json]:
    """Return all facts of an explanation that are no arrays; `regions` are those by number."""
    header: dict[str, Json] = {
        "format": FORMAT,
        "version": VERSION,
        "grid": list(explanation.grid),
    }
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


def read(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Return the fields of the explanation in a file, all checked."""
    most = checks.integer("max_bytes", max_bytes, minimum=1)
    name = os.fspath(path)
    try:
        return _read(lambda: file_bytes(path, most), most, name)
    except TooLargeError as error:
        message = f"{name} is too large: {error}; pass a larger max_bytes if you trust the file"
        raise FormatError(message) from error
    except DamagedError as error:
        message = f"{name} is damaged ({error}); save the explanation again"
        raise FormatError(message) from error


def read_from(data: bytes, most: int) -> dict[str, Any]:
    """Return the fields of the explanation in the bytes of a file; a `DamagedError` if none."""
    try:
        return _read(lambda: data, most, "a part of it")
    except FormatError as error:
        raise DamagedError(str(error)) from error


def _read(data: Callable[[], bytes], most: int, name: str) -> dict[str, Any]:
    try:
        archive = Archive(data(), most)
        text = archive.read("header", "uint8", 1, most=MAX_HEADER).tobytes()
        with only_damage():
            header: dict[str, Any] = json.loads(text)
            kind, version = header["format"], header["version"]
    except TooLargeError:
        raise
    except DamagedError as error:
        message = f"{name} is not an hshap explanation; pass a file that save() wrote"
        raise FormatError(message) from error
    if (kind, version) != (FORMAT, VERSION):
        message = (
            f"{name} is a {checks.shown(kind)} of version {checks.shown(version)}"
            f"{_writer(header)}, but this hshap reads version {VERSION} of a {FORMAT}; read it "
            "with the hshap that wrote it"
        )
        raise FormatError(message)
    expect(archive.names == {"header", *ARRAYS}, "it lacks arrays, or has others besides")
    arrays = {name: archive.read(name, *shape) for name, shape in ARRAYS.items()}
    return unpack(header, arrays, most)


def _writer(header: Mapping[str, Any]) -> str:
    """Return which hshap wrote a file of another version, for messages, if the file tells."""
    settings: object = header.get("settings")
    version: object = settings.get("hshap") if isinstance(settings, dict) else None
    return f", written by hshap {checks.shown(version)}" if isinstance(version, str) else ""


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
