"""Explanations in one file: compressed arrays and a JSON header, never pickle.

Version 2 is a NumPy .npz archive. Regions are stored once, in a table, and referred to by number.
Boxes are stored by their corners, rolled blocks too; any other region as its runs of pixels.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap._util.atomic import replace
from hshap.errors import FormatError
from hshap.explanation.settings import Settings
from hshap.games.game import Game
from hshap.partitions.regions import Box, Pixels, Rolled, mask, runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Array, Ints, Json
    from hshap.explanation.explanation import Explanation
    from hshap.partitions.protocol import Region

FORMAT = "hshap explanation"
VERSION = 2
BOX, ROLLED, PIXELS = range(3)
# Exceptions of NumPy and zipfile for files that are damaged or of another kind.
UNREADABLE = (
    OSError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    zipfile.BadZipFile,
    zlib.error,
)
PLAIN = ("target", "evaluations", "seconds", "draws", "position")


def write(path: str | os.PathLike[str], explanation: Explanation) -> None:
    """Write an explanation; an existing file is replaced only once the new one is complete."""
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
    arrays |= _pack(list(regions), explanation.grid)
    header: dict[str, Json] = {
        "format": FORMAT,
        "version": VERSION,
        "grid": list(explanation.grid),
    }
    header |= {name: getattr(explanation, name) for name in PLAIN}
    header["class_index"] = explanation.class_index
    header["settings"] = explanation.settings.document
    header["adaptive"] = games[0].region.adaptive
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    replace(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of the explanation in a file."""
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays["header"].tobytes())
        kind, version = header["format"], header["version"]
    except UNREADABLE as error:
        # A missing or unreadable file: the message of the operating system is clear.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        message = f"{os.fspath(path)} is not an hshap explanation; pass a file that save() wrote"
        raise FormatError(message) from error
    if kind != FORMAT or version != VERSION:
        message = (
            f"{os.fspath(path)} is a {kind!r} of version {version}, but this hshap reads "
            f"version {VERSION}; read it with the hshap that wrote it, or a newer one"
        )
        raise FormatError(message)
    try:
        return _fields(header, arrays)
    except (KeyError, IndexError, ValueError, TypeError, StopIteration) as error:
        message = f"{os.fspath(path)} is damaged ({error}); save the explanation again"
        raise FormatError(message) from error


def _fields(header: dict[str, Any], arrays: dict[str, Array]) -> dict[str, Any]:
    grid = tuple(header["grid"])
    regions = _unpack(arrays, grid, adaptive=header["adaptive"])
    by_number = regions.__getitem__
    players = arrays["game_players"]
    children = _cut(arrays["game_children"], players)
    games = tuple(
        Game(by_number(number), tuple(map(by_number, parts)), values, phi, errors)
        for number, parts, values, phi, errors in zip(
            arrays["game_region"],
            children,
            _cut(arrays["game_values"], 2**players),
            _cut(arrays["game_coefficients"], players),
            _cut(arrays["game_errors"], players),
            strict=True,
        )
    )
    return {
        **{name: header[name] for name in PLAIN},
        "settings": Settings(header["settings"]),
        # Files of version 0.1 have none.
        "class_index": header.get("class_index", _class_index(header["target"])),
        "grid": grid,
        "games": games,
        "leaves": tuple(map(by_number, arrays["leaves"])),
        "unfinished": tuple(map(by_number, arrays["unfinished"])),
    }


def _class_index(target: int | str) -> int | None:
    return target if isinstance(target, int) else None


def _pack(regions: list[Region], grid: tuple[int, ...]) -> dict[str, Array]:
    kinds, corners, free = [], [], []
    for region in regions:
        if isinstance(region, Box):
            kinds.append(BOX)
            corners.append((region.start, region.stop))
        elif isinstance(region, Rolled):
            kinds.append(ROLLED)
            corners.append((region.start, region.shape))
        else:
            kinds.append(PIXELS)
            corners.append((grid, grid))
            flat = (
                region.flat if isinstance(region, Pixels) else np.flatnonzero(mask((region,), grid))
            )
            # Regions of one tree hold each other: pixel by pixel, they would fill the file.
            free.append(runs(np.sort(flat)))
    return {
        "region_kind": np.array(kinds, dtype=np.uint8),
        "region_corners": np.array(corners, dtype=np.int64),
        "region_sizes": np.array([len(flat) for flat in free], dtype=np.int64),
        "region_runs": np.concatenate([np.zeros(0, dtype=np.int64), *free]),
    }


def _unpack(arrays: dict[str, Array], grid: tuple[int, ...], *, adaptive: bool) -> list[Region]:
    free = iter(_cut(arrays["region_runs"], arrays["region_sizes"]))
    regions: list[Region] = []
    for kind, (first, second) in zip(
        arrays["region_kind"], arrays["region_corners"].tolist(), strict=True
    ):
        if kind == BOX:
            regions.append(Box(tuple(first), tuple(second), adaptive=adaptive))
        elif kind == ROLLED:
            regions.append(Rolled(tuple(first), tuple(second), grid, adaptive=adaptive))
        else:
            regions.append(Pixels(_pixels(next(free)), grid, adaptive=adaptive))
    return regions


def _pixels(runs: NDArray[np.int64]) -> Ints:
    starts, lengths = runs[::2], np.diff(runs)[::2]
    ends = np.cumsum(lengths)
    # Pixels of a run are consecutive: add to each position the offset of its run.
    return np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)


def _joined(parts: list[Array]) -> NDArray[np.float64]:
    return np.concatenate([np.zeros(0), *parts])


def _cut(array: Array, lengths: Array) -> list[Array]:
    ends = [0, *np.cumsum(lengths).tolist()]
    if ends[-1] != len(array):
        message = f"{len(array)} entries where {ends[-1]} are announced"
        raise ValueError(message)
    return [array[a:b] for a, b in pairwise(ends)]
