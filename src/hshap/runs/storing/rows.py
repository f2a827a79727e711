"""Rows: an explanation as a row of a table. The fields are those of `storage`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np

from hshap.explanation import storage
from hshap.explanation.archive import DamagedError
from hshap.explanation.audit import audit_many
from hshap.explanation.region_tables import PIXELS
from hshap.explanation.validity import Stored, check_each
from hshap.games.shapley import shapley
from hshap.games.tree import MOST_VALUES
from hshap.runs.storing.schema import NEGATIVES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Array, Json, Untyped
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.region_tables import RegionTable
    from hshap.games.game import Game
    from hshap.partitions.protocol import Region

    Row = dict[str, Untyped]

T = TypeVar("T")
Given = ParamSpec("Given")
Made = TypeVar("Made")
ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True)

TOGETHER = 16
"""Explanations that are checked at once: more save little."""

MOST_PIXELS = 2**20
"""Pixels of explanations that are checked at once: their lists of runs may take far more bytes."""

LISTS = (
    "game_region",
    "game_players",
    "game_children",
    "leaves",
    "unfinished",
    "region_kind",
)
"""Arrays of whole numbers that a row holds as they are."""

NUMBERS = (*LISTS, "game_values", "game_coefficients", "game_errors", "region_corners")
NEEDED = (*NUMBERS, "image", "transform", "header", "cells")
"""Columns that make an explanation; others repeat what it tells, for queries."""


@dataclass(frozen=True)
class Origin:
    """Where an explanation comes from: all that a row tells besides."""

    image: str
    identity: str
    path: str
    image_sha256: str
    target: str
    transform: str = ""
    version: int = 0
    class_name: str = ""


def as_row(explanation: Explanation, origin: Origin) -> Row:
    """Return the row of an explanation."""
    (row,) = as_rows([(explanation, origin)])
    if isinstance(row, Exception):
        raise row
    return row


def as_rows(given: Sequence[tuple[Explanation, Origin]]) -> list[Row | Exception]:
    """Return the row of each explanation, or the error that it meets; many are checked at once.

    It is an `ArgumentError` where the row could not be read again.
    """
    return [row for block in blocks(given, _pixels) for row in _block_of_rows(block)]


def blocks(given: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield explanations in blocks to check at once: few of them and of few pixels, or one.

    >>> list(blocks([1, 2**20, 3, 4], size=int))
    [[1], [1048576], [3, 4]]
    """
    block, total = list[T](), 0
    try:
        for one in given:
            own = size(one)
            if block and (len(block) >= TOGETHER or total + own > MOST_PIXELS):
                yield block
                block, total = [], 0
            block.append(one)
            total += own
    except Exception:
        if block:
            yield block  # those before a fault are not lost
        raise
    if block:
        yield block


def _pixels(given: tuple[Explanation, Origin]) -> int:
    return prod(given[0].grid)


def _block_of_rows(given: Sequence[tuple[Explanation, Origin]]) -> list[Row | Exception]:
    explanations = [explanation for explanation, _ in given]
    audit_many(explanations)
    packed = list(map(partial(attempt, _packed), explanations, _are_exact(explanations)))
    sound = [one for one in packed if not isinstance(one, Exception)]
    tables = iter(check_each([one.stored for one in sound], most=2**62))
    return [
        one if isinstance(one, Exception) else attempt(_row, explanation, origin, one, next(tables))
        for one, (explanation, origin) in zip(packed, given, strict=True)
    ]


def attempt(
    make: Callable[Given, Made], *given: Given.args, **named: Given.kwargs
) -> Made | Exception:
    """Return what a call returns, or the error that it raises."""
    try:
        return make(*given, **named)
    except Exception as error:  # noqa: BLE001, a fault of one explanation is not that of others
        return error


@dataclass(frozen=True)
class _Packed:
    """An explanation in numbers: its regions, and the columns that values may tell."""

    header: str
    stored: Stored
    regions: list[Region]
    derived: Row


