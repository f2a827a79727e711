"""Reading an explanation again, more coarsely or more strictly, from the games it holds.

The search that made it is run once more, with the recorded games in place of a model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.explanation.settings import AUTO, KNOWN_SEARCHES
from hshap.games.game import Game
from hshap.games.search import BreadthFirst, DepthFirst
from hshap.partitions.regions import extent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Grid
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.settings import Settings
    from hshap.games.search.automatic_size import RunEnded
    from hshap.games.search.protocol import SearchResult
    from hshap.partitions.protocol import Adaptive, Index, Region


def reread(
    explanation: Explanation,
    *,
    min_size: int | Sequence[int] | Literal["auto"] | None,
    min_area: int | None,
    tolerance: float | None,
    percentile: float | None,
) -> Explanation:
    """Return the leaves that the same search finds in the recorded games at other settings."""
    settings = explanation.settings
    search = _search(settings, tolerance=tolerance, percentile=percentile)
    adaptive = settings.adaptive or explanation.games[0].region.adaptive
    # A run by the automatic rule ends where it ended.
    ended = frozenset(explanation.leaves) if adaptive else None
    limits, area = None, 0
    if isinstance(min_size, str) and min_size == AUTO:
        adaptive, min_size = True, None
        settings = settings.at_automatic_size()
    if min_size is not None:
        sides = checks.sides("min_size", min_size)
        limits = checks.per_axis("min_size", sides, len(explanation.grid))
        settings = settings.at_size(sides, len(explanation.grid))
    if min_area is not None:
        area = checks.integer("min_area", min_area, minimum=1)
        settings = settings.at_area(area)
    games = {game.region: game for game in explanation.games}
    tree = _Tree(games, explanation.grid, limits, area, adaptive)
    found, games = _replay(search, tree, explanation.games[0].region, ended)
    known = {*explanation.leaves, *tree.games}.difference(explanation.unfinished)
    # A percentile over fewer games may keep a part that was dropped: its inside is not known.
    unfinished = [leaf for leaf in found if leaf not in known and not tree.is_small(leaf)]
    # The choice of the baseline and the evidence belong to every reading.
    besides = explanation.evaluations - _evaluations(explanation.games, explanation.draws)
    return replace(
        explanation,
        leaves=tuple(found),
        games=tuple(games),
        evaluations=_evaluations(games, explanation.draws) + max(besides, 0),
        unfinished=tuple(unfinished),
        settings=settings.updated(search=search),
    )


def _evaluations(games: Sequence[Game], draws: int) -> int:
    """Count the model inputs of games; the bare baseline and the image are in all of them."""
    return draws + 1 + sum(draws * (len(game.values) - 2) for game in games)


@dataclass(frozen=True)
class _Tree:
    """The recorded games as a tree that ends where regions are small enough."""

    games: Mapping[Region, Game]
    grid: Grid
    limits: tuple[int, ...] | None
    area: int
    adaptive: Adaptive

    def is_small(self, region: Region) -> bool:
        if region.area <= self.area:
            return True
        if self.limits is None or region.area > prod(self.limits):
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
    """A region whose parts are those of the recorded tree."""

    region: Region
    tree: _Tree

    @property
    def index(self) -> Index:
        return self.region.index

    @property
    def area(self) -> int:
        return self.region.area

    @property
    def adaptive(self) -> Adaptive:
        return self.tree.adaptive

    def split(self) -> tuple[_Node, ...]:
        game = self.tree.games.get(self.region)
        if game is None or self.tree.is_small(self.region) or game.children == (self.region,):
            return ()
        return tuple(_Node(part, self.tree) for part in game.children)


def _replay(
    search: DepthFirst | BreadthFirst, tree: _Tree, root: Region, ended: frozenset[Region] | None
) -> tuple[list[Region], list[Game]]:
    """Run the search on recorded games; `ended` are the leaves of an automatic run."""
    played: list[Game] = []
    run_ended: RunEnded | None = None if ended is None else lambda node: _region(node) in ended
    steps = search.steps(_Node(root, tree), run_ended=run_ended)
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
            result: SearchResult = done.value
            return [_region(node) for node in result.leaves], played


def _region(node: Region) -> Region:
    return cast("_Node", node).region


def _search(
    settings: Settings, *, tolerance: float | None, percentile: float | None
) -> DepthFirst | BreadthFirst:
    made = settings.search
    if made is None:
        known = ", ".join(KNOWN_SEARCHES)
        message = f"search {settings.search_name!r} cannot be read again; only {known} can"
        raise ArgumentError(message)
    own, before = (
        ("tolerance", made.tolerance)
        if isinstance(made, DepthFirst)
        else ("percentile", made.percentile)
    )
    for name, value in (("tolerance", tolerance), ("percentile", percentile)):
        if value is None:
            continue
        if name != own:
            message = (
                f"{name}={value} does not apply: this run used {settings.search_name}; leave it out"
            )
            raise ArgumentError(message)
        if checks.number(name, value, minimum=0.0) < before:
            message = (
                f"{name}={value} is below the {before} of this run, which dropped regions "
                "it would need; explain again"
            )
            raise ArgumentError(message)
        made = replace(made, **{name: value})
    # Games that were played already cost nothing.
    return replace(made, max_evaluations=None, max_seconds=None)
