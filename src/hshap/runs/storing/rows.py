"""Rows: an explanation as a row of a table, and back. The fields are those of `storage`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np

from hshap.errors import FormatError
from hshap.explanation import storage
from hshap.explanation.archive import DamagedError, TooLargeError, expect, limit, only_damage
from hshap.explanation.explanation import Explanation
from hshap.explanation.headers import MOST_AXES
from hshap.explanation.validity import PIXELS, check
from hshap.games.shapley import shapley
from hshap.partitions.regions import Pixels, mask
from hshap.runs.storing.cells import CellTable, labels_of, pack_labels, unpack_labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Ints, Json, Untyped

    Row = dict[str, Untyped]
    Labels = NDArray[np.unsignedinteger]

ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True)

KeptEvidence: TypeAlias = Literal["none", "leaves", "all"]
KEPT: tuple[KeptEvidence, ...] = ("none", "leaves", "all")
LISTS = (
    "game_region",
    "game_players",
    "game_children",
    "leaves",
    "unfinished",
    "region_kind",
)
"""Arrays of whole numbers that a row holds as they are."""


@dataclass(frozen=True)
class Origin:
    """Where an explanation comes from: all that a row tells besides."""

    image: str
    identity: str
    path: str
    image_sha256: str
    target: str
    transform: str = ""


def as_row(explanation: Explanation, origin: Origin, keep: KeptEvidence = "leaves") -> Row:
    """Return the row of an explanation.

    `keep` says which evidence is stored: that of the leaves is enough for the maps of this reading
    and of stricter ones; coarser readings then have no evidence outside of them.
    """
    audit = vars(explanation.audit)
    header, arrays, labels, derived = _packed(explanation)
    row: Row = {
        **vars(origin),
        "class_index": explanation.class_index,
        "score": explanation.score,
        "baseline_score": explanation.baseline_score,
        "evaluations": explanation.evaluations,
        "seconds": explanation.seconds,
        "complete": explanation.complete,
        "doubt": explanation.audit.doubt,
        "audit": _json({k: v for k, v in audit.items() if isinstance(v, (int, float, str))}),
        "concerns": [concern.text for concern in explanation.concerns],
        "boxes": [found._asdict() for found in explanation.boxes()],
        "header": header,
        **{name: arrays[name].tolist() for name in LISTS},
        "game_values": arrays["game_values"].tolist(),
        **derived,
        "region_corners": arrays["region_corners"][arrays["region_kind"] != PIXELS]
        .ravel()
        .tolist(),
        "cells": pack_labels(labels, explanation.grid) if len(labels) else b"",
        **_evidence(explanation, keep),
    }
    return {**row, "digest": digest_of(row)}


def _packed(explanation: Explanation) -> tuple[str, dict[str, Array], Labels, Row]:
    """Return header, arrays, cells, and the columns that values may tell.

    An `ArgumentError` if they could not be read again.
    """
    arrays, regions = storage.pack_games(explanation)
    arrays |= storage.pack_blocks(regions, explanation.grid)
    labels = labels_of(arrays, regions, explanation.grid)
    header = _json(storage.header_of(explanation, regions))
    derived = _derived(arrays)
    with storage.only_sound():
        given, exact = {**arrays, "labels": labels}, not derived["game_coefficients"]
        table = check(json.loads(header), given, most=2**62, kind=CellTable, exact=exact)
        cast("CellTable", table).check_regions(regions)
    return header, arrays, labels, derived


def from_row(row: Mapping[str, Untyped], most: int = storage.MAX_BYTES) -> Explanation:
    """Return the explanation of a row; a `FormatError` if it is not a valid one."""
    try:
        with only_damage():
            header: dict[str, Untyped] = json.loads(row["header"])
            grid: Grid = tuple(header["grid"])
            expect(0 < len(grid) <= MOST_AXES, "grid is no list of sides")
            limit(8 * prod(grid), most)
            arrays = _arrays(row, grid)
        exact = not len(row["game_coefficients"])
        found = Explanation(**storage.unpack(header, arrays, most, CellTable, exact=exact))
        if row["evidence_kept"] != "leaves":
            return found
        with only_damage():
            return replace(found, evidence=_inside_leaves(found, row["evidence"]))
    except TooLargeError as error:
        message = f"the row of {row.get('image')!r} is too large: {error}"
        raise FormatError(message) from error
    except DamagedError as error:
        message = f"the row of {row.get('image')!r} is damaged ({error}); explain the image again"
        raise FormatError(message) from error


def digest_of(row: Mapping[str, Untyped]) -> str:
    """Return the SHA-256 of all columns of a row but `digest`.

    >>> digest_of({"a": 1, "digest": "x"}) == digest_of({"digest": "y", "a": 1})
    True
    """
    found = hashlib.sha256()
    for name in sorted(row.keys() - {"digest"}):
        value = row[name]
        data = value if isinstance(value, bytes) else _json(value).encode()
        found.update(f"{name} {len(data)} ".encode())
        found.update(data)
    return found.hexdigest()


def _derived(arrays: Mapping[str, Array]) -> Row:
    """Return coefficients and errors, or nothing where the values tell them."""
    values, errors = arrays["game_values"], arrays["game_errors"]
    exact = np.array_equal(
        _coefficients(values, arrays["game_players"]), arrays["game_coefficients"]
    )
    return {
        "game_coefficients": [] if exact else arrays["game_coefficients"].tolist(),
        "game_errors": errors.tolist() if errors.any() else [],
    }


def _coefficients(values: NDArray[np.float64], players: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the Shapley values of all games, one after the other."""
    sizes = 2**players
    ends = np.cumsum(sizes)
    begins, firsts = ends - sizes, np.cumsum(players) - players
    out = np.zeros(int(players.sum()))
    for count in sorted(set(players.tolist())):
        chosen = np.flatnonzero(players == count)
        games = values[begins[chosen][:, None] + np.arange(2**count)]
        out[firsts[chosen][:, None] + np.arange(count)] = shapley(games)
    return out


