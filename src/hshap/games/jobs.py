"""Jobs: one search each, for one target of one image, with the scores that they wait for.

Jobs on one image share its score table: the value of a coalition is computed once for all of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cache
from itertools import compress, groupby
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.checks import shown
from hshap.errors import ArgumentError
from hshap.games.game import Game
from hshap.games.search.protocol import SearchResult
from hshap.games.shapley import shapley

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Heat
    from hshap.evaluators.canvas import Canvas
    from hshap.games.search.protocol import Search
    from hshap.games.targets import Target
    from hshap.partitions.protocol import Coalition, Region

MOST_PLAYERS = 16
"""Parts of one region; a game of more would have too many coalitions."""


@dataclass(eq=False, slots=True)
class Score:
    """The values of a coalition `(draws, targets)`, and the jobs that wait for missing ones."""

    targets: tuple[Target, ...]
    values: Heat
    missing: int
    waiting: list[Job] = field(default_factory=list["Job"])


class ScoreTable:
    """The scores of one image: searches on it share the value of every coalition."""

    def __init__(self, canvas: Canvas, targets: Sequence[Target]) -> None:
        self.canvas, self.targets = canvas, tuple(targets)
        self.scores: dict[Coalition, Score] = {}

    @property
    def evaluations(self) -> int:
        """Model inputs that were asked for, each counted once."""
        return sum(map(self.canvas.count, self.scores))

    def new(self, kept: Coalition, inputs: int) -> Score:
        """Add the score of a coalition that takes so many model inputs."""
        score = Score(self.targets, np.empty((self.canvas.draws, len(self.targets))), inputs)
        self.scores[kept] = score
        return score


class Job:
    """One search for one target of one image, down from one root."""

    def __init__(
        self,
        table: ScoreTable,
        column: int,
        search: Search,
        root: Region,
        started: float | None = None,
    ) -> None:
        """Start the search; `started` is the `time.perf_counter()` from which `seconds` count."""
        self.table, self.column = table, column
        self.games: list[Game] = []
        self.result: SearchResult | None = None
        self.missing = 0  # coalitions asked for and not yet scored
        self.evaluations = 0
        self.seconds = 0.0
        self._started = time.perf_counter() if started is None else started
        self._steps = search(root, table.canvas.draws)
        self.asked = [Request(region) for region in next(self._steps, [])]
        if [request.region for request in self.asked] != [root]:
            message = "search must ask for the root's game first, and for that alone; yield [root]"
            raise ArgumentError(message)

    @property
    def canvas(self) -> Canvas:
        """The image of the job."""
        return self.table.canvas

    def advance(self) -> None:
        """Play the games, whose coalitions all have scores by now, and let the search continue."""
        games = self._play()
        self.games += games
        try:
            self.asked = [Request(region) for region in self._steps.send(games)]
        except StopIteration as done:
            if not isinstance(done.value, SearchResult):
                message = f"search returned {shown(done.value)}; return SearchResult(leaves)"
                raise ArgumentError(message) from None
            self.result = done.value
            self.asked = []
            self.seconds = time.perf_counter() - self._started

    def _play(self) -> list[Game]:
        """Return the games in the order of the requests; games of one size are played at once."""
        played: dict[int, Game] = {}
        draws = self.canvas.draws
        self.evaluations += 0 if self.games else draws + 1
        by_size = sorted(range(len(self.asked)), key=lambda i: len(self.asked[i].children))
        for players, group in groupby(by_size, key=lambda i: len(self.asked[i].children)):
            numbers = list(group)
            self.evaluations += len(numbers) * draws * (2**players - 2)
            columns = [
                [score.values[:, self.column] for score in self.asked[i].scores] for i in numbers
            ]
            # (games, draws, coalitions): each draw is a game of its own, the answer is their mean.
            values = np.array(columns).transpose(0, 2, 1)
            phi = shapley(values)
            errors = phi.std(1, ddof=1) / draws**0.5 if draws > 1 else np.zeros((len(phi), players))
            rows = zip(values.mean(1), phi.mean(1), errors, strict=True)
            for i, row in zip(numbers, rows, strict=True):
                played[i] = Game(self.asked[i].region, self.asked[i].children, *row)
        return [played[i] for i in range(len(self.asked))]


class Request:
    """A game to play: its coalitions in the order that `shapley` takes, and their scores."""

    __slots__ = ("children", "coalitions", "region", "scores")

    def __init__(self, region: Region) -> None:
        # A root too small to be split plays alone.
        parts = region.split()
        children = parts or (region,)
        if len(children) > MOST_PLAYERS:
            message = (
                f"partition splits a region into {len(children)} parts, and so into "
                f"2**{len(children)} coalitions; use one of at most {MOST_PLAYERS} parts, "
                "such as Bisection"
            )
            raise ArgumentError(message)
        if len(parts) == 1:
            message = (
                f"partition splits {shown(region)} into one part; "
                "give it two or more, or none if it is a leaf"
            )
            raise ArgumentError(message)
        self.region, self.children = region, children
        between = [tuple(compress(children, chosen)) for chosen in _subsets(len(children))]
        # The empty coalition is the bare baseline, and all parts together are the region itself,
        # whose score its parent's game needed already: a coalition is its own cache key.
        self.coalitions: tuple[Coalition, ...] = ((), *between, (region,))
        self.scores: list[Score] = []


@cache
def _subsets(players: int) -> tuple[tuple[bool, ...], ...]:
    """Return the players of each coalition but the empty and the full one."""
    return tuple(
        tuple(bool(c >> player & 1) for player in range(players)) for c in range(1, 2**players - 1)
    )
