"""The first line of the page in words, and facts of a run for the page's index."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hshap.explanation.audit import dropped_alone
from hshap.explanation.guarantees.calibration import marked_area
from hshap.partitions.regions import mask

if TYPE_CHECKING:
    from hshap._util.types import Json, Mask
    from hshap.explanation.explanation import Explanation

MOST_BOXES = 100
"""The card of an image shows so many findings at most."""


def missed(explanation: Explanation) -> str:
    """Return the most that was measured outside the findings, in one sentence.

    It is a fact and judges nothing: only `Explanation.how_sure` does.

    >>> from hshap.demo import example
    >>> missed(example())
    'No checked area outside the findings adds to the score by itself.'
    """
    told = _outside(explanation)
    if explanation.calibration is not None:
        share = float(marked_area(explanation).mean())
        marked = f"this is the area within the dashed line, {share:.1%} of the image"
        told += f" {explanation.calibration}: {marked if share else 'nothing is marked here'}."
    return told


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


def facts(explanation: Explanation, truth: Mask | None, *, original: bool) -> dict[str, Json]:
    """Return the facts of a class that the gallery shows, sorts and filters by.

    Boxes are in pixels of the original image if that is shown, else of the grid.
    """
    findings, leaves = explanation.boxes(original=original), explanation.leaves
    overlap = None
    if truth is not None and truth.any():  # a clean image has nothing to overlap with
        found = mask(leaves, explanation.grid)
        overlap = int((found & truth).sum()) / int((found | truth).sum())
    score = explanation.score
    return {
        "score": score if math.isfinite(score) else None,
        "count": len(findings),
        "share": sum(leaf.area for leaf in leaves) / math.prod(explanation.grid),
        "largest": max((finding.score for finding in findings), default=0.0),
        "overlap": overlap,
        "sure": explanation.how_sure.word,
        "unfinished": 0 if explanation.complete else len(explanation.unfinished),
        "boxes": np.array(
            [[*box.start[-2:], *box.stop[-2:]] for box in findings[:MOST_BOXES]], dtype=int
        )
        .ravel()
        .tolist(),
    }
