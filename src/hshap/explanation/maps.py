"""Maps of games in several contexts: the mean over all sizes of regions.

At every size, from the image to a pixel, regions of a run cover the image, and their shares add up
to the score. The games do not tell at which of these sizes the evidence lies: the finest regions
are often parts of an object. So the map is the mean over all sizes, and each halving of the area
counts the same. A region that was not split stands for itself at all smaller sizes.

How a share lies inside its region is not known, and the border of the region is the tree's. So each
share is smoothed by a Gaussian filter as wide as half of its region's side. Once the whole score is
in regions that the tree does not split, their borders are taken for those of the evidence, and they
are smoothed a little. The total stays the same.
"""

from __future__ import annotations

from dataclasses import replace
from math import log2
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from hshap._util.smoothing import enlarged, gaussian
from hshap.games.contexts import MISSING
from hshap.games.shapley import shapley
from hshap.games.tree import shares, sources
from hshap.partitions.regions import fill, pixels_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hshap._util.types import Grid, Heat, Mask
    from hshap.games.game import Game
    from hshap.partitions.protocol import Region

WIDTH = 0.5
"""Standard deviation of the smoothing, in sides of the region."""

BORDER = 0.01
"""Standard deviation where no region could be split, in shorter sides of the image."""

STRONG = 0.2
"""A region is a finding if its mean is this share of the highest one, as for activation maps."""

LEAST = 0.5
"""Pixels below which a standard deviation changes next to nothing."""

FINENESS = 4
"""Pixels of a coarser copy that the standard deviation of its smoothing has at least."""


Context: TypeAlias = Literal["alone", "missing"]
CONTEXTS: Final[tuple[Context, ...]] = ("alone", "missing")
AUTO: Final = "auto"
Smooth: TypeAlias = float | Literal["auto"]
"""The standard deviation of a Gaussian filter in pixels, or "auto": half of a region's side."""


def in_context(games: Sequence[Game], context: Context) -> list[Game]:
    """Return the games as they were played in one context: its scores alone count.

    Where a region changes little in the context, its game was not played there: its parts then have
    no share.
    """
    if context == "alone":
        return [replace(game, contexts=()) for game in games]
    found: list[Game] = []
    for game in games:
        played = [one.values for one in game.contexts if one.number == MISSING]
        values = played[0] if played else np.zeros_like(game.values)
        found.append(replace(game, values=values, coefficients=shapley(values), contexts=()))
    return found


def confined(heat: Heat, leaves: Sequence[Region], ignored: Mask) -> Heat:
    """Return the map with 0 on ignored pixels, changed in place; the sum over each leaf stays.

    A leaf that is ignored as a whole is left as it is.
    """
    for leaf in leaves:
        own, without = pixels_of(leaf, heat), pixels_of(leaf, ignored)
        left = np.where(without, 0.0, own)
        if without.any() and left.any():
            fill(leaf, heat, left * (own.sum() / left.sum()))
    return heat


def regions_left(games: Sequence[Game]) -> list[Region]:
    """Return the regions that were not split further; they cover the image.

    >>> import hshap
    >>> [region.start for region in regions_left(hshap.demo.example().games)][:2]
    [(0, 0), (4, 0)]
    """
    split = {game.region for game in games if game.children != (game.region,)}
    parts = [part for game in games for part in game.children if part not in split]
    return parts or [games[0].region]


def shares_left(games: Sequence[Game], context: Context | None = None) -> dict[Region, float]:
    """Return the share of each region that was not split further, from one context or from all.

    Sources are always counted in the games with everything else hidden.
    """
    played = games if context is None else in_context(games, context)
    found = shares(played, sources(games))
    return {region: found[region] for region in regions_left(games)}


