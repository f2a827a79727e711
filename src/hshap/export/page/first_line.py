"""The first line of the page in words, and facts of a run for the page's index."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hshap.partitions.regions import mask

if TYPE_CHECKING:
    from hshap._util.types import Json, Mask
    from hshap.explanation.explanation import Explanation

MOST_BOXES = 100
"""The card of an image shows so many findings at most."""


def missed(explanation: Explanation) -> str:
    """Return the findings that the run may have missed, in one or two sentences.

    >>> from hshap.demo import example
    >>> missed(example())
    'Nothing outside the findings adds to the score by itself.'
    """
    audit, left = explanation.audit, len(explanation.unfinished)
    bound = np.format_float_positional(
        audit.dropped_at_most, precision=2, fractional=False, trim="-"
    )
    if audit.failures:
        told = (
            f"An area outside the findings may add more than {bound} to the score by itself: "
            f"showing more of the image lowered the score in {100 * audit.failures:.0f} % of the "
            "checks."
        )
    elif audit.dropped_at_most > 0:
        told = (
            f"No checked area outside the findings adds more than {bound} to the score by itself, "
            "as long as showing more of the image never lowers the score."
        )
    else:
        told = "Nothing outside the findings adds to the score by itself."
    if left:
        areas = "1 area was" if left == 1 else f"{left} areas were"
        told += f" {areas} not looked into, because the budget was spent."
    if explanation.calibration is not None:
        share = float(explanation.marked_area().mean())
        marked = f"this is the area within the dashed line, {share:.1%} of the image"
        told += f" {explanation.calibration}: {marked if share else 'nothing is marked here'}."
    return told


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
        "concerns": len(explanation.concerns),
        "unfinished": len(explanation.unfinished),
        "boxes": np.array(
            [[*box.start[-2:], *box.stop[-2:]] for box in findings[:MOST_BOXES]], dtype=int
        )
        .ravel()
        .tolist(),
    }
