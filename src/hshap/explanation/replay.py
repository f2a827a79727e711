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
from hshap.games.search import BreadthFirst, DepthFirst, GroupTesting
from hshap.partitions.grids import limits_of
from hshap.partitions.regions import extent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.axes import Spacing
    from hshap._util.types import Grid, Heat
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.settings import Settings
    from hshap.games.search import Certificate
    from hshap.games.search.frontier import RunEnded
    from hshap.games.search.protocol import SearchResult
    from hshap.games.tree import Part
    from hshap.partitions.protocol import Index, Region


def reread(
    explanation: Explanation,
    *,
    min_size: int | Sequence[int] | Literal["auto"] | None,
    min_area: int | None,
    tolerance: float | None,
    percentile: float | None,
) -> Explanation:
    """Return the leaves that the same search finds in the recorded games at other settings.

    An image that was not explained has none at any setting, and is returned as it is.
    """
    if not explanation.is_explained:
        return explanation
    settings = explanation.settings
    search = _search(settings, tolerance=tolerance, percentile=percentile)
    by_worth = isinstance(search, GroupTesting)
    adaptive = is_adaptive(explanation)
    if by_worth:
        adaptive = False  # its leaves were not ended by games
    # A run by the automatic rule ends where it ended.
    ended = frozenset(explanation.leaves) if adaptive else None
    limits, area = None, 0
    if isinstance(min_size, str) and min_size == AUTO:
        adaptive, min_size = True, None
        settings = settings.at_automatic_size()
    if min_size is not None:
        sides = checks.sides("min_size", min_size)
        limits = limits_of(sides, _spacing(settings, explanation.grid), len(explanation.grid))
        settings = settings.at_size(sides, len(explanation.grid))
    if min_area is not None:
        area = checks.integer("min_area", min_area, minimum=1)
        settings = settings.at_area(area)
    games = {game.region: game for game in explanation.games}
    tree = _Tree(games, explanation.grid, limits, area, adaptive)
    worth = worths(explanation) if by_worth else None
    replayed = DepthFirst(search.tolerance) if isinstance(search, GroupTesting) else search
    found, games = _replay(replayed, tree, explanation.games[0].region, ended, worth)
    # A percentile over fewer games may keep a part that was dropped: its inside is not known.
    unfinished = [leaf for leaf in found if not tree.is_small(leaf)]
    if unfinished:
        known = {*explanation.leaves, *tree.games}.difference(explanation.unfinished)
        unfinished = [leaf for leaf in unfinished if leaf not in known]
    # Questions belong to every reading.
    besides = explanation.evaluations - _evaluations(explanation.games, explanation.draws)
    spent = _evaluations(games, explanation.draws) + max(besides, 0)
    return replace(
        explanation,
        leaves=tuple(found),
        games=tuple(games),
        evaluations=explanation.evaluations if by_worth else spent,
        unfinished=tuple(unfinished),
        certificate=_certificate(explanation, found, games),
        settings=settings.updated(search=search),
    )


def is_adaptive(explanation: Explanation) -> bool:
    """Tell whether branches ended by the automatic rule; they did not where a size was given."""
    return explanation.settings.adaptive or explanation.games[0].region.adaptive


def _spacing(settings: Settings, grid: Grid) -> Spacing | None:
    """Return the sides of a pixel; a file of others may hold those of another grid."""
    found = settings.spacing
    return found if found is not None and len(found) == len(grid) else None


def worths(explanation: Explanation) -> dict[Region, float]:
    """Return the worth of each region that holds a leaf: the highest score that one of them adds.

    A run of `GroupTesting` is read again by it: a region is kept at a higher tolerance if its worth
    is above. A leaf that adds no more than the run's own tolerance is worth just more than that.
    """
    search, tree = explanation.settings.search, explanation.parts
    least = search.tolerance if isinstance(search, GroupTesting) else 0.0
    by_number = list(tree.values())
    found: dict[Region, float] = {}
    for leaf in explanation.leaves:
        part = tree[leaf]
        worth = max(part.alone, float(np.nextafter(least, np.inf)))
        while True:
            found[part.region] = max(found.get(part.region, 0.0), worth)
            if part.parent < 0:
                break
            part = by_number[part.parent]
    return found