def soft_map(
    values: Mapping[Region, float], games: Sequence[Game], grid: Grid, *, resolved: bool = False
) -> Heat:
    """Return the mean of the maps at all sizes of regions, softened.

    `values` are the shares of the finest regions; a larger region has the sum of those inside.
    Regions are softened by half of their side, or if the map is `resolved`, the finest ones by
    `border_width`.
    """
    played = [game for game in games if game.region not in values] or games[:1]
    held = dict(values)
    for game in reversed(played):
        held[game.region] = sum(held.get(part, 0.0) for part in game.children)
    widths = dict.fromkeys(values, border_width(grid)) if resolved else {}
    whole = games[0].region.area
    octaves = log2(whole) or 1.0
    # What each width adds to the density of a region, from the image down.
    layers: dict[Region, dict[float, float]] = {games[0].region: {}}
    for game in played:
        if game.region not in layers:
            continue  # inside a region that counts as a whole
        smaller = log2(whole / game.region.area) / octaves
        for part in game.children:
            if not held.get(part):
                layers[part] = layers[game.region]
                continue
            smallest = 1.0 if part in values else log2(whole / part.area) / octaves
            width = widths.get(part, _half_side(part, len(grid)))
            density = (smallest - smaller) * held[part] / part.area
            before = layers[game.region]
            layers[part] = before | {width: before.get(width, 0.0) + density}
    split = {game.region for game in played if game.children != (game.region,)}
    return _painted({one: own for one, own in layers.items() if one not in split}, grid)


def _half_side(region: Region, axes: int) -> float:
    """Return about half of a region's side: regions of about one size are smoothed together."""
    return WIDTH * 2 ** (round(2 * log2(region.area) / axes) / 2)


def _painted(layers: Mapping[Region, Mapping[float, float]], grid: Grid) -> Heat:
    """Return the sum of layers of one width each; each region has a density in some of them."""
    places = np.zeros(grid, dtype=np.intp)
    for number, region in enumerate(layers):
        fill(region, places, number)
    total = np.zeros(grid)
    for width in sorted({width for own in layers.values() for width in own}):
        densities = np.array([own.get(width, 0.0) for own in layers.values()])
        total += softened(densities[places], width)
    return total


def border_width(grid: Grid) -> float:
    """Return the standard deviation, in pixels, for borders that are known; 0 on small images."""
    width = BORDER * min(grid)
    return width if width >= LEAST else 0.0


def even_map(values: Mapping[Region, float], grid: Grid) -> Heat:
    """Return a map on which each region spreads its value evenly."""
    heat = np.zeros(grid)
    for region, value in values.items():
        if value:
            fill(region, heat, value / region.area)
    return heat


def is_resolved(values: Mapping[Region, float], unfinished: Collection[Region]) -> bool:
    """Tell whether no region with a value could be split further: nothing is left to soften."""
    return not any(values.get(region) for region in unfinished)


def softened(heat: Heat, width: float) -> Heat:
    """Return a smoothed map of the same total; wide filters work on a coarser copy."""
    step = max(1, int(width / FINENESS))
    if width < LEAST or step == 1:
        return heat if width < LEAST else gaussian(heat, width, range(heat.ndim))
    coarse = gaussian(_shrunk(heat, step), width / step, range(heat.ndim))
    padded = tuple(side * step for side in coarse.shape)
    smooth = enlarged(coarse, padded)[tuple(map(slice, heat.shape))]
    total = float(smooth.sum())
    return smooth * (float(heat.sum()) / total) if total else smooth


def strong_regions(
    values: Mapping[Region, float], unfinished: Collection[Region], grid: Grid
) -> tuple[Region, ...]:
    """Return the regions where the map of these shares is strong, the strongest first.

    Each holds at least its area's part of the score: a region beside a finding, where the softened
    map is strong as well, does not. Once no region with a share could be split further, the regions
    are not softened.
    """
    if is_resolved(values, unfinished):
        heat = even_map(values, grid)
    else:
        layers = {
            one: {_half_side(one, len(grid)): value / one.area} for one, value in values.items()
        }
        heat = _painted(layers, grid)
    even = sum(values.values()) / heat.size
    means = {
        one: float(pixels_of(one, heat).mean())
        for one, value in values.items()
        if value > 0 and value >= even * one.area
    }
    highest = max(means.values(), default=0.0)
    strong = [one for one, mean in means.items() if mean >= STRONG * highest > 0]
    return tuple(sorted(strong, key=lambda one: -means[one]))


def _shrunk(heat: Heat, step: int) -> Heat:
    """Return the means of blocks of `step` pixels on each axis; borders are repeated."""
    missing = [(0, -side % step) for side in heat.shape]
    out = np.pad(heat, missing, mode="edge") if any(more for _, more in missing) else heat
    for axis in range(heat.ndim):
        shape = (*out.shape[:axis], out.shape[axis] // step, step, *out.shape[axis + 1 :])
        out = out.reshape(shape).mean(axis + 1)
    return out
