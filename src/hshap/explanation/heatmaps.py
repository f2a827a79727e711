"""The maps of an explanation: what each pixel shows, from the games that were played.

`maps` spreads numbers over regions; this chapter says which numbers, and where they are softened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.smoothing import smoothed
from hshap.errors import ArgumentError
from hshap.explanation.maps import (
    AUTO,
    CONTEXTS,
    Context,
    Smooth,
    border_width,
    confined,
    even_map,
    is_resolved,
    regions_left,
    shares_left,
    soft_map,
)
from hshap.games.tree import null_players
from hshap.partitions.regions import fill, mask

if TYPE_CHECKING:
    from hshap._util.types import Heat, Mask
    from hshap.explanation.explanation import Explanation
    from hshap.partitions.protocol import Region


def saliency(explanation: Explanation) -> Heat:
    """Return the paper's map: even over the relevant pixels, its total is 1."""
    relevant = np.zeros(explanation.grid)
    for leaf in explanation.leaves:
        fill(leaf, relevant, 1.0)
    return relevant / max(relevant.sum(), 1.0)


def coefficients(explanation: Explanation) -> Heat:
    """Return a map in which each leaf shows the coefficient it has in its own game."""
    heat = np.zeros(explanation.grid)
    for leaf in explanation.leaves:
        fill(leaf, heat, explanation.parts[leaf].coefficient)
    return heat


def attribution(
    explanation: Explanation, *, smooth: Smooth | None = None, context: Context | None = None
) -> Heat:
    """Return the map of shares; `Explanation.attribution` says how they are divided."""
    settings, grid = explanation.settings, explanation.grid
    values = shares_of(explanation, context)
    softens = settings.drops_nothing or settings.has_cells
    width = smooth if smooth is not None else AUTO if softens else 0.0
    if width == AUTO and _is_exact(explanation):
        width = border_width(grid)
    if width == AUTO:
        resolved = settings.drops_nothing and is_resolved(values, blurred_regions(explanation))
        heat = soft_map(values, explanation.games, grid, resolved=resolved)
        return _without_ignored(heat, ignored(explanation))
    heat = even_map(values, grid)
    played = {game.region for game in explanation.games}
    ended = [region for region in values if region in played]  # by the automatic rule
    nothing = ignored(explanation) if ended or width else None
    if ended and nothing is not None:
        heat = confined(heat, ended, nothing)
    return smoothed(heat, width, nothing if width else None)


def shares_of(explanation: Explanation, context: Context | None = None) -> dict[Region, float]:
    """Return the share of each region of the map, from one context or from all."""
    settings = explanation.settings
    if context is None:
        left = regions_left(explanation.games) if settings.drops_nothing else explanation.leaves
        return {region: explanation.shares[region] for region in left}
    if not settings.has_contexts:
        message = (
            f"context is {checks.shown(context)}, but this run did not play games in several "
            "contexts; explain with search=BestFirst(contexts=2), or leave it out"
        )
        raise ArgumentError(message)
    if context not in CONTEXTS:
        message = f'context is {checks.shown(context)}; pass "alone", "missing" or None'
        raise ArgumentError(message)
    return shares_left(explanation.games, context)


def ignored(explanation: Explanation) -> Mask:
    """Return the pixels that the model was shown to ignore: parts that change no score.

    They change none in any context that was played. In the paper's game, pixels outside of the
    divided region are hidden: what a part may do together with them was not asked. Maps are 0
    there. Leaves are not among them: at a tolerance of 0, a search keeps a part that only rounding
    raised above it.

    >>> import hshap
    >>> ignored(hshap.demo.example()).any().item()
    True
    """
    kept = set(explanation.leaves)
    found = (part for part in null_players(explanation.games) if part not in kept)
    return mask(tuple(found), explanation.grid)


def blurred_regions(explanation: Explanation) -> tuple[Region, ...]:
    """Return the regions inside which a share may lie anywhere, if their search drops nothing."""
    # The largest difference of a cell of `Spots` is in its middle.
    return () if explanation.settings.has_cells else explanation.unfinished


def _is_exact(explanation: Explanation) -> bool:
    """Tell whether the finest map is all that the partition can tell."""
    settings = explanation.settings
    return settings.has_cells or (settings.drops_nothing and not explanation.unfinished)


def _without_ignored(heat: Heat, nothing: Mask) -> Heat:
    """Return a map of the same total that is 0 on ignored pixels."""
    kept = np.where(nothing, 0.0, heat)
    left = float(kept.sum())
    return kept * (float(heat.sum()) / left) if left else heat
