"""Rows: an explanation as a row of a table, and back. The fields are those of `storage`."""

from __future__ import annotations

import hashlib
import json
import marshal
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np

from hshap.errors import FormatError
from hshap.explanation import storage
from hshap.explanation.archive import DamagedError, TooLargeError, expect, limit, only_damage
from hshap.explanation.explanation import Explanation
from hshap.explanation.headers import MOST_AXES
from hshap.explanation.region_tables import PIXELS
from hshap.explanation.together import MOST_VALUES, audit_together
from hshap.explanation.validity import Stored, check_each, joined
from hshap.games.game import MOST_PLAYERS
from hshap.games.shapley import shapley
from hshap.partitions.regions import Pixels, mask
from hshap.runs.storing.cells import CellTable, labels_of, pack_labels, unpack_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Ints, Json, Untyped
    from hshap.explanation.region_tables import Table
    from hshap.games.game import Game
    from hshap.partitions.protocol import Region

    Row = dict[str, Untyped]
    Labels = NDArray[np.unsignedinteger]

T = TypeVar("T")
Given = ParamSpec("Given")
Made = TypeVar("Made")
ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True)

KeptEvidence: TypeAlias = Literal["none", "leaves", "all"]
KEPT: tuple[KeptEvidence, ...] = ("none", "leaves", "all")
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
NEEDED = (*NUMBERS, "image", "transform", "header", "cells", "evidence", "evidence_kept")
"""Columns that make an explanation; others repeat what it tells, for queries."""

REGION = 128
"""Bytes for each region in a size: even one that a row tells in a byte has corners in a table."""


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
    (row,) = as_rows([(explanation, origin)], keep)
    if isinstance(row, Exception):
        raise row
    return row


def as_rows(
    given: Sequence[tuple[Explanation, Origin]], keep: KeptEvidence = "leaves"
) -> list[Row | Exception]:
    """Return the row of each explanation, or the error that it meets; many are checked at once.

    It is an `ArgumentError` where the row could not be read again.
    """
    return [row for block in blocks(given, _pixels) for row in _block_of_rows(block, keep)]


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


def size_of(row: Mapping[str, Untyped]) -> int:
    """Return how much room a row takes when it is checked, for `blocks`: cells, regions, numbers.

    Rows may come from anybody: a few bytes of a file can hold millions of regions.
    """
    numbers = 8 * sum(_length(row[name]) for name in NUMBERS)
    return max(_length(row["cells"]), REGION * _length(row["region_kind"]), numbers)


def _length(column: Sequence[object] | Array | None) -> int:
    return 0 if column is None else len(column)  # a damaged row may lack a column


def _pixels(given: tuple[Explanation, Origin]) -> int:
    return prod(given[0].grid)


def _block_of_rows(
    given: Sequence[tuple[Explanation, Origin]], keep: KeptEvidence
) -> list[Row | Exception]:
    explanations = [explanation for explanation, _ in given]
    audit_together(explanations)
    packed = list(map(partial(attempt, _packed), explanations, _are_exact(explanations)))
    sound = [one for one in packed if not isinstance(one, Exception)]
    tables = iter(check_each([one.stored for one in sound], most=2**62, kind=CellTable))
    return [
        one
        if isinstance(one, Exception)
        else attempt(_row, explanation, origin, keep, one, next(tables))
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
    keep: KeptEvidence,
    packed: _Packed,
    checked: tuple[Table, int] | DamagedError,
) -> Row:
    with storage.only_sound():
        if isinstance(checked, DamagedError):
            raise checked
        table, place = checked
        cast("CellTable", table).check_regions(place, packed.regions)
    audit = vars(explanation.audit)
    arrays = packed.stored.arrays
    labels = cast("Labels", arrays["labels"])
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
        "header": packed.header,
        **{name: arrays[name].tolist() for name in LISTS},
        "game_values": arrays["game_values"].tolist(),
        **packed.derived,
        "region_corners": arrays["region_corners"][arrays["region_kind"] != PIXELS]
        .ravel()
        .tolist(),
        "cells": pack_labels(labels, explanation.grid) if len(labels) else b"",
        **_evidence(explanation, keep),
    }
    return {**row, "digest": digest_of(row)}


def _packed(explanation: Explanation, exact: bool | None) -> _Packed:  # noqa: FBT001, of a map
    """Return an explanation in numbers, to be checked; `exact` is that of `_are_exact`."""
    arrays, regions = storage.pack_games(explanation)
    arrays |= storage.pack_blocks(regions, explanation.grid)
    arrays["labels"] = labels_of(arrays, regions, explanation.grid)
    header = _json(storage.header_of(explanation, regions))
    derived = _derived(arrays, exact=exact)
    stored = Stored(json.loads(header), arrays, exact=not derived["game_coefficients"])
    return _Packed(header, stored, regions, derived)


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
    tables = iter(check_each(sound, most=most, kind=CellTable))
    for row, one in zip(rows, read, strict=True):
        found = next(tables) if isinstance(one, Stored) else one
        try:
            if isinstance(found, DamagedError):
                raise found
            yield _explanation(row, cast("Stored", one), *found)
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
    derived = [one.arrays for one in read if isinstance(one, Stored) and one.exact]
    if derived:
        players, counts = joined(derived, "game_players")
        with np.errstate(all="ignore"):  # values that are not finite are refused by the checks
            found = _coefficients(joined(derived, "game_values")[0], players)
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
            return Stored(header, _arrays(row, grid), exact=not len(row["game_coefficients"]))
    except DamagedError as error:
        return error


def _explanation(
    row: Mapping[str, Untyped], stored: Stored, table: Table, place: int
) -> Explanation:
    found = Explanation(**storage.fields_of(stored, table, place))
    if row["evidence_kept"] != "leaves":
        return found
    with only_damage():
        return replace(found, evidence=_inside_leaves(found, row["evidence"]))


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
        told = _coefficients(values, arrays["game_players"])
        exact = np.array_equal(told, arrays["game_coefficients"])
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
    if _WRITE is None or isinstance(value, str):
        return ENCODER.encode(value)
    return "".join(_WRITE(value, 0))


def _writer() -> Callable[[object, int], Sequence[str]] | None:
    """Return the function that `ENCODER.encode` makes anew for each value; None without one.

    To make it takes longer than to write a number or a short list, and a row has 30 of these.
    """
    make: Untyped = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return None
    key, item = ENCODER.key_separator, ENCODER.item_separator
    text: Untyped = json.encoder.encode_basestring_ascii
    return make(None, ENCODER.default, text, None, key, item, ENCODER.sort_keys, False, True)  # noqa: FBT003


_WRITE = _writer()


def at_number(explanation: Explanation, number: int) -> Explanation:
    """Return an explanation whose position is its number in the run."""
    return replace(explanation, position=number)
