"""Whether the header of a file is one of an explanation: types and ranges of all its facts."""

from __future__ import annotations

from dataclasses import fields
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, cast

from hshap.evaluators.protocol import BATCHES, COMPARISONS, NOT_TOLD
from hshap.explanation.archive import expect
from hshap.explanation.placement import Placement
from hshap.explanation.settings import Settings
from hshap.games.search import Certificate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap._util.types import Grid, Json

PLACEMENT = ("shape", "start", "stop")
MOST_AXES = 8
MOST_DEPTH = 64
"""Levels of nested settings; Python's own functions fail at about a thousand."""

LARGEST = 1e300
"""Sums over all games stay finite below this."""


def check_header(header: Mapping[str, Any], *, shared: bool = False) -> None:
    """Check the types and ranges of everything that is not an array.

    `shared` says that its settings, the same object, were checked with another header.
    """
    grid = header["grid"]
    expect(isinstance(grid, list) and 0 < len(grid) <= MOST_AXES, "grid is no list of sides")
    for side in grid:
        expect(_is_count(side, least=1), f"grid has a side {side!r:.20}")
    expect(prod(grid) < 2**53, "grid has too many pixels")
    target, index = header["target"], header["class_index"]
    expect(isinstance(target, str) or _is_count(target), "target is no class and no name")
    expect(index is None or _is_count(index), "class_index is no class")
    expect(isinstance(target, str) or index in (None, target), "class_index is not the target")
    expect(_is_count(header["evaluations"], least=1), "evaluations is no number of model inputs")
    expect(_is_count(header["draws"], least=1), "draws is no number of model inputs")
    expect(_is_count(header["position"]), "position is no number of an image")
    seconds = header["seconds"]
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    expect(is_number and isfinite(seconds) and seconds >= 0, "seconds is no time")
    filled = header["filled"]
    is_share = isinstance(filled, (int, float)) and not isinstance(filled, bool)
    expect(filled is None or (is_share and 0 <= filled <= 1), "filled is no share of pixels")
    expect(isinstance(header["adaptive"], bool), "adaptive is neither true nor false")
    if not shared:
        check_settings(header["settings"])
    check_provenance(header["provenance"])
    if header["placement"] is not None:
        check_placement(header["placement"], tuple(grid))
    check_certificate(header.get("certificate"), header.get("inferred", []))


def check_settings(found: object) -> None:
    """Check that settings are a mapping of few levels, with a search that can be made again."""
    told: dict[str, Json] = found if isinstance(found, dict) else {}
    expect(told is found, "settings is no mapping")
    expect(_depth(told) <= MOST_DEPTH, f"settings has over {MOST_DEPTH} levels")
    _ = Settings(told).search  # fails for options that a search does not have


def check_provenance(found: object) -> None:
    """Check that all facts about the scores are there, and that each has a known value."""
    told: dict[str, Json] = found if isinstance(found, dict) else {}
    expect(told.keys() == vars(NOT_TOLD).keys(), "provenance lacks facts, or has others")
    for name in ("full", "incremental"):
        expect(_is_count(told[name]), f"provenance: {name} is no number of model inputs")
    for name, known in (("comparison", COMPARISONS), ("batches", BATCHES)):
        expect(told[name] in known, f"provenance: {name} is not one of {', '.join(known)}")
    expect(isinstance(told["reason"], str), "provenance: reason is no text")


def check_certificate(found: object, inferred: object) -> None:
    """Check the facts of a certificate; without one, no game may be inferred."""
    listed = cast("list[object]", inferred) if isinstance(inferred, list) else [None]
    expect(all(map(_is_count, listed)), "inferred is no list of games")
    if found is None:
        expect(not listed, "games are inferred, and there is no certificate")
        return
    told: dict[str, Json] = found if isinstance(found, dict) else {}
    names = {field.name for field in fields(Certificate)}
    expect(told.keys() == names, "certificate lacks facts, or has others")
    limits = {"kept": (-LARGEST, LARGEST), "left": (-LARGEST, LARGEST), "gap": (0.0, 1.0)}
    for name, (low, high) in limits.items():
        value = told[name]
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        expect(is_number, f"certificate: {name} is no number")
        expect(low <= cast("float", value) <= high, f"certificate: {name} is out of range")
    expect(told["inferred"] == len(listed), "certificate: inferred is not the number of such games")
    expect(_is_count(told["questions"], least=1), "certificate: questions is no number of them")
    expect(isinstance(told["reason"], str), "certificate: reason is no text")


def check_placement(found: object, grid: Grid) -> None:
    """Check that a placement has numbers alone, and that it is one of this grid."""
    told: dict[str, Any] = found if isinstance(found, dict) else {}
    expect(told.keys() == set(PLACEMENT), "placement lacks facts, or has others")
    for name, value in told.items():
        numbers = [type(item) in (int, float) for item in value if isinstance(value, list)]
        expect(len(numbers) == len(grid) and all(numbers), f"placement: {name} has other entries")
    Placement(grid, **told)  # refuses numbers that are none of an image


def _is_count(value: object, *, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**53


def _depth(document: Json) -> int:
    """Count the levels of nested lists and mappings, without recursion."""
    level, depth = [document], 0
    while level and depth <= MOST_DEPTH:
        depth += 1
        level = [
            item
            for holder in level
            if isinstance(holder, (dict, list))
            for item in (holder.values() if isinstance(holder, dict) else holder)
        ]
    return depth
