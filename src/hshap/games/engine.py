"""The engine: drives many searches at once and fills every batch from all of them.

It knows no model, only a session that scores rows. A search waits only for its own rows, so a batch
is smaller than full only when no search asks for more.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import cache
from itertools import compress, groupby
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hshap._util.checks import shown
from hshap.errors import ArgumentError, ModelError
from hshap.evaluators.canvas import Canvas, Row
from hshap.games.game import Game
from hshap.games.search.protocol import SearchResult
from hshap.games.shapley import shapley
from hshap.games.targets import Target, describe_target, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hshap._util.types import Heat, Shape
    from hshap.evaluators.protocol import Session
    from hshap.games.search.protocol import Search
    from hshap.partitions.protocol import Coalition, Region

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

    def __init__(self, table: ScoreTable, column: int, search: Search, root: Region) -> None:
        self.table, self.column = table, column
        self.games: list[Game] = []
        self.result: SearchResult | None = None
        self.missing = 0  # coalitions asked for and not yet scored
        self.evaluations = 0
        self.seconds = 0.0
        self._started = time.perf_counter()
        self._steps = search(root, table.canvas.draws)
        self.asked = [_Request(region) for region in next(self._steps, [])]
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
            self.asked = [_Request(region) for region in self._steps.send(games)]
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


class _Request:
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


def run(
    groups: Iterable[Sequence[Job]],
    session: Session,
    progress: Callable[[Progress], None] | None = None,
) -> Iterator[Job]:
    """Yield jobs as they finish. The jobs of a group share an image, and so its scores."""
    queue, tell = _Queue(session), progress or _ignore
    upcoming, more = iter(groups), True
    in_flight: dict[ScoreTable, int] = {}
    evaluations = finished = 0
    while True:
        if queue.ready:
            job = queue.ready.popleft()
            job.advance()
            if job.result is None:
                queue.ask(job)
                continue
            finished += 1
            in_flight[job.table] -= 1
            if not in_flight[job.table]:
                del in_flight[job.table]
            tell(Progress(evaluations, finished, len(in_flight)))
            yield job
        elif more and len(in_flight) < IMAGES_IN_FLIGHT and queue.has_room():
            group = next(upcoming, ())
            more = bool(group)
            for job in group:
                in_flight[job.table] = len(group)
                queue.ask(job)
        elif in_flight:
            evaluations += queue.score_batch()
            tell(Progress(evaluations, finished, len(in_flight)))
        else:
            return


def _ignore(progress: Progress) -> None:
    del progress


Kind: TypeAlias = "tuple[Shape, object]"
"""The shape and type of images, which all rows of a batch share."""

Pending: TypeAlias = "tuple[Row, Score]"


class _Queue:
    """Rows that wait for a batch, by shape and type, and jobs whose scores are all there."""

    def __init__(self, session: Session) -> None:
        self.ready: deque[Job] = deque()
        self._session = session
        self._rows: defaultdict[Kind, deque[Pending]] = defaultdict(deque)
        self._batches = 0
        self._served: defaultdict[Kind, int] = defaultdict(int)

    def has_room(self) -> bool:
        """Tell whether the next batch would not be full."""
        rows = self._next()
        return not rows or len(rows) < self._capacity(rows)

    def ask(self, job: Job) -> None:
        """Queue the coalitions of a job that no other job has asked for."""
        for request in job.asked:
            request.scores = [self._score(job.table, kept) for kept in request.coalitions]
            for score in request.scores:
                if score.missing:
                    score.waiting.append(job)
                    job.missing += 1
        if not job.missing:
            self.ready.append(job)

    def _score(self, table: ScoreTable, kept: Coalition) -> Score:
        """Return a coalition's score, queueing its rows if it is new."""
        score = table.scores.get(kept)
        if score is None:
            canvas = table.canvas
            count = canvas.count(kept)
            score = table.new(kept, count)
            rows = self._rows[_kind(canvas)]
            rows.extend((Row(canvas, kept, draw), score) for draw in range(count))
        return score

    def score_batch(self) -> int:
        """Score one batch, and return its number of rows."""
        rows = self._next()
        self._batches += 1
        self._served[_kind(rows[0][0].canvas)] = self._batches
        batch = [rows.popleft() for _ in range(min(len(rows), self._capacity(rows)))]
        outputs = self._session.score([row for row, _ in batch])
        start = 0
        for _, group in groupby(batch, key=_targets_by_identity):
            items = list(group)
            stop = start + len(items)
            values = _measured(items, outputs[start:stop])
            for (row, score), value in zip(items, values, strict=True):
                self._record(row, score, value)
            start = stop
        return len(batch)

    def _record(self, row: Row, score: Score, value: Heat) -> None:
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

    def _next(self) -> deque[Pending]:
        """Return the rows of the kind that was not served for longest: none waits for ever."""
        waiting = [kind for kind, rows in self._rows.items() if rows]
        return self._rows[min(waiting, key=self._served.__getitem__)] if waiting else deque()

    def _capacity(self, rows: deque[Pending]) -> int:
        canvas = rows[0][0].canvas
        return self._session.capacity(canvas.shape, canvas.image.dtype.itemsize)


def _kind(canvas: Canvas) -> Kind:
    return canvas.shape, canvas.image.dtype


def _targets_by_identity(item: Pending) -> tuple[int, ...]:
    """Return a key that rows share if they have the very same targets.

    Not equal ones: callables of users may be equal in any sense.
    """
    targets = item[1].targets
    return tuple(target if isinstance(target, int) else -id(target) for target in targets)


def _measured(items: Sequence[Pending], outputs: Heat) -> Heat:
    """Return the values `(rows, targets)` of model outputs, all finite; rows share targets."""
    targets = items[0][1].targets
    values = np.stack([measure(target, outputs) for target in targets], axis=1)
    if not np.isfinite(values).all():
        number, column = np.argwhere(~np.isfinite(values))[0]
        row = items[number][0]
        kept = row.kept or "nothing, the bare baseline"
        message = (
            f"the model gave {values[number, column]} for target "
            f"{describe_target(targets[column])} on image {row.canvas.position} with "
            f"{kept} kept; explain a finite output, such as a logit"
        )
        raise ModelError(message)
    return values