def _row(
    explanation: Explanation,
    origin: Origin,
    packed: _Packed,
    checked: tuple[RegionTable, int] | DamagedError,
) -> Row:
    with storage.only_sound():
        if isinstance(checked, DamagedError):
            raise checked
        table, place = checked
        table.check_regions(place, packed.regions)
    arrays = packed.stored.arrays
    row: Row = {
        **vars(origin),
        **summary_of(explanation),
        "header": packed.header,
        **{name: arrays[name].tolist() for name in LISTS},
        "game_values": arrays["game_values"].tolist(),
        **packed.derived,
        "region_corners": arrays["region_corners"][arrays["region_kind"] != PIXELS]
        .ravel()
        .tolist(),
        "cells": arrays["cells"].tobytes(),
    }
    return {**row, "digest": digest_of(row)}


def summary_of(explanation: Explanation) -> Row:
    """Return the columns of a row that repeat what the explanation tells, for queries."""
    audit = vars(explanation.audit)
    return {
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
    }


def forged_columns(row: Mapping[str, Untyped], summary: Row) -> list[str]:
    """Return the columns of a row that are not those of its explanation.

    >>> forged_columns({"score": 0.5, "boxes": []}, {"score": 0.9, "boxes": []})
    ['score']
    """
    shared = {name: value for name, value in summary.items() if name in row}
    return [name for name, value in shared.items() if _json(row[name]) != _json(value)]


def _packed(explanation: Explanation, exact: bool | None) -> _Packed:  # noqa: FBT001, of a map
    """Return an explanation in numbers, to be checked; `exact` is that of `_are_exact`."""
    arrays, regions = storage.pack_games(explanation)
    header = _json(storage.header_of(explanation, regions))
    derived = _derived(arrays, exact=exact)
    stored = Stored(json.loads(header), arrays)
    return _Packed(header, stored, regions, derived)


def negative_row(row: Row, reason: str, rule: str) -> Row:
    """Return the row of an image that was not explained, from that of its empty explanation."""
    kept = {name: row[name] for name in NEGATIVES if name in row}
    made = {**kept, "rule": rule, "reason": reason}
    return {**made, "digest": digest_of(made)}


def digest_of(row: Mapping[str, Untyped]) -> str:
    """Return the SHA-256 of all columns of a row but `digest`.

    >>> digest_of({"a": 1, "digest": "x"}) == digest_of({"digest": "y", "a": 1})
    True
    """
    told: list[bytes] = []
    for name in sorted(row.keys() - {"digest"}):
        value = row[name]
        data = value if isinstance(value, bytes) else _json(value).encode()
        told += (f"{name} {len(data)} ".encode(), data)
    # Hashed once: sixty calls for small pieces would take as long as the digest itself.
    return hashlib.sha256(b"".join(told)).hexdigest()


def _are_exact(explanations: Sequence[Explanation]) -> list[bool | None]:
    """Tell whether all coefficients are exactly the Shapley values, for explanations at once.

    None where games are too large for that, or where those of one explanation raise an error.
    """
    games = [(place, game) for place, one in enumerate(explanations) for game in one.games]
    unknown: list[bool | None] = [None] * len(explanations)
    if sum([len(game.values) for _, game in games]) > MOST_VALUES:
        return unknown
    by_size: dict[int, list[tuple[int, Game]]] = {}
    for place, game in games:
        by_size.setdefault(len(game.children), []).append((place, game))
    exact: list[bool | None] = [True] * len(explanations)
    try:
        for some in by_size.values():
            told = shapley(np.array([game.values for _, game in some], dtype=np.float64))
            given = np.array([game.coefficients for _, game in some], dtype=np.float64)
            for number in np.flatnonzero((told != given).any(1)).tolist():
                exact[some[number][0]] = False
    except Exception:  # noqa: BLE001, each is then packed by itself, and only that one fails
        return unknown
    return exact


def _derived(arrays: Mapping[str, Array], *, exact: bool | None) -> Row:
    """Return coefficients and errors, or nothing where the values tell them."""
    values, errors = arrays["game_values"], arrays["game_errors"]
    if exact is None:
        told = coefficients_of(values, arrays["game_players"])
        exact = np.array_equal(told, arrays["game_coefficients"])
    return {
        "game_coefficients": [] if exact else arrays["game_coefficients"].tolist(),
        "game_errors": errors.tolist() if errors.any() else [],
    }


def coefficients_of(values: NDArray[np.float64], players: NDArray[np.int64]) -> NDArray[np.float64]:
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


def _json(value: Json | Sequence[object]) -> str:
    return ENCODER.encode(value)
