"""The data of one image on the page: for each class its regions, its maps, and words about them.

Regions come as in files: one image with the number of the finest region at each pixel, and a tree.
A region has two numbers besides, so that the page needs no search: it is a leaf at every tolerance
from `least` to below `most`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from typing import TYPE_CHECKING

import numpy as np

from hshap.explanation.audit import dropped_alone
from hshap.explanation.display import as_text
from hshap.explanation.guarantees.calibration import marked_area
from hshap.explanation.maps import CONTEXTS
from hshap.explanation.region_tables import label_image, pack_labels, smallest_type
from hshap.explanation.replay import is_adaptive, worths
from hshap.explanation.storage import pack_games
from hshap.games.search import DepthFirst, GroupTesting
from hshap.games.search.frontier import is_end
from hshap.partitions.regions import Box, Rolled, blocks, mask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Array, Heat, Json, Mask
    from hshap.explanation.explanation import Explanation
    from hshap.partitions.protocol import Region

STEPS = 127
"""Steps from 0 to the root of a map's largest value: a signed byte for each pixel."""

IDENTITY = ("grid", "target", "score", "baseline", "strengths", "parents", "leaves")
"""Entries of a class that tell its explanation from any other."""

MOST_BOXES = 100
"""The card of an image shows so many findings at most."""

Numbers = dict["Region", int]


def class_table(label: str, explanation: Explanation, *, has_maps: bool = True) -> dict[str, Json]:
    """Return the table of a class."""
    arrays, regions = pack_games(explanation)
    number = {region: place for place, region in enumerate(regions)}
    tree = explanation.parts
    known = [tree.get(region) for region in regions]  # a search of yours may return others
    above = {part.number: number[region] for region, part in tree.items()}
    sure = explanation.how_sure
    labels, pieces = _pieces(label_image(regions, arrays, explanation.grid), regions, arrays)
    table: dict[str, Json] = {
        "name": label,
        "text": as_text(explanation),
        "audit": str(explanation.audit),
        "sure": sure.word,
        "why": "; ".join(filter(None, (sure.reason, sure.fix))),
        "missed": missed(explanation),
        "concerns": [str(concern) for concern in explanation.concerns[1:]],
        "target": str(explanation.target),
        "score": _plain(explanation.score),
        "baseline": _plain(explanation.baseline_score),
        "probability": explanation.probability,
        "grid": list(explanation.grid),
        "labels": _packed(pack_labels(labels)),
        "pieces": pieces,
        "parents": [-1 if one is None else above.get(one.parent, -1) for one in known],
        "strengths": [0.0 if one is None else _plain(one.coefficient) for one in known],
        "errors": [None if one is None else _plain(one.error) for one in known],
        "shares": [0.0 if one is None else _plain(one.share) for one in known],
        "free": [number for number, one in enumerate(regions) if _is_free(one)],
        "leaves": [number[leaf] for leaf in explanation.leaves],
        "adds": explanation.settings.drops_nothing,
        "limits": _limits(explanation, number),
        "map": None,
        "sides": None,
        "marked": None,
    }
    if has_maps:
        table["map"] = _packed_map(explanation.attribution())
        if explanation.settings.has_contexts:
            table["sides"] = {
                side: _packed_map(explanation.attribution(context=side)) for side in CONTEXTS
            }
    if explanation.calibration is not None:
        table["marked"] = packed_mask(marked_area(explanation))
    own = json.dumps([table[key] for key in IDENTITY])
    # The reviews of findings are kept under it, also when the page is made again.
    return {**table, "identity": hashlib.sha256(own.encode()).hexdigest()[:16]}


def packed_mask(area: Mask) -> str:
    """Return an area as the labels 0 and 1."""
    return _packed(pack_labels(area.astype(np.uint8)))


def _pieces(
    labels: Array, regions: Sequence[Region], arrays: Mapping[str, Array]
) -> tuple[Array, list[int]]:
    """Return labels by which pieces that do not touch differ, and the region of each extra piece.

    A block over the border goes on at the opposite side.
    """
    split = set(arrays["game_region"][arrays["game_players"] > 1].tolist())
    extra: list[int] = []
    for number, region in enumerate(regions):
        if isinstance(region, Rolled) and number not in split:
            for start, stop in blocks(region, labels.shape)[1:]:
                if not extra:
                    labels = labels.astype(np.uint32)
                labels[tuple(map(slice, start, stop))] = len(regions) + len(extra)
                extra.append(number)
    return labels.astype(smallest_type(len(regions) + len(extra))), extra


def _is_free(region: Region) -> bool:
    """Tell whether a region is one object, also in several pieces."""
    return not isinstance(region, (Box, Rolled))