def _evidence(explanation: Explanation, keep: KeptEvidence) -> Row:
    """Return the evidence that is kept. Rare colours take little room, so all of them are."""
    levels = explanation.evidence
    if levels is None or keep == "none":
        return {"evidence": b"", "evidence_kept": "none"}
    keep = "all" if explanation.settings.nearby else keep
    chosen = levels if keep == "all" else levels.reshape(-1)[_places(explanation)]
    return {"evidence": chosen.tobytes(), "evidence_kept": keep}


def _places(explanation: Explanation) -> Ints:
    """Return the positions of all pixels of the leaves, sorted; leaves do not overlap."""
    free = [leaf for leaf in explanation.leaves if isinstance(leaf, Pixels)]
    if not free or len(free) < len(explanation.leaves):
        return np.flatnonzero(mask(explanation.leaves, explanation.grid))
    return np.sort(np.concatenate([leaf.flat for leaf in free]))


def _arrays(row: Mapping[str, Untyped], grid: Grid) -> dict[str, Array]:
    arrays: dict[str, Array] = {name: np.asarray(row[name], dtype=np.int64) for name in LISTS}
    values = arrays["game_values"] = np.asarray(row["game_values"], dtype=np.float64)
    players = arrays["game_players"]
    expect(len(players) and (players >= 1).all() and (players <= 16).all(), "a game has no players")
    expect((2**players).sum() == len(values), "game_values has another length")
    for name, made in (
        ("game_coefficients", lambda: _coefficients(values, players)),
        ("game_errors", lambda: np.zeros(int(players.sum()))),
    ):
        stored = np.asarray(row[name], dtype=np.float64)
        arrays[name] = stored if len(stored) else made()
    kinds = arrays["region_kind"]
    expect(((kinds >= 0) & (kinds <= PIXELS)).all(), "a region is of no known kind")
    arrays["region_kind"] = kinds.astype(np.uint8)
    corners = np.tile(np.array([grid, grid], dtype=np.int64), (len(kinds), 1, 1))
    blocks = np.asarray(row["region_corners"], dtype=np.int64)
    corners[kinds != PIXELS] = blocks.reshape(-1, 2, len(grid))
    arrays["region_corners"] = corners
    arrays["labels"] = unpack_labels(row["cells"], len(kinds), grid)
    arrays["evidence"] = _whole_evidence(row)
    return arrays


def _whole_evidence(row: Mapping[str, Untyped]) -> Array:
    """Return the evidence of all pixels; nothing if only that of the leaves is stored."""
    kept, data = row["evidence_kept"], np.frombuffer(row["evidence"], np.uint8)
    expect(kept in KEPT, "its evidence is of no known kind")
    expect(kept != "none" or not len(data), "it has evidence, and says that it has none")
    return data if kept == "all" else data[:0]


def _inside_leaves(explanation: Explanation, data: bytes) -> NDArray[np.uint8]:
    """Return the evidence inside the leaves, and 0 elsewhere."""
    places = _places(explanation)
    expect(len(data) == len(places), "its evidence misses pixels")
    out = np.zeros(explanation.grid, dtype=np.uint8)
    out.reshape(-1)[places] = np.frombuffer(data, np.uint8)
    return out


def _json(value: Json | Sequence[object]) -> str:
    return ENCODER.encode(value)


def at_number(explanation: Explanation, number: int) -> Explanation:
    """Return an explanation whose position is its number in the run."""
    return replace(explanation, position=number)
