"""Reading an explanation again, more coarsely or more strictly, from the games it holds.

The search that made it is run once more, with the recorded games in place of a model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hshap import checks
from hshap.errors import ArgumentError
from hshap.recipes import describe
from hshap.regions import Index, Region, extent, is_adaptive
from hshap.search import BreadthFirst, DepthFirst, Found, Game

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap.explanation import Explanation

SEARCHES = {"DepthFirst": DepthFirst, "BreadthFirst": BreadthFirst}


def reread(
    explanation: Explanation,
    *,
    min_size: int | Sequence[int] | Literal["auto"] | None,
    min_area: int | None,
    tolerance: float | None,
    percentile: float | None,
) -> Explanation:
    """Return what the same search finds in the recorded games at coarser or stricter settings."""
    search = _search(explanation.settings, tolerance=tolerance, percentile=percentile)
    partition = explanation.settings.get("partition", {})
    adaptive = is_adaptive(explanation.games[0].region) or is_auto(partition)
    # A run whose regions sized themselves ends where it ended.
    ended = frozenset(explanation.leaves) if adaptive else None
    limits, area = None, 0
    if isinstance(min_size, str) and min_size == "auto":
        adaptive, min_size = True, None
        partition = _marked(partition)
    if min_size is not None:
        sides = checks.sides("min_size", min_size)
        limits = checks.per_axis("min_size", sides, len(explanation.grid))
        partition = _coarser(partition, sides, len(explanation.grid))
    if min_area is not None:
        area = checks.integer("min_area", min_area, minimum=1)
        partition = _larger(partition, area)
    games = {game.region: game for game in explanation.games}
    tree = _Tree(games, explanation.grid, limits, area, adaptive, ended)
    found, games = _replay(search, tree, explanation.games[0].region)
    known = {*explanation.leaves, *tree.games}.difference(explanation.unfinished)
    # A percentile over fewer games may keep a part that was dropped: what is in it is not known.
    unfinished = [leaf for leaf in found if leaf not in known and not tree.is_small(leaf)]
    draws = explanation.draws
    return replace(
        explanation,
        leaves=tuple(found),
        games=tuple(games),
        evaluations=draws + 1 + sum(draws * (len(game.values) - 2) for game in games),
        unfinished=tuple(unfinished),
        settings={**explanation.settings, "partition": partition, "search": describe(search)},
    )


@dataclass(frozen=True)
class _Tree:
    """The recorded games as a tree that ends where regions are small enough.

    `ended` are the leaves of a run whose regions sized themselves, None of one whose did not.
    """

    games: Mapping[Region, Game]
    grid: tuple[int, ...]
    limits: tuple[int, ...] | None
    area: int
    adaptive: bool
    ended: frozenset[Region] | None

    def is_small(self, region: Region) -> bool:
        if region.size <= self.area:
            return True
        if self.limits is None:
            return False
        sides = extent(region, self.grid)
        return all(side <= limit for side, limit in zip(sides, self.limits, strict=True))

    def game(self, region: Region) -> Game:
        """Return a region's game, or the one that a region which is not split plays alone."""
        game = self.games[region]
        if not self.is_small(region):
            return game
        ends, total = game.values[[0, -1]], np.array([game.total])
        error = game.errors if len(game.children) == 1 else np.full(1, np.nan)
        return Game(region, (region,), ends, total, error if game.errors.any() else 0 * total)


@dataclass(frozen=True)
class _Node:
    """A region whose parts are those of the tree."""

    region: Region
    tree: _Tree

    @property
    def index(self) -> Index:
        return self.region.index

    @property
    def size(self) -> int:
        return self.region.size

    @property
    def adaptive(self) -> bool:
        return self.tree.adaptive

    @property
    def ended(self) -> bool | None:
        return None if self.tree.ended is None else self.region in self.tree.ended

    def split(self) -> tuple[_Node, ...]:
        game = self.tree.games.get(self.region)
        if game is None or self.tree.is_small(self.region) or game.children == (self.region,):
            return ()
        return tuple(_Node(part, self.tree) for part in game.children)