def _limits(explanation: Explanation, number: Numbers) -> dict[str, Json] | None:
    """Return the tolerances at which each region is a leaf: from `least` to below `most`.

    Follows `hshap.explanation.replay`; tests compare the two. None for a run that has no
    tolerance.
    """
    search = explanation.settings.search
    if not isinstance(search, (DepthFirst, GroupTesting)) or not explanation.is_explained:
        return None
    keeps_whole = isinstance(search, DepthFirst) and search.keep_whole
    by_worth = worths(explanation) if isinstance(search, GroupTesting) else None
    adaptive, leaves = is_adaptive(explanation) and by_worth is None, set(explanation.leaves)
    divided = {game.region for game in explanation.games if game.children != (game.region,)}
    least, most = np.zeros(len(number)), np.zeros(len(number))
    root = explanation.games[0]
    visited = {root.region: (0.0, math.inf, root.total)}  # from, to below, own strength
    for game in explanation.games:
        begin, end, own = visited.get(game.region, (0.0, 0.0, 0.0))
        strengths = game.coefficients.tolist()
        if by_worth is not None:
            strengths = [by_worth.get(part, 0.0) for part in game.children]
        if adaptive and game.region in leaves and is_end(game, adaptive=True):
            _set(least, most, number[game.region], begin, min(end, own))
            begin = max(begin, own)
        elif keeps_whole:
            _set(least, most, number[game.region], max(begin, *strengths), min(end, own))
        for part, strength in zip(game.children, strengths, strict=True):
            if part in divided:
                visited[part] = (begin, min(end, strength), strength)
            else:
                _set(least, most, number[part], begin, min(end, strength))
    return {"run": search.tolerance, "least": least.tolist(), "most": most.tolist()}


def _set(least: Heat, most: Heat, region: int, begin: float, end: float) -> None:
    if begin < end:
        least[region], most[region] = begin, end


def missed(explanation: Explanation) -> str:
    """Return the most that was measured outside the findings, in one sentence.

    It is a fact and judges nothing: only `Explanation.how_sure` does.

    >>> from hshap.demo import example
    >>> missed(example())
    'No checked area outside the findings adds to the score by itself.'
    """
    sentence = _outside(explanation)
    if explanation.calibration is not None:
        share = float(marked_area(explanation).mean())
        marked = f"this is the area within the dashed line, {share:.1%} of the image"
        sentence += f" {explanation.calibration}: {marked if share else 'nothing is marked here'}."
    return sentence


def _outside(explanation: Explanation) -> str:
    made = explanation.certificate
    if made is not None and made.inferred:
        if made.word == "not supported":
            return "Not every area outside the findings was checked."
        return f"Without the findings of the run, the image adds {_short(made.left)} to the score."
    outside = dropped_alone(explanation.games, explanation.leaves)
    if not outside:
        return "No checked area lies outside the findings."
    most = f"more than {_short(max(outside))} " if max(outside) > 0 else ""
    return f"No checked area outside the findings adds {most}to the score by itself."


def _short(number: float) -> str:
    """Return a number with two digits that is not below it, so that a bound stays one."""
    scale = 10.0 ** (math.floor(math.log10(abs(number))) - 1) if number else 1.0
    up = math.ceil(number / scale) * scale
    return np.format_float_positional(up, precision=2, fractional=False, trim="-")


def card(explanation: Explanation, truth: Mask | None, *, original: bool) -> dict[str, Json]:
    """Return the facts of a class that the gallery shows, sorts and filters by.

    Boxes are in pixels of the original image if that is shown, else of the grid.
    """
    findings, leaves = explanation.boxes(original=original), explanation.leaves
    overlap = None
    if truth is not None and truth.any():  # a clean image has nothing to overlap with
        found = mask(leaves, explanation.grid)
        overlap = int((found & truth).sum()) / int((found | truth).sum())
    return {
        "score": _plain(explanation.score),
        "probability": explanation.probability,
        "count": len(findings),
        "share": sum(leaf.area for leaf in leaves) / math.prod(explanation.grid),
        "largest": max((finding.score for finding in findings), default=0.0),
        "overlap": overlap,
        "sure": explanation.how_sure.word,
        "boxes": np.array(
            [[*box.start[-2:], *box.stop[-2:]] for box in findings[:MOST_BOXES]], dtype=int
        )
        .ravel()
        .tolist(),
    }


def _packed_map(heat: Heat) -> dict[str, Json] | None:
    """Return a map in steps of the root of its values; None where it is 0 everywhere.

    The page draws the root as opacity: even steps of it show no edge where a map fades out.
    """
    top = float(np.abs(heat).max())
    if not top:
        return None
    steps = np.rint(np.sign(heat) * np.sqrt(np.abs(heat) / top) * STEPS).astype(np.int8)
    return {"top": top, "values": _packed(steps.tobytes())}


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def _plain(value: float) -> float | None:
    """Return a number for JSON; None if it is not finite."""
    return float(value) if math.isfinite(value) else None
