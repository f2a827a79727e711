"""The engine: drives many searches at once and fills every batch from all of them.

It knows no model, only a session that scores rows. A search waits only for its own rows: a batch
is short of full only when nothing else is left to ask.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from dataclasses import dataclass
from functools import cache
from itertools import compress, groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap.canvas import Canvas, Row, Score, measured
from hshap.checks import shown
from hshap.errors import ArgumentError
from hshap.search import Found, Game
from hshap.shapley import shapley

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from hshap.evaluators import Session
    from hshap.regions import Coalition, Region
    from hshap.search import Search

IMAGES_IN_FLIGHT = 16
MOST_PLAYERS = 16


@dataclass(frozen=True)
class Progress:
    """How far a run is, for progress bars.

    >>> import hshap
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=2),
    ... )
    >>> _ = explainer.explain(np.ones((1, 4, 4)), target=0, progress=print)
    Progress(evaluations=16, explanations=0, waiting=1)
    Progress(evaluations=16, explanations=1, waiting=0)
    """

    evaluations: int
    explanations: int
    waiting: int


class Job:
    """One search for one target on one canvas, down from one root."""

    def __init__(self, canvas: Canvas, column: int, search: Search, root: Region) -> None:
        self.canvas, self.column = canvas, column
        self.games: list[Game] = []
        self.found: Found | None = None
        self.missing = 0  # coalitions asked for and not yet scored
        self.evaluations = 0
        self.seconds = 0.0
        self._started = time.perf_counter()
        self._steps = search(root, canvas.draws)
        self.asked = [_Ask(region) for region in next(self._steps, [])]
        if [ask.region for ask in self.asked] != [root]:
            message = "search must ask for the root's game first, and for that alone; yield [root]"
            raise ArgumentError(message)

    def advance(self) -> None:
        """Play the games, all of whose coalitions are scored, and let the search go on."""
        games = self._play()
        self.games += games
        try:
            self.asked = [_Ask(region) for region in self._steps.send(games)]
        except StopIteration as done:
            if not isinstance(done.value, Found):
                message = f"search returned {shown(done.value)}; return Found(leaves)"
                raise ArgumentError(message) from None
            self.found = done.value
            self.asked = []
            self.seconds = time.perf_counter() - self._started

    def _play(self) -> list[Game]:
        """Return the games in the order they were asked for; those of one size go at once."""
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


class _Ask:
    """A game to play, with its coalitions in the order that `shapley` takes, and their scores."""

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
        # Nothing shown is the bare baseline, and all parts are the region itself, which its
        # parent's game has seen already: a coalition is its own cache key.
        self.coalitions: tuple[Coalition, ...] = ((), *between, (region,))
        self.scores: list[Score] = []


@cache
def _subsets(players: int) -> tuple[tuple[bool, ...], ...]:
    """Return which players are in each coalition but the empty and the full one."""
    return tuple(
        tuple(bool(c >> player & 1) for player in range(players)) for c in range(1, 2**players - 1)
    )


def run(
    groups: Iterable[Sequence[Job]],
    session: Session,
    progress: Callable[[Progress], None] | None = None,
) -> Iterator[Job]:
    """Yield jobs as they finish. The jobs of a group share a canvas, and so its scores."""
    queue, tell = _Queue(session), progress or (lambda _: None)
    upcoming, more = iter(groups), True
    in_flight: dict[Canvas, int] = {}
    evaluations = finished = 0
    while True:
        if queue.ready:
            job = queue.ready.popleft()
            job.advance()
            if job.found is None:
                queue.ask(job)
                continue
            finished += 1
            in_flight[job.canvas] -= 1
            if not in_flight[job.canvas]:
                del in_flight[job.canvas]
            tell(Progress(evaluations, finished, len(in_flight)))
            yield job
        elif more and len(in_flight) < IMAGES_IN_FLIGHT and queue.has_room():
            group = next(upcoming, ())
            more = bool(group)
            for job in group:
                in_flight[job.canvas] = len(group)
                queue.ask(job)
        elif in_flight:
            evaluations += queue.score_batch()
            tell(Progress(evaluations, finished, len(in_flight)))
        else:
            return


class _Queue:
    """Rows that wait for a batch, by shape and type, and jobs that have all they asked for."""

    def __init__(self, session: Session) -> None:
        self.ready: deque[Job] = deque()
        self._session = session
        self._rows: defaultdict[Any, deque[tuple[Row, Score]]] = defaultdict(deque)
        self._batches = 0
        self._served: defaultdict[Any, int] = defaultdict(int)

    def has_room(self) -> bool:
        """Tell whether the next batch would not be full."""
        rows = self._next()
        return not rows or len(rows) < self._capacity(rows)

    def ask(self, job: Job) -> None:
        """Queue what a job wants and nobody has asked for yet."""
        for ask in job.asked:
            ask.scores = [self._score(job.canvas, kept) for kept in ask.coalitions]
            for score in ask.scores:
                if score.missing:
                    score.waiting.append(job)
                    job.missing += 1
        if not job.missing:
            self.ready.append(job)

    def _score(self, canvas: Canvas, kept: Coalition) -> Score:
        """Return a coalition's score, queueing its rows if it is new."""
        score = canvas.scores.get(kept)
        if score is None:
            count = canvas.count(kept)
            score = Score(np.empty((canvas.draws, len(canvas.targets))), count)
            canvas.scores[kept] = score
            rows = self._rows[_key(canvas)]
            rows.extend((Row(canvas, kept, draw), score) for draw in range(count))
        return score

    def score_batch(self) -> int:
        """Score one batch, and return how many rows it had."""
        rows = self._next()
        self._batches += 1
        self._served[_key(rows[0][0].canvas)] = self._batches
        batch = [rows.popleft() for _ in range(min(len(rows), self._capacity(rows)))]
        outputs = self._session.score([row for row, _ in batch])
        start = 0
        for _, group in groupby(batch, key=_measured_alike):
            items = list(group)
            stop = start + len(items)
            values = measured([row for row, _ in items], outputs[start:stop])
            for (row, score), value in zip(items, values, strict=True):
                self._record(row, score, value)
            start = stop
        return len(batch)

    def _record(self, row: Row, score: Score, value: NDArray[np.float64]) -> None:
        # From its draw on: where one input is enough for all draws, its value is every draw's.
        score.values[row.draw :] = value
        score.missing -= 1
        if score.missing:
            return
        for job in score.waiting:
            job.missing -= 1
            if not job.missing:
                self.ready.append(job)
        score.waiting.clear()

    def _next(self) -> deque[tuple[Row, Score]]:
        """Return the rows of the kind that was not served for longest: none waits for ever."""
        waiting = [key for key, rows in self._rows.items() if rows]
        return self._rows[min(waiting, key=self._served.__getitem__)] if waiting else deque()

    def _capacity(self, rows: deque[tuple[Row, Score]]) -> int:
        canvas = rows[0][0].canvas
        return self._session.capacity(canvas.shape, canvas.image.dtype.itemsize)


def _key(canvas: Canvas) -> tuple[tuple[int, ...], Any]:
    """Return what the images of a batch must have in common."""
    return canvas.shape, canvas.image.dtype


def _measured_alike(item: tuple[Row, Score]) -> tuple[int, ...]:
    """Return what rows have in common that are measured at once: the very same targets.

    Not equal ones: callables of users may be equal in any sense.
    """
    targets = item[0].canvas.targets
    return tuple(target if isinstance(target, int) else -id(target) for target in targets)