def _replay(
    search: DepthFirst | BreadthFirst, tree: _Tree, root: Region
) -> tuple[list[Region], list[Game]]:
    played: list[Game] = []
    steps = search(_Node(root, tree))
    asked = next(steps)
    while True:
        games = [tree.game(_region(node)) for node in asked]
        played += games
        shown = [
            replace(game, region=node, children=tuple(_Node(p, tree) for p in game.children))
            for game, node in zip(games, asked, strict=True)
        ]
        try:
            asked = steps.send(shown)
        except StopIteration as done:
            found: Found = done.value
            return [_region(node) for node in found.leaves], played


def _region(node: Any) -> Region:
    return node.region


def _search(
    settings: Mapping[str, Any], *, tolerance: float | None, percentile: float | None
) -> DepthFirst | BreadthFirst:
    options: dict[str, Any] = dict(settings.get("search", {}))
    made_by = options.pop("type", None)
    if made_by not in SEARCHES:
        message = f"search {made_by!r} cannot be read again; only {', '.join(SEARCHES)} can"
        raise ArgumentError(message)
    for name, value in (("tolerance", tolerance), ("percentile", percentile)):
        if value is None:
            continue
        if name not in options:
            message = f"{name}={value} does not apply: this run used {made_by}; leave it out"
            raise ArgumentError(message)
        if checks.number(name, value, minimum=0.0) < options[name]:
            message = (
                f"{name}={value} is below the {options[name]} of this run, which dropped regions "
                "it would need; explain again"
            )
            raise ArgumentError(message)
        options[name] = value
    # Nothing is spent on games that were played already.
    options |= {"max_evaluations": None, "max_seconds": None}
    return SEARCHES[made_by](**options)


def is_auto(partition: Mapping[str, Any]) -> bool:
    """Tell whether regions size themselves, also in a run that was read more coarsely since."""
    inner = partition.get("partition")
    if inner is not None:
        return is_auto(inner)
    sizes = (partition.get("min_size"), partition.get("min_area"))
    return "auto" in sizes or bool(partition.get("adaptive"))


def _marked(partition: Mapping[str, Any]) -> Any:
    """Return a partition's description with the note that its regions size themselves."""
    if "partition" in partition:
        return {**partition, "partition": _marked(partition["partition"])}
    return {**partition, "adaptive": True}


def _larger(partition: Mapping[str, Any], area: int) -> Any:
    """Return a partition's description with a larger `min_area`."""
    if "partition" in partition:
        return {**partition, "partition": _larger(partition["partition"], area)}
    old = partition.get("min_area", "auto")
    if old != "auto" and area < old:
        message = f"min_area={area} is finer than the {old} of this run; explain again"
        raise ArgumentError(message)
    return _sized(partition, "min_area", area)


def _coarser(partition: Mapping[str, Any], sides: int | tuple[int, ...], axes: int) -> Any:
    """Return a partition's description with a larger `min_size`."""
    if "partition" in partition:
        return {**partition, "partition": _coarser(partition["partition"], sides, axes)}
    if partition.get("min_size", "auto") != "auto":
        old = partition["min_size"]
        was = checks.per_axis("min_size", tuple(old) if isinstance(old, list) else old, axes)
        now = checks.per_axis("min_size", sides, axes)
        if any(new < least for new, least in zip(now, was, strict=True)):
            message = f"min_size={sides} is finer than the {old} of this run; explain again"
            raise ArgumentError(message)
    return _sized(partition, "min_size", describe(sides))


def _sized(partition: Mapping[str, Any], name: str, size: Any) -> Any:
    adaptive = {"adaptive": True} if is_auto(partition) else {}
    return {**partition, **adaptive, name: size}
