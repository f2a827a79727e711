"""Explanations of large images in one file: an archive whose members are explanations.

The file is a NumPy .npz archive. It holds the files of `storage` one after the other, and the facts
that they do not have. Every part is checked, and nothing is ever read with pickle.
"""

from __future__ import annotations

import json
import os
from io import BytesIO
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap._util import checks
from hshap._util.atomic import replace
from hshap.errors import FormatError
from hshap.explanation import storage
from hshap.explanation.archive import (
    Archive,
    DamagedError,
    TooLargeError,
    expect,
    file_bytes,
    limit,
    only_damage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hshap._util.types import Array, Json
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.tiled import TiledExplanation

FORMAT = "hshap tiled explanation"
VERSION = 1
PLAIN = ("name", "side", "overlap", "level", "evaluations", "seconds")
FILES = {"files": ("uint8", 1), "sizes": ("int64", 1)}
"""The arrays of explanations one after the other: their files, and the size of each."""

ARRAYS = {
    **FILES,
    "tile_scores": ("float64", 2),
    "skipped": ("uint8", 2),
    "thumbnail": ("uint8", 3),
}
"""Type and number of axes of each array."""


def write(path: str | os.PathLike[str], found: TiledExplanation) -> None:
    """Write an explanation of a large image; see `storage.write`."""
    arrays = _arrays(found)
    replace(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


def as_bytes(found: TiledExplanation) -> bytes:
    """Return the content of the file that `write` writes."""
    data = BytesIO()
    np.savez_compressed(data, allow_pickle=False, **_arrays(found))
    return data.getvalue()


def _arrays(found: TiledExplanation) -> dict[str, Array]:
    size = found.pixel_size
    header: dict[str, Json] = {
        "format": FORMAT,
        "version": VERSION,
        **{name: getattr(found, name) for name in PLAIN},
        "pixel_size": None if size is None else list(size),
    }
    thumbnail = found.thumbnail
    return {
        "tile_scores": found.scores,
        "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
        **packed((found.tiles, *found.inside)),
        "skipped": found.skipped.astype(np.uint8),
        "thumbnail": thumbnail.reshape(*thumbnail.shape[:2], -1),
    }


def packed(explanations: Sequence[Explanation]) -> dict[str, Array]:
    """Return explanations as the arrays of `FILES`."""
    files = [_file(one) for one in explanations]
    return {
        "files": np.frombuffer(b"".join(files), dtype=np.uint8),
        "sizes": np.array([len(data) for data in files], dtype=np.int64),
    }


def unpacked(arrays: Mapping[str, Array], most: int) -> tuple[Explanation, ...]:
    """Return the explanations that `packed` packed; a `DamagedError` if they are none."""
    files, sizes = arrays["files"], arrays["sizes"]
    expect(len(sizes) > 0 and (sizes > 0).all(), "it lists no explanations")
    expect(int(sizes.sum()) == len(files), "its parts do not fit together")
    return _explanations(files.tobytes(), sizes.tolist(), most)


def _file(one: Explanation) -> bytes:
    data = BytesIO()
    storage.write_to(data, one)
    return data.getvalue()


def read(path: str | os.PathLike[str], max_bytes: int) -> dict[str, Any]:
    """Return the fields of the explanation in a file, all checked."""
    most = checks.integer("max_bytes", max_bytes, minimum=1)
    return _read(lambda: file_bytes(path, most), os.fspath(path), most)


def from_bytes(data: bytes, name: str, max_bytes: int) -> dict[str, Any]:
    """Return the fields of the explanation in the content of a file; `name` is for messages."""
    return _read(lambda: data, name, max_bytes)


def _read(data: Callable[[], bytes], name: str, most: int) -> dict[str, Any]:
    try:
        archive = Archive(data(), most)
        header = _header(archive, name)
        expect(archive.names == {"header", *ARRAYS}, "it lacks arrays, or has others besides")
        arrays = {key: archive.read(key, *shape) for key, shape in ARRAYS.items()}
        return _fields(header, arrays, most)
    except TooLargeError as error:
        message = f"{name} is too large: {error}; pass a larger max_bytes if you trust the file"
        raise FormatError(message) from error
    except DamagedError as error:
        message = f"{name} is damaged ({error}); save the explanation again"
        raise FormatError(message) from error


def _header(archive: Archive, name: str) -> dict[str, Any]:
    try:
        text = archive.read("header", "uint8", 1, most=storage.MAX_HEADER).tobytes()
        with only_damage():
            header: dict[str, Any] = json.loads(text)
            kind, version = header["format"], header["version"]
    except DamagedError as error:
        message = f"{name} is no explanation of a large image; pass a file that save() wrote"
        raise FormatError(message) from error
    if (kind, version) != (FORMAT, VERSION):
        message = (
            f"{name} is a {checks.shown(kind)} of version {checks.shown(version)}, but this hshap "
            f"reads version {VERSION} of a {FORMAT}; read it by Explanation.load, or with the "
            "hshap that wrote it"
        )
        raise FormatError(message)
    return header


def _fields(header: dict[str, Any], arrays: dict[str, Array], most: int) -> dict[str, Any]:
    scores, skipped = arrays["tile_scores"], arrays["skipped"]
    thumbnail = arrays["thumbnail"]
    expect(set(header) == {"format", "version", "pixel_size", *PLAIN}, "its header is another")
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
    explanations = unpacked(arrays, most)
    over_tiles, inside = explanations[0], explanations[1:]
    _check_places(header, scores.shape, over_tiles, inside)
    return {
        **{name: header[name] for name in PLAIN},
        "pixel_size": None if size is None else tuple(size),
        "tiles": over_tiles,
        "inside": inside,
        "scores": scores,
        "skipped": skipped.astype(bool),
        "thumbnail": thumbnail[..., 0] if thumbnail.shape[2] == 1 else thumbnail,
    }


def _explanations(files: bytes, sizes: list[int], most: int) -> tuple[Explanation, ...]:
    from hshap.explanation.explanation import Explanation  # noqa: PLC0415, it imports storage

    out: list[Explanation] = []
    start = 0
    for size in sizes:
        # Each part has its own limit, and all together too.
        limit(sum(prod(one.grid) for one in out), most)
        out.append(Explanation(**storage.read_from(files[start : start + size], most)))
        start += size
    return tuple(out)


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
