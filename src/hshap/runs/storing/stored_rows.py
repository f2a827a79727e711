"""Stored rows: the explanation of a row. Rows may come from anybody, and are checked."""

from __future__ import annotations

import json
import marshal
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap.errors import FormatError
from hshap.explanation import storage
from hshap.explanation.archive import DamagedError, TooLargeError, expect, limit, only_damage
from hshap.explanation.explanation import Explanation
from hshap.explanation.region_tables import PIXELS, concatenate_arrays
from hshap.explanation.validity import MOST_AXES, Stored, check_each
from hshap.games.game import MOST_PLAYERS
from hshap.runs.storing.rows import LISTS, NUMBERS, coefficients_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hshap._util.types import Array, Grid, Json, Untyped

REGION = 128
"""Bytes for each region in a size: even one that a row tells in a byte has corners in a table."""


def size_of(row: Mapping[str, Untyped]) -> int:
    """Return how much room a row takes when it is checked, for `blocks`: cells, regions, numbers.

    Rows may come from anybody: a few bytes of a file can hold millions of regions.
    """
    numbers = 8 * sum(_length(row[name]) for name in NUMBERS)
    return max(_length(row["cells"]), REGION * _length(row["region_kind"]), numbers)


def _length(column: Sequence[object] | Array | None) -> int:
    return 0 if column is None else len(column)  # a damaged row may lack a column


def from_row(row: Mapping[str, Untyped], most: int = storage.MAX_BYTES) -> Explanation:
    """Return the explanation of a row; a `FormatError` if it is not a valid one."""
    return next(from_rows([row], most))


def from_rows(
    rows: Sequence[Mapping[str, Untyped]], most: int = storage.MAX_BYTES
) -> Iterator[Explanation]:
    """Yield the explanations of rows, checked at once; a `FormatError` at one that is not valid."""
    settings: dict[bytes, Json] = {}
    read = _with_coefficients([_stored_row(row, most, settings) for row in rows])
    sound = [one for one in read if isinstance(one, Stored)]
    tables = iter(check_each(sound, most=most))
    for row, one in zip(rows, read, strict=True):
        found = next(tables) if isinstance(one, Stored) else one
        try:
            if isinstance(found, DamagedError):
                raise found
            yield Explanation(**storage.fields_of(cast("Stored", one), *found))
        except TooLargeError as error:
            message = f"the row of {row.get('image')!r} is too large: {error}"
            raise FormatError(message) from error
        except DamagedError as error:
            message = (
                f"the row of {row.get('image')!r} is damaged ({error}); explain the image again"
            )
            raise FormatError(message) from error


def stored_row(row: Mapping[str, Untyped], most: int) -> Stored | DamagedError:
    """Return header and arrays of a row, or its fault."""
    return _with_coefficients([_stored_row(row, most, {})])[0]


def _with_coefficients(read: list[Stored | DamagedError]) -> list[Stored | DamagedError]:
    """Return rows with the coefficients that their values tell, computed for all rows at once."""
    stored = [one.arrays for one in read if isinstance(one, Stored)]
    derived = [arrays for arrays in stored if not len(arrays["game_coefficients"])]
    if derived:
        players, counts = concatenate_arrays(derived, "game_players")
        with np.errstate(all="ignore"):  # values that are not finite are refused by the checks
            found = coefficients_of(concatenate_arrays(derived, "game_values")[0], players)
        ends = np.cumsum(np.add.reduceat(players, [0, *accumulate(counts[:-1])])).tolist()
        for arrays, begin, end in zip(derived, [0, *ends], ends, strict=False):
            # A copy: an explanation does not keep the numbers of others.
            cast("dict[str, Array]", arrays)["game_coefficients"] = found[begin:end].copy()
    return read


def _stored_row(
    row: Mapping[str, Untyped], most: int, settings: dict[bytes, Json]
) -> Stored | DamagedError:
    """Return header and arrays of a row, or its fault; coefficients that values tell are left.

    `settings` has those of the rows before it, which it shares if they are the same.
    """
    try:
        with only_damage():
            header: dict[str, Untyped] = json.loads(row["header"])
            grid: Grid = tuple(header["grid"])
            expect(0 < len(grid) <= MOST_AXES, "grid is no list of sides")
            limit(8 * prod(grid), most)
            # By their bytes: as values, 1 and true would be the same. Version 2 has no references.
            told = marshal.dumps(header["settings"], 2)
            header["settings"] = settings.setdefault(told, header["settings"])
            return Stored(header, _arrays(row, grid))
    except DamagedError as error:
        return error


def _arrays(row: Mapping[str, Untyped], grid: Grid) -> dict[str, Array]:
    arrays: dict[str, Array] = {name: np.asarray(row[name], dtype=np.int64) for name in LISTS}
    values = arrays["game_values"] = np.asarray(row["game_values"], dtype=np.float64)
    players = arrays["game_players"]
    expect(players.ndim == values.ndim == 1, "game_values is no list of numbers")
    usual = len(players) and players.min() >= 1 and players.max() <= MOST_PLAYERS
    expect(usual, "a game has no players")
    expect((1 << players).sum() == len(values), "game_values has another length")
    coefficients, errors = (
        np.asarray(row[name], dtype=np.float64) for name in ("game_coefficients", "game_errors")
    )
    arrays["game_coefficients"] = coefficients
    arrays["game_errors"] = errors if len(errors) else np.zeros(int(players.sum()))
    kinds = arrays["region_kind"]
    usual = not len(kinds) or (kinds.min() >= 0 and kinds.max() <= PIXELS)
    expect(usual, "a region is of no known kind")
    arrays["region_kind"] = kinds.astype(np.uint8)
    corners = np.empty((len(kinds), 2, len(grid)), dtype=np.int64)
    corners[:] = grid
    blocks = np.asarray(row["region_corners"], dtype=np.int64)
    corners[kinds != PIXELS] = blocks.reshape(-1, 2, len(grid))
    arrays["region_corners"] = corners
    arrays["cells"] = np.frombuffer(row["cells"], dtype=np.uint8)
    return arrays