def _certificate(
    explanation: Explanation, found: Sequence[Region], games: Sequence[Game]
) -> Certificate | None:
    """Return the certificate of a reading: none of its checks is about one without findings."""
    made = explanation.certificate
    if made is None:
        return None
    inferred = sum(game.inferred for game in games)
    tree, by_number, kept = explanation.parts, list(explanation.parts.values()), set(found)

    def is_kept(part: Part) -> bool:
        """Tell whether a finding is one of the reading's, or lies in one of them."""
        while part.region not in kept and part.parent >= 0:
            part = by_number[part.parent]
        return part.region in kept

    if all(is_kept(tree[leaf]) for leaf in explanation.leaves):
        return replace(made, inferred=inferred)
    reasons = (made.reason, "this reading at a higher tolerance leaves out findings")
    # Nothing less is known of the image without the findings that are left.
    left = max(made.left, explanation.games[0].total)
    reason = ", and ".join(filter(None, reasons))
    return replace(made, inferred=inferred, left=left, reason=reason)


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
    adaptive: bool

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
        errors = error if game.errors.any() else 0 * total
        return Game(region, (region,), ends, total, errors, game.inferred)


@dataclass(eq=False, slots=True)
class _Node:
    """A region whose parts are those of the recorded tree; it remembers them."""

    region: Region
    tree: _Tree
    _parts: tuple[_Node, ...] | None = None

    @property
    def index(self) -> Index:
        return self.region.index

    @property
    def area(self) -> int:
        return self.region.area

    @property
    def adaptive(self) -> bool:
        return self.tree.adaptive

    def split(self) -> tuple[_Node, ...]:
        if self._parts is None:
            self._parts = self._split()
        return self._parts

    def _split(self) -> tuple[_Node, ...]:
        game = self.tree.games.get(self.region)
        if game is None or self.tree.is_small(self.region) or game.children == (self.region,):
            return ()
        return tuple([_Node(part, self.tree) for part in game.children])


def _replay(
    search: DepthFirst | BreadthFirst,
    tree: _Tree,
    root: Region,
    ended: frozenset[Region] | None,
    worth: Mapping[Region, float] | None,
) -> tuple[list[Region], list[Game]]:
    """Run the search on recorded games; `ended` are the leaves of an automatic run.

    `worth` takes the place of coefficients, where it is given.
    """
    played: list[Game] = []
    run_ended: RunEnded | None = None if ended is None else lambda node: _region(node) in ended
    steps = search.steps(_Node(root, tree), run_ended=run_ended)
    asked = next(steps)
    while True:
        games = [tree.game(_region(node)) for node in asked]
        played += games
        shown = [
            Game(
                node,
                node.split() or (node,),
                game.values,
                _weights(game, worth),
                game.errors,
                game.inferred,
            )
            for game, node in zip(games, asked, strict=True)
        ]
        try:
            asked = steps.send(shown)
        except StopIteration as done:
            result: SearchResult = done.value
            return [_region(node) for node in result.leaves], played


def _weights(game: Game, worth: Mapping[Region, float] | None) -> Heat:
    """Return the coefficients of a game's parts, or their worth in place of them."""
    if worth is None:
        return game.coefficients
    return np.array([worth.get(part, 0.0) for part in game.children])


def _region(node: Region) -> Region:
    return cast("_Node", node).region


def _search(
    settings: Settings, *, tolerance: float | None, percentile: float | None
) -> DepthFirst | BreadthFirst | GroupTesting:
    made = settings.search
    if made is None:
        known = ", ".join(KNOWN_SEARCHES)
        message = (
            f"search {settings.search_name!r} cannot be read again; explain with one of {known}"
        )
        raise ArgumentError(message)
    own, before = (
        ("percentile", made.percentile)
        if isinstance(made, BreadthFirst)
        else ("tolerance", made.tolerance)
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
    if made.max_evaluations is None and made.max_seconds is None:
        return made
    return replace(made, max_evaluations=None, max_seconds=None)
