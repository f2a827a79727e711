"""Jobs: one search each, for one target of one image, with the scores that they wait for.

Jobs on one image share its score table: the value of a coalition is computed once for all of them.
"""

from __future__ import annotations

import time
from itertools import groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from hshap._util.checks import shown
from hshap.errors import ArgumentError
from hshap.evaluators.canvas import Row
from hshap.games.game import Game, coalitions_of, players_of, standard_errors, subsets_of
from hshap.games.search.protocol import Asking, Question, SearchResult
from hshap.games.shapley import shapley

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hshap._util.types import Heat
    from hshap.evaluators.canvas import Canvas
    from hshap.games.search.protocol import Search
    from hshap.games.targets import Target
    from hshap.partitions.protocol import Coalition, Region


Run_co = TypeVar("Run_co", covariant=True)


class Block(NamedTuple):
    """Rows that a job waits for, and the number of each one's coalition in the table."""

    job: Job[object]
    rows: Sequence[Row]
    numbers: Sequence[int]

    def cut(self, count: int) -> tuple[Block, Block]:
        """Return the first rows, and the others."""
        job, rows, numbers = self
        return Block(job, rows[:count], numbers[:count]), Block(job, rows[count:], numbers[count:])


Answer: TypeAlias = "Game | Heat"
"""A game, or the scores `(draws,)` of the coalition of a question."""


FIRST_ROOM = 64
"""Coalitions that a new table has room for; it doubles when it is full."""


class ScoreTable:
    """The scores of one image: searches on it share the value of every coalition.

    A coalition has a number. `values[number]` are its scores `(draws, targets)`, once no input of
    it is missing.
    """

    def __init__(self, canvas: Canvas, targets: Sequence[Target]) -> None:
        self.canvas, self.targets = canvas, tuple(targets)
        # Equal for images that have the very same targets. Callables of users may be equal in any
        # sense, so that only their identity counts.
        self.same_targets = tuple(one if isinstance(one, int) else -id(one) for one in self.targets)
        self.values = np.empty((FIRST_ROOM, canvas.draws, len(self.targets)))
        self.evaluations = 0  # model inputs that were asked for, each counted once
        self.whole: Heat | None = None  # the model's outputs (classes,) for the image
        self.bare: Heat | None = None  # and for the first draw of the bare baseline
        self._regions: dict[Region, int] = {}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._missing: list[int] = []  # inputs of each coalition that are not scored yet
        self._others: dict[
            int, list[Job[object]]
        ] = {}  # jobs that wait for a coalition of another one

    def know(self, kept: Coalition, values: Heat) -> None:
        """Take the scores `(draws, targets)` of a coalition that no job has asked for yet."""
        number = len(self._missing)
        self._numbers[tuple(_numbers(kept, self._regions))] = number
        self._missing.append(0)
        self.values[number] = values

    def note(self, rows: Sequence[Row], outputs: Heat) -> None:
        """Keep the outputs for the image and for the bare baseline, where they are among rows."""
        if self.whole is not None and self.bare is not None:
            return
        for row, output in zip(rows, outputs, strict=True):
            if not row.kept and not row.draw:
                self.bare = output.copy()
            elif len(row.kept) == 1 and row.kept[0] is self.canvas.root:
                self.whole = output.copy()

    def ask(self, job: Job[object]) -> Block:
        """Let a job wait for all coalitions that it asks for, and return the rows of new ones."""
        new: list[Coalition] = []
        canvas, missing, known = self.canvas, self._missing, len(self._missing)
        is_single, numbered = canvas.draws == 1, self._numbers.setdefault
        for request in job.asked:
            numbers = request.numbers
            for kept, key in zip(request.coalitions, request.keys(self._regions), strict=True):
                number = numbered(key, len(missing))
                numbers.append(number)
                if number == len(missing):
                    missing.append(1 if is_single else canvas.count(kept))
                    new.append(kept)
                elif missing[number]:
                    self._others.setdefault(number, []).append(job)
                    job.missing += 1
        if len(missing) > len(self.values):
            room = np.empty((2 * len(missing), *self.values.shape[1:]))
            room[: len(self.values)] = self.values
            self.values = room
        block = (
            self._rows_of_one_draw(job, new, known)
            if is_single
            else self._rows_of_draws(job, new, known)
        )
        job.missing += len(block.rows)
        self.evaluations += len(block.rows)
        return block

    def _rows_of_one_draw(self, job: Job[object], new: Sequence[Coalition], known: int) -> Block:
        """Return a row for each new coalition, which are numbered from `known` on."""
        rows = list(map(Row, repeat(self.canvas), new, repeat(0)))
        return Block(job, rows, range(known, known + len(new)))

    def _rows_of_draws(self, job: Job[object], new: Sequence[Coalition], known: int) -> Block:
        """Return rows for the draws of new coalitions, which are numbered from `known` on."""
        counts = self._missing[known:]
        rows = [
            Row(self.canvas, kept, draw)
            for kept, count in zip(new, counts, strict=True)
            for draw in range(count)
        ]
        numbers = [number for number, count in enumerate(counts, known) for _ in range(count)]
        return Block(job, rows, numbers)

    def record(self, block: Block, values: Heat) -> list[Job[object]]:
        """Take the values `(rows, targets)` of a block; return the jobs that now miss none."""
        job, rows, numbers = block
        if self.canvas.draws == 1:
            # New coalitions are numbered one after the other.
            self.values[numbers[0] : numbers[-1] + 1, 0] = values
        else:
            # From its draw on: where one input is enough for all draws, its value is every draw's.
            for row, number, value in zip(rows, numbers, values, strict=True):
                self.values[number, row.draw :] = value
        ready: list[Job[object]] = []
        missing, others = self._missing, self._others
        if self.canvas.draws == 1 and not others:
            missing[numbers[0] : numbers[-1] + 1] = [0] * len(numbers)
            job.missing -= len(numbers)
            return ready if job.missing else [job]
        for number in numbers:
            missing[number] -= 1
            job.missing -= 1
            if not job.missing:
                ready.append(job)
            if number in others and not missing[number]:
                for other in others.pop(number):
                    other.missing -= 1
                    if not other.missing:
                        ready.append(other)
        return ready


