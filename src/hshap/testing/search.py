"""Checks of a search."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from hshap.errors import HshapError
from hshap.games.game import Game
from hshap.games.search.protocol import Asking, Question, SearchResult
from hshap.games.shapley import shapley
from hshap.partitions.grids import Bisection, Dyadic
from hshap.testing import brute_force
from hshap.testing.report import Report, expect, run_checks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hshap._util.types import Heat
    from hshap.games.search.protocol import Search
    from hshap.partitions.protocol import Region

    Worth: TypeAlias = Callable[[Sequence[Region]], float]

GRID = (8, 8)
MOST_ROUNDS = 1000


def check_search(search: Search, *, exact: bool = True) -> Report:
    """Check that a search asks for games, and returns leaves, as its contract says.

    It is driven on a small quadtree and a small binary tree, with random games and with games that
    follow the OR rule of the paper. A search that asks about coalitions gets their scores; the
    games that it returns are checked instead of those that it asked for.

    `exact` says that the search promises the paper's result under that rule: the smallest regions
    that hold a marked pixel, and no others. Pass False for a search with a budget, a threshold or
    another goal.

    >>> import hshap
    >>> check_search(hshap.DepthFirst()).passed[0]
    'it asks for the game of the root first, and for nothing else'
    """
    runs = _Drives(search)
    checks: dict[str, Callable[[], None]] = {
        "it asks for the game of the root first, and for nothing else": runs.the_root_is_first,
        "it asks only for parts of games that it received, and once": runs.games_are_new_and_known,
        "it asks only for regions that can be split": runs.asked_regions_can_be_split,
        "it ends, and returns a SearchResult": runs.it_ends,
        "leaves are regions of received games, and do not overlap": runs.leaves_are_disjoint,
        "unfinished regions are leaves": runs.unfinished_regions_are_leaves,
        "the same games give the same leaves": runs.results_repeat,
        "games are not written to": runs.games_stay_as_they_are,
        "a root that cannot be split is handled": runs.a_leaf_as_root_is_handled,
        "questions are new, about disjoint regions of the tree": runs.questions_are_new,
        "games that it returns are a tree with the right scores": runs.returned_games_are_a_tree,
    }
    if exact:
        checks["under the OR rule it finds exactly the marked regions"] = runs.the_or_rule_is_exact
    return run_checks(search, checks)


class _Drive:
    """One complete run of a search over games of a known worth."""

    def __init__(self, search: Search, root: Region, worth: Worth) -> None:
        self.requests: list[list[Region]] = []
        self.questions: list[Question] = []
        self.root, self.worth = root, worth
        self.games: dict[Region, Game] = {}
        self.known: set[Region] = {root}
        self.written = False
        steps = cast("Asking", search(root, 1))
        sent: list[Game | Heat] | None = None
        for _ in range(MOST_ROUNDS):
            try:
                asked = list(steps.send(sent) if sent is not None else next(steps))
            except StopIteration as done:
                self.result: object = done.value
                self._know(getattr(done.value, "games", ()))
                return
            finally:
                self.written |= any(not _intact(one, worth) for one in sent or ())
            regions = [one for one in asked if not isinstance(one, Question)]
            self.questions += [one for one in asked if isinstance(one, Question)]
            if regions or not asked:
                self.requests.append(regions)
            sent = [
                np.array([worth(one.kept)]) if isinstance(one, Question) else played(one, worth)
                for one in asked
            ]
            games = [one for one in sent if isinstance(one, Game)]
            self.games |= {game.region: game for game in games}
            self._know(games)
        expect(kept=False, message=f"it still asks for games after {MOST_ROUNDS} rounds")

    def _know(self, games: Sequence[Game]) -> None:
        self.known |= {part for game in games for part in game.children}

    @property
    def outcome(self) -> SearchResult:
        if isinstance(self.result, SearchResult):
            return self.result
        message = f"it returned {self.result!r}; return SearchResult(leaves)"
        raise TypeError(message)


class _Drives:
    """Runs of one search over several trees and games."""

    def __init__(self, search: Search) -> None:
        self._search = search

    def _all(self, times: int = 1) -> Iterator[_Drive]:
        """Yield runs over several trees and games, each so many times in a row."""
        image = np.zeros((1, *GRID))
        roots = (Dyadic(min_size=1)(image), Bisection(min_size=2)(image))
        worths = (_any_of([9, 10, 40]), _any_of([]), _random(seed=3), _random(seed=4))
        for root, worth in product(roots, worths):
            for _ in range(times):
                yield _Drive(self._search, root, worth)

    def the_root_is_first(self) -> None:
        image = np.zeros((1, *GRID))
        root = Dyadic(min_size=1)(image)
        first = list(next(self._search(root, 1)))
        ends = [Question(()), Question((root,))]
        expect(first in ([root], ends), f"its first request is {first!r}")

    def questions_are_new(self) -> None:
        for drive in self._all():
            asked = [one.kept for one in drive.questions]
            expect(len(asked) == len(set(asked)), "a question was asked twice")
            nodes = set(brute_force.nodes(drive.root))
            for kept in asked:
                times = np.zeros(GRID, dtype=int)
                for region in kept:
                    expect(region in nodes, f"{region!r} is no region of the tree")
                    times[region.index] += 1
                expect((times <= 1).all(), "two regions of a question share pixels")

    def returned_games_are_a_tree(self) -> None:
        for drive in self._all():
            known = {drive.root}
            for game in drive.outcome.games:
                expect(game.region in known, f"the game of {game.region!r} precedes its parent's")
                expect(game.children == (game.region.split() or (game.region,)), "it lacks parts")
                known |= set(game.children)
                again = played(game.region, drive.worth)
                right = game.inferred or np.allclose(again.values, game.values)
                expect(bool(right), f"the game of {game.region!r} has other scores")

    def games_are_new_and_known(self) -> None:
        for drive in self._all():
            asked = [region for request in drive.requests for region in request]
            expect(len(asked) == len(set(asked)), "a game was asked for twice")
            unknown = [region for region in asked if region not in drive.known]
            expect(not unknown, f"{unknown[:1]!r} is no part of a game that it received")
            expect(all(drive.requests), "a request was empty")

    def asked_regions_can_be_split(self) -> None:
        for drive in self._all():
            for request in drive.requests[1:]:
                for region in request:
                    expect(region.split(), f"{region!r} has no parts, and so no game")

    def it_ends(self) -> None:
        for drive in self._all():
            _ = drive.outcome

    def leaves_are_disjoint(self) -> None:
        for drive in self._all():
            leaves = drive.outcome.leaves
            unknown = [leaf for leaf in leaves if leaf not in drive.known]
            expect(not unknown, f"{unknown[:1]!r} is no region of a game that it received")
            times = np.zeros(GRID, dtype=int)
            for leaf in leaves:
                times[leaf.index] += 1
            expect((times <= 1).all(), "two leaves share pixels")

    def unfinished_regions_are_leaves(self) -> None:
        for drive in self._all():
            result = drive.outcome
            expect(
                set(result.unfinished) <= set(result.leaves), "a region is unfinished, but no leaf"
            )

    def results_repeat(self) -> None:
        drives = self._all(times=2)
        for one, other in zip(drives, drives, strict=True):
            expect(one.outcome.leaves == other.outcome.leaves, "a second run gave other leaves")

    def games_stay_as_they_are(self) -> None:
        expect(not any(drive.written for drive in self._all()), "values or coefficients changed")

    def a_leaf_as_root_is_handled(self) -> None:
        root = Dyadic(min_size=8)(np.zeros((1, *GRID)))
        for worth in (_any_of([9]), _any_of([])):
            try:
                leaves = _Drive(self._search, root, worth).outcome.leaves
            except HshapError:
                continue  # a refusal in one line is an answer
            expect(set(leaves) <= {root}, f"it returned {leaves!r} for a root without parts")

    def the_or_rule_is_exact(self) -> None:
        image = np.zeros((1, *GRID))
        for partition in (Dyadic(min_size=1), Dyadic(min_size=2), Bisection(min_size=2)):
            for points in ([9, 10, 40], [0], [], [63, 7, 8, 56]):
                root = partition(image)
                found = _Drive(self._search, root, _any_of(points)).outcome.leaves
                ends = [region for region in brute_force.nodes(root) if not region.split()]
                expected = {region for region in ends if _holds([region], points)}
                expect(
                    set(found) == expected,
                    f"with pixels {points} marked it found {len(found)} leaves, "
                    f"{len(expected - set(found))} of {len(expected)} are missing",
                )


def played(region: Region, worth: Worth) -> Game:
    """Return the game of a region; without parts it plays alone."""
    children = region.split() or (region,)
    values = np.array(
        [
            worth([part for i, part in enumerate(children) if coalition >> i & 1])
            for coalition in range(2 ** len(children))
        ]
    )
    return Game(region, children, values, shapley(values), np.zeros(len(children)))


def _intact(game: Game | Heat, worth: Worth) -> bool:
    if not isinstance(game, Game):
        return True  # each answer is an array of its own
    again = played(game.region, worth)
    return np.array_equal(again.values, game.values) and np.array_equal(
        again.coefficients, game.coefficients
    )


def _holds(regions: Sequence[Region], points: Sequence[int]) -> bool:
    flat = brute_force.inside(regions, GRID).reshape(-1)
    return bool(flat[list(points)].any())


def _any_of(points: Sequence[int]) -> Worth:
    """Return the worth 1 of regions that hold any of the points: the OR rule."""
    return lambda regions: float(_holds(regions, points))


def _random(seed: int) -> Worth:
    """Return a worth that is additive over pixels, with random weights of both signs."""
    weights: Heat = np.random.default_rng(seed).normal(size=GRID)
    return lambda regions: float(weights[brute_force.inside(regions, GRID)].sum())
