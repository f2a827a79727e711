"""Conformance checks for parts of your own: an evaluator, a partition, a baseline or a search.

Each check runs a part on small inputs, compares its results with brute force, and returns a
`Report`. A part that breaks its contract raises `ConformanceError`, whose message lists every rule
that is broken. Every part of hshap passes the same checks in its own tests.

>>> import hshap
>>> print(hshap.testing.check_partition(hshap.Dyadic(min_size=2)))
Dyadic(min_size=2) passes 8 checks
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations, product
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from hshap._util.arrays import to_numpy
from hshap._util.checks import shown
from hshap.baselines.protocol import IgnoresImage, Still
from hshap.baselines.recipes import Constant
from hshap.errors import HshapError
from hshap.evaluators.canvas import Backdrop, Row
from hshap.evaluators.protocol import Evaluator, Session, score_rows
from hshap.games.game import MOST_PLAYERS, Game
from hshap.games.search import Question, SearchResult
from hshap.games.shapley import shapley
from hshap.partitions.grids import Bisection, Dyadic
from hshap.partitions.protocol import ComparesWithBaseline, Region

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from hshap._util.types import Array, Grid, Heat, Image, Mask, ScoreFunction
    from hshap.baselines.protocol import Baseline, Fill
    from hshap.games.search import Asking, Search
    from hshap.partitions.protocol import Coalition, Partition

    Worth: TypeAlias = Callable[[Sequence[Region]], float]

__all__ = [
    "ConformanceError",
    "Report",
    "check_baseline",
    "check_evaluator",
    "check_partition",
    "check_search",
]

SHAPES = ((1, 8, 8), (3, 9, 14))
"""Shapes of the images that are used if none are given."""

GRID = (8, 8)
MOST_NODES, MOST_ROUNDS, COALITIONS = 4000, 1000, 24
NO_ERROR = "it raises nothing of its own"


class ConformanceError(HshapError, AssertionError):
    """A part breaks its contract; the message has a line for each broken rule.

    >>> import hshap
    >>> def left_half(image):
    ...     height, width = image.shape[1:]
    ...     return hshap.protocols.Box((0, 0), (height, width // 2))
    >>> hshap.testing.check_partition(left_half)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    hshap.testing.ConformanceError: <function left_half at ...> breaks 1 of 8 rules:
    - the root holds every pixel: of 64 pixels it holds 32
    """


@dataclass(frozen=True)
class Report:
    """The rules that a part was seen to keep.

    >>> print(Report("Dyadic(min_size=2)", ("the root holds every pixel",)))
    Dyadic(min_size=2) passes 1 checks
    """

    subject: str
    passed: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.subject} passes {len(self.passed)} checks"


class _Rules:
    """The rules that a part was held to, and how it broke some of them the first time."""

    def __init__(self, subject: object) -> None:
        self._subject = shown(subject)
        self._broken: dict[str, str] = {NO_ERROR: ""}

    def expect(self, rule: str, kept: object, problem: str, *values: object) -> None:
        """Note a rule; `problem` says with `{}` for each of the values how it is broken."""
        if not kept and not self._broken.get(rule):
            self._broken[rule] = problem.format(*values)
        self._broken.setdefault(rule, "")

    @contextmanager
    def case(self) -> Generator[None]:
        """Note an exception of the part, which ends this case."""
        try:
            yield
        except Exception as error:  # noqa: BLE001, the part may raise anything
            self.expect(NO_ERROR, False, "{}: {}", type(error).__name__, error)  # noqa: FBT003

    def report(self) -> Report:
        """Return the rules that were kept, or raise all that were broken."""
        broken = {rule: problem for rule, problem in self._broken.items() if problem}
        if not broken:
            return Report(self._subject, tuple(self._broken))
        head = f"{self._subject} breaks {len(broken)} of {len(self._broken)} rules:"
        lines = [f"- {rule}: {problem}" for rule, problem in broken.items()]
        raise ConformanceError("\n".join([head, *lines]))


def check_partition(partition: Partition, images: Sequence[Image] | None = None) -> Report:
    """Check that a partition splits images as its contract says.

    `images` are images `(channels, *grid)` that the partition takes; by default two small random
    ones. Trees are walked down to 4000 regions.

    >>> import hshap
    >>> check_partition(hshap.Bisection(min_size=3)).passed[2]
    'the root holds every pixel'
    """
    rules = _Rules(partition)

    def root_of(image: Image) -> Region:
        if isinstance(partition, ComparesWithBaseline):
            return partition.compare(image, np.zeros_like(image))
        return partition(image)

    for image in _images(images):
        with rules.case():
            writable, root, grid = np.array(image), root_of(image), image.shape[1:]
            if not _check_kind(rules, root):
                continue
            held = int(_inside([root], grid).sum())
            rules.expect(
                "the root holds every pixel",
                held == image[0].size,
                "of {} pixels it holds {}",
                image[0].size,
                held,
            )
            for one, other in zip(_nodes(root), _nodes(root_of(writable)), strict=False):
                _check_region(rules, one, grid)
                _check_same_region(rules, one, other, grid)
            kept = np.array_equal(writable, image)
            rules.expect("the image is not written to", kept, "pixels changed")
    return rules.report()


def _check_kind(rules: _Rules, region: object) -> bool:
    is_one = isinstance(region, Region)
    rules.expect("regions are regions", is_one, "{!r} lacks index, area, adaptive or split", region)
    return is_one


def _check_region(rules: _Rules, region: Region, grid: Grid) -> None:
    _check_kind(rules, region)
    own, parts = _inside([region], grid), region.split()
    rules.expect(
        "area counts the pixels of index",
        region.area == own.sum(),
        "{!r} has area {}, and {} pixels",
        region,
        region.area,
        own.sum(),
    )
    whole = not parts or np.array_equal(_times(parts, grid), own.astype(int))
    rules.expect(
        "parts are disjoint and cover their region",
        whole and all(part.area for part in parts) and len(parts) != 1,
        "those of {!r} overlap, leave pixels out, reach outside or are one part or empty",
        region,
    )
    few = "a region has at most 16 parts, smaller than itself"
    rules.expect(few, len(parts) <= MOST_PLAYERS, "{!r} has {}", region, len(parts))
    rules.expect(few, region not in parts, "{!r} equals its part", region)


def _check_same_region(rules: _Rules, one: Region, other: Region, grid: Grid) -> None:
    """Check two regions at the same place of two trees of one image."""
    same = np.array_equal(_inside([one], grid), _inside([other], grid))
    again = len(one.split()) == len(other.split()) and one.split() == one.split()
    rule = "the same image gives the same tree, of regions that are equal and hash alike"
    rules.expect(rule, same and again, "{!r} became {!r}, or is split differently", one, other)
    equal = not same or (one == other and hash(one) == hash(other))
    rules.expect(rule, equal, "{!r} and {!r} hold the same pixels, but differ as keys", one, other)


def check_baseline(baseline: Baseline, images: Sequence[Image] | None = None) -> Report:
    """Check that a baseline gives stand-ins for hidden pixels as its contract says.

    `images` are images `(channels, *grid)` that the baseline takes, by default two small random
    ones.

    >>> import hshap
    >>> check_baseline(hshap.Blur(sigma=1.0)).passed[1]
    'stand-ins have the shape of the image, and the same draws for all coalitions'
    """
    rules = _Rules(baseline)
    for image in _images(images):
        with rules.case():
            _check_fill(rules, baseline, image)
    return rules.report()


def _check_fill(rules: _Rules, baseline: Baseline, image: Image) -> None:
    root = Bisection(min_size=2)(image)
    coalitions = [(), (root,), *((part,) for part in root.split())]
    coalitions += [part.split()[:1] for part in root.split() if part.split()]

    def all_of(fill: Fill, step: int = 1) -> list[Array]:
        return [np.array(fill(kept)) for kept in coalitions[::step]][::step]

    writable = np.array(image)
    fill = baseline(writable)
    every = all_of(fill)
    shapes = {one.shape for one in every}
    rules.expect(
        "stand-ins have the shape of the image, and the same draws for all coalitions",
        len(shapes) == 1 and every[0].shape[1:] == image.shape and len(every[0]),
        "got {} for an image of shape {}; they must be (draws, *image.shape)",
        sorted(shapes),
        image.shape,
    )
    floats = all(one.dtype.kind == "f" for one in every)
    rules.expect("stand-ins are finite floats", floats, "they hold {} numbers", every[0].dtype)
    finite = not floats or all(np.isfinite(one).all() for one in every)
    rules.expect("stand-ins are finite floats", finite, "they hold NaN or infinite values")
    rules.expect(
        "the same coalition gets the same stand-ins, in any order of calls",
        all(map(np.array_equal, every, all_of(baseline(image), step=-1))),
        "a second fill, asked in another order, gave other stand-ins",
    )
    kept = np.array_equal(writable, image)
    rules.expect("the image is not written to", kept, "pixels changed")
    all_of(baseline(1.0 - image))
    rules.expect(
        "images do not change each other's stand-ins",
        all(map(np.array_equal, every, all_of(fill))),
        "they differ after another image was filled",
    )
    alike = all(np.array_equal(one, every[0]) for one in every)
    rules.expect(
        "Still stand-ins ignore the shown regions",
        alike or not isinstance(fill, Still),
        "they differ from the bare baseline",
    )
    if isinstance(baseline, IgnoresImage):
        still = baseline.still(image.shape, image.dtype)(())
        same = np.array_equal(still, every[0])
        rules.expect("still() agrees with the call", same, "the two differ")


def check_evaluator(
    evaluator: Evaluator,
    model: ScoreFunction,
    image: Image,
    *,
    baseline: Baseline | None = None,
    tolerance: float = 1e-5,
) -> Report:
    """Check that an evaluator scores coalitions as the model scores painted inputs.

    `model` is the oracle: a function from a batch `(n, *image.shape)` to scores `(n,)` or
    `(n, classes)`. `image` is one that the evaluator takes; 8 pixels a side are enough. `baseline`
    hides pixels, by default behind 0. Scores may differ by `tolerance` times the largest one.

    >>> import hshap
    >>> def mean(batch):
    ...     return batch.mean(axis=(1, 2, 3))
    >>> print(check_evaluator(hshap.Batched(mean), mean, np.ones((1, 8, 8))).passed[1])
    it has the methods of an evaluator
    """
    rules, hidden = _Rules(evaluator), baseline or Constant(0.0)
    (pixels,) = _images([image])
    with rules.case():
        methods = "it has the methods of an evaluator"
        has_open = isinstance(cast("object", evaluator), Evaluator)
        rules.expect(methods, has_open, "open_session() is missing")
        session = evaluator.open_session()
        complete = isinstance(cast("object", session), Session)
        rules.expect(methods, complete, "its session lacks put(), capacity() or score()")
        capacity = session.capacity(pixels.shape, pixels.dtype.itemsize)
        rules.expect("a batch has room for at least one input", capacity >= 1, "for {}", capacity)
        rows = _rows(session, pixels, hidden)
        canvas, fill, grid = rows[0].canvas, hidden(pixels), pixels.shape[1:]
        held = [to_numpy("image", one).copy() for one in (canvas.image, canvas.stand_ins((), 0))]
        first = np.asarray(session.score(rows[:3]))
        scores = "scores are finite and have a row for each input"
        fits = first.ndim == 2 and len(first) == len(rows[:3])
        rules.expect(scores, fits, "3 inputs gave shape {}; return (rows, classes)", first.shape)
        rules.expect(scores, np.isfinite(first).all(), "there are NaN or infinite values")
        painted = np.stack(
            [
                np.where(_inside(row.kept, grid), pixels, np.asarray(fill(row.kept))[row.draw])
                for row in rows
            ]
        )
        raw = to_numpy("scores", model(painted)).astype(np.float64)
        expected, found = raw[:, None] if raw.ndim == 1 else raw, score_rows(session, rows)
        rule = "scores equal the model's on painted inputs"
        _check_close(rules, rule, found, expected, tolerance)
        rule = "scores do not depend on the other inputs of the batch"
        alone = np.concatenate([session.score([row]) for row in rows])
        for own in (alone, score_rows(session, rows[::-1])[::-1]):
            _check_close(rules, rule, own, found, tolerance)
        other = evaluator.open_session()
        again = score_rows(other, _rows(other, pixels, hidden))
        _check_close(rules, "a second session gives the same scores", again, found, tolerance)
        now = [to_numpy("image", one) for one in (canvas.image, canvas.stand_ins((), 0))]
        kept = all(map(np.array_equal, held, now))
        rules.expect("image and stand-ins are not written to", kept, "one of them changed")
    return rules.report()


def _check_close(rules: _Rules, rule: str, found: Heat, expected: Heat, tolerance: float) -> None:
    fits = found.shape == expected.shape
    rules.expect(rule, fits, "shape {} instead of {}", found.shape, expected.shape)
    if fits:
        worst, unit = float(np.abs(found - expected).max()), float(np.abs(expected).max()) or 1.0
        close = worst <= tolerance * unit
        rules.expect(rule, close, "they differ by {:.1g} of the largest", worst / unit)


def _rows(session: Session, image: Image, baseline: Baseline) -> list[Row]:
    """Return the empty and the full coalition, and random ones of regions of all levels."""
    root = Dyadic(min_size=max(1, max(image.shape[1:]) // 4))(image)
    rng = np.random.default_rng(0)
    coalitions: list[Coalition] = [(), (root,)]
    parents = [region for region in _nodes(root) if region.split()]
    while parents and len(coalitions) < COALITIONS:
        parts = parents[rng.integers(len(parents))].split()
        chosen = tuple(part for part in parts if rng.random() < 0.5)
        coalitions += [chosen] if 0 < len(chosen) < len(parts) else []
    canvas = Backdrop(baseline, session.put).canvas(image, root, position=0)
    return [Row(canvas, kept, at) for kept in coalitions for at in range(canvas.count(kept))]


def check_search(search: Search, *, exact: bool = True) -> Report:
    """Check that a search asks for games, and returns leaves, as its contract says.

    It is driven on a small quadtree, a small binary tree and a region without parts, with random
    games and with games that follow the OR rule of the paper.

    `exact` says that the search promises the paper's result under that rule: the smallest regions
    that hold a marked pixel, and no others. Pass False for a search with a budget, a threshold or
    another goal.

    >>> import hshap
    >>> check_search(hshap.DepthFirst()).passed[1]
    'it asks for the game of the root first, and for nothing else'
    """
    rules, image = _Rules(search), np.zeros((1, *GRID))
    worths = [(_any_of(points), points) for points in ([9, 10, 40], [], [63, 7, 8, 56])]
    worths += [(_random(seed), None) for seed in (3, 4)]
    for make, (worth, points) in product((Dyadic(1), Dyadic(2), Bisection(2), Dyadic(8)), worths):
        with rules.case():
            root = make(image)
            result = _drive(rules, search, root, worth)
            if result is None:
                continue
            again = _drive(rules, search, root, worth)
            same = again is not None and again.leaves == result.leaves
            rules.expect("the same games give the same leaves", same, "a second run gave others")
            if exact and points is not None and root.split():
                ends = {region for region in _nodes(root) if not region.split()}
                rules.expect(
                    "under the OR rule it finds exactly the marked regions",
                    set(result.leaves) == {region for region in ends if worth([region])},
                    "with pixels {} marked it found {} leaves",
                    points,
                    len(result.leaves),
                )
    return rules.report()


def _drive(rules: _Rules, search: Search, root: Region, worth: Worth) -> SearchResult | None:
    """Return the outcome of one complete run; None where it does not end with one."""
    steps, sent, known = cast("Asking", search(root, 1)), list["Game | Heat"](), {root}
    asked_before: set[Region | Question] = set()
    result: object = None
    number = 0
    for number in range(MOST_ROUNDS):
        try:
            asked = list(steps.send(sent) if number else next(steps))
        except StopIteration as done:
            result = done.value
            break
        except HshapError:
            if root.split():
                raise
            return None  # a refusal in one line is an answer
        if number == 0:
            rules.expect(
                "it asks for the game of the root first, and for nothing else",
                asked in ([root], [Question(()), Question((root,))]),
                "its first request is {!r}",
                asked,
            )
        _check_request(rules, asked, asked_before, known, root)
        kept = all(_is_intact(one, worth) for one in sent)
        rules.expect("games are not written to", kept, "values or coefficients changed")
        asked_before |= set(asked)
        sent = [_answer(one, worth) for one in asked]
        known |= {part for one in sent if isinstance(one, Game) for part in one.children}
    kept = all(_is_intact(one, worth) for one in sent)
    rules.expect("games are not written to", kept, "values or coefficients changed")
    ends = "it ends, and returns a SearchResult"
    if not isinstance(result, SearchResult):
        rules.expect(ends, False, "it returned {!r} after {} rounds", result, number)  # noqa: FBT003
        return None
    rules.expect(ends, True, "")  # noqa: FBT003
    _check_result(rules, result, known, worth)
    return result


def _check_request(
    rules: _Rules,
    asked: Sequence[Region | Question],
    before: set[Region | Question],
    known: set[Region],
    root: Region,
) -> None:
    new = len(set(asked)) == len(asked) and not before & set(asked) and asked
    rules.expect("it asks for something, and once for each", new, "it asked for {!r}", asked)
    for one in asked:
        if isinstance(one, Question):
            nodes = set(_nodes(root))
            fits = nodes.issuperset(one.kept) and (_times(one.kept, GRID) <= 1).all()
            rules.expect("questions are about disjoint regions of the tree", fits, "{!r}", one.kept)
            continue
        rule = "it asks only for parts of games that it received, and that can be split"
        rules.expect(rule, one in known, "{!r} is no part of a game that it received", one)
        rules.expect(rule, one == root or one.split(), "{!r} has no parts, and so no game", one)


def _check_result(rules: _Rules, result: SearchResult, known: set[Region], worth: Worth) -> None:
    for game in result.games:
        known |= set(game.children)
        right = game.inferred or np.allclose(_play(game.region, worth)[0], game.values)
        fits = game.region in known and game.children == (game.region.split() or (game.region,))
        rule = "games that it returns are a tree with the right scores"
        rules.expect(
            rule, right and fits, "the game of {!r} has other scores or parts", game.region
        )
    rule = "leaves are regions of received games, and do not overlap"
    for leaf in result.leaves:
        rules.expect(rule, leaf in known, "{!r} is no region of a game that it received", leaf)
    rules.expect(rule, (_times(result.leaves, GRID) <= 1).all(), "two leaves share pixels")
    inside = set(result.unfinished) <= set(result.leaves)
    rules.expect("unfinished regions are leaves", inside, "a region is unfinished, but no leaf")


def _answer(asked: Region | Question, worth: Worth) -> Game | Heat:
    if isinstance(asked, Question):
        return np.array([worth(asked.kept)])
    values, parts = _play(asked, worth)
    return Game(asked, parts, values, shapley(values), np.zeros(len(parts)))


def _play(region: Region, worth: Worth) -> tuple[Heat, tuple[Region, ...]]:
    """Return the values of a region's game, and its players; without parts it plays alone."""
    parts = region.split() or (region,)
    every = [[part for i, part in enumerate(parts) if c >> i & 1] for c in range(2 ** len(parts))]
    return np.array([worth(some) for some in every]), parts


def _is_intact(sent: Game | Heat, worth: Worth) -> bool:
    if not isinstance(sent, Game):
        return True  # each answer is an array of its own
    values, _ = _play(sent.region, worth)
    own = shapley(values)
    return np.array_equal(values, sent.values) and np.array_equal(own, sent.coefficients)


def _any_of(points: Sequence[int]) -> Worth:
    """Return the worth 1 of regions that hold any of the points: the OR rule."""
    return lambda regions: float(_inside(regions, GRID).reshape(-1)[list(points)].any())


def _random(seed: int) -> Worth:
    """Return a worth that is additive over pixels, with random weights of both signs."""
    weights: Heat = np.random.default_rng(seed).normal(size=GRID)
    return lambda regions: float(weights[_inside(regions, GRID)].sum())


def shapley_by_permutations(values: Sequence[float]) -> Heat:
    """Return each player's marginal contribution, averaged over every order of arrival."""
    players = len(values).bit_length() - 1
    totals, orders = [0.0] * players, list(permutations(range(players)))
    for order in orders:
        coalition = 0
        for player in order:
            totals[player] += values[coalition | 1 << player] - values[coalition]
            coalition |= 1 << player
    return np.array([total / len(orders) for total in totals])


def _inside(regions: Iterable[Region], grid: Grid) -> Mask:
    """Return a mask of the pixels of some regions, by assignment through their index."""
    out = np.zeros(grid, dtype=bool)
    for region in regions:
        out[region.index] = True
    return out


def _times(regions: Iterable[Region], grid: Grid) -> Array:
    """Count in how many of some regions each pixel lies."""
    return sum((_inside([region], grid).astype(int) for region in regions), np.zeros(grid, int))


def _nodes(root: Region, most: int = MOST_NODES) -> Iterator[Region]:
    """Yield the regions of a tree, parents before children, and no more than `most`."""
    waiting = [root]
    while waiting and most:
        region = waiting.pop()
        yield region
        waiting.extend(region.split())
        most -= 1


def _images(given: Sequence[Image] | None) -> list[Image]:
    """Return images that cannot be written to, by default two small random ones."""
    rng = np.random.default_rng(0)
    every = [np.array(one) for one in given or [rng.random(shape) for shape in SHAPES]]
    for one in every:
        one.flags.writeable = False
    return every