class Job(Generic[Run_co]):
    """One search for one target of one image, down from one root.

    `run` is for the caller, who gets the job back when its search has ended: the image that it
    belongs to, and the parts that were chosen for it.
    """

    def __init__(  # noqa: PLR0913, the facts of a search
        self,
        run: Run_co,
        table: ScoreTable,
        column: int,
        search: Search,
        root: Region,
        *,
        started: float,
    ) -> None:
        """Start the search; `started` is the `time.perf_counter()` from which `seconds` count."""
        self.run, self.table, self.column = run, table, column
        self.games: list[Game] = []
        self.result: SearchResult | None = None
        self.missing = 0  # own inputs, and coalitions of other jobs, that are not scored yet
        self.evaluations = 0
        self.seconds = 0.0
        self._started = started
        # A search that only asks for games takes the same steps with fewer kinds of answers.
        self._steps = cast("Asking", search(root, table.canvas.draws))
        self._questions: dict[Coalition, None] = {}
        first = list(next(self._steps, []))
        if first not in ([root], [Question(()), Question((root,))]):
            message = (
                "search must ask for the root's game first, and for that alone; yield [root], or "
                "[Question(()), Question((root,))] for a search that asks about coalitions"
            )
            raise ArgumentError(message)
        self.asked = [Request(one) for one in first]

    @property
    def canvas(self) -> Canvas:
        """The image of the job."""
        return self.table.canvas

    @property
    def target(self) -> Target:
        """The target of the job."""
        return self.table.targets[self.column]

    @property
    def has_played(self) -> bool:
        """Whether all games that were asked for have been played."""
        return all(request.game or request.region is None for request in self.asked)

    def advance(self) -> None:
        """Answer all requests, whose games were played by now, and let the search continue."""
        answers = self._answers()
        try:
            self.asked = [Request(one) for one in self._steps.send(answers)]
        except StopIteration as done:
            if not isinstance(done.value, SearchResult):
                message = f"search returned {shown(done.value)}; return SearchResult(leaves)"
                raise ArgumentError(message) from None
            self.result = done.value
            self.asked = []
            self.evaluations += self._asked_besides()
            self.seconds = time.perf_counter() - self._started

    def _answers(self) -> list[Answer]:
        """Return the games and the scores of questions, in the order of the requests."""
        answers: list[Answer] = []
        draws = self.canvas.draws
        for request in self.asked:
            game = request.game
            if game is None:
                self._questions[request.coalitions[0]] = None
                answers.append(self.table.values[request.numbers[0], :, self.column])
                continue
            # The bare baseline and the image are in all games.
            self.evaluations += draws * (2 ** len(game.children) - 2)
            self.evaluations += 0 if self.games else draws + 1
            self.games.append(game)
            answers.append(game)
        return answers

    def _asked_besides(self) -> int:
        """Count the model inputs of questions about coalitions that no game needed."""
        if not self._questions:
            return 0
        known = {kept for game in self.games for kept in coalitions_of(game.region, game.children)}
        return sum(self.canvas.count(kept) for kept in self._questions if kept not in known)


class Request:
    """A game or a question: the coalitions that it needs, and their numbers in the table.

    The coalitions of a game are in the order that `shapley` takes. The numbers are known once the
    table was asked, and the game once it was played.
    """

    __slots__ = ("children", "coalitions", "game", "numbers", "region")

    def __init__(self, asked: Region | Question) -> None:
        self.region: Region | None = None
        self.children: tuple[Region, ...] = ()
        if isinstance(asked, Question):
            self.coalitions: tuple[Coalition, ...] = (asked.kept,)
        else:
            self.region, self.children = asked, players_of(asked)
            self.coalitions = coalitions_of(asked, self.children)
        self.numbers: list[int] = []
        self.game: Game | None = None

    def keys(self, regions: dict[Region, int]) -> Sequence[tuple[int, ...]]:
        """Return a key for each coalition: the numbers of its regions, given once for all.

        A tuple of numbers is hashed far faster than one of regions.
        """
        if self.region is None:
            return [tuple(_numbers(self.coalitions[0], regions))]
        whole, *parts = _numbers((self.region, *self.children), regions)
        return subsets_of(parts, whole)


def play(jobs: Iterable[Job[object]]) -> None:
    """Play the games that jobs ask for, whose scores are there; those of one size at once."""
    asked: dict[tuple[int, int], list[tuple[Job[object], Request]]] = {}
    for job in jobs:
        for request in job.asked:
            if request.region is not None and request.game is None:
                size = (job.canvas.draws, len(request.children))
                asked.setdefault(size, []).append((job, request))
    for some in asked.values():
        scores = [
            job.table.values[[request.numbers for _, request in own]][..., job.column]
            for job, own in groupby(some, key=itemgetter(0))
        ]
        # (games, draws, coalitions): each draw is a game of its own, the answer is their mean.
        values = np.concatenate(scores).transpose(0, 2, 1)
        phi = shapley(values)
        rows = zip(_mean(values), _mean(phi), standard_errors(phi), strict=True)
        for (_, request), row in zip(some, rows, strict=True):
            request.game = Game(cast("Region", request.region), request.children, *row)


def _numbers(some: Iterable[Region], regions: dict[Region, int]) -> list[int]:
    return [regions.setdefault(region, len(regions)) for region in some]


def _mean(values: Heat) -> Heat:
    """Return the mean `(games, entries)` over draws of values `(games, draws, entries)`."""
    return values.mean(1) if values.shape[1] > 1 else np.ascontiguousarray(values[:, 0])
