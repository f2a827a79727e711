"""Tests of regions: scores with and without a region over fresh draws of the hidden pixels.

In each round a coalition of the other parts of the region's game is drawn as in Shapley's value:
its size evenly, then its members. The model scores it once with and once without the region, each
over a draw of its own. The draws that chose the leaves are not used: they favour the leaves.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.recipes import describe
from hshap.baselines.protocol import Still
from hshap.baselines.recipes import Conditional, References
from hshap.baselines.samplers import check_shape
from hshap.errors import ArgumentError, ModelError
from hshap.evaluators.canvas import Canvas, Row, StandIns
from hshap.explainer.readings import ImageReader
from hshap.explanation.guarantees.significance import (
    Tests,
    as_error,
    e_values,
    family,
    junctions_of,
)
from hshap.games.targets import as_targets, describe_target, measure
from hshap.partitions.regions import mask

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hshap._util.types import Array, Image, JsonObject, Mask
    from hshap.baselines.samplers import Sampler
    from hshap.evaluators.protocol import Evaluator, Session
    from hshap.explanation.explanation import Explanation
    from hshap.games.targets import Target
    from hshap.partitions.protocol import Coalition, Region

TIMES = 4
"""Evaluations of all tests, at most, as a multiple of those of the explanation."""

STEP = 4
"""Rounds of a region before it is looked at again."""


@dataclass(frozen=True)
class TestPlan:
    """How regions are tested; see `Explainer.test`."""

    alpha: float
    error: str
    rounds: int
    seed: int
    most: int | None

    def __post_init__(self) -> None:
        checks.number("alpha", self.alpha, minimum=1e-9, maximum=1.0)
        as_error(self.error)
        checks.integer("rounds", self.rounds, minimum=1)
        checks.integer("seed", self.seed, minimum=0)
        if self.most is not None:
            checks.integer("max_evaluations", self.most, minimum=2)


class Trial(NamedTuple):
    """A region to test: the others of its game, the level that clears it, and the one before it."""

    region: Region
    others: Coalition
    needed: float
    parent: int


class TestedImage(NamedTuple):
    """The image of a test, its root region and the explained output."""

    pixels: Image
    root: Region
    target: Target


class Round(NamedTuple):
    """One round: the coalition with the region, the one without, and the random numbers."""

    trial: int
    shown: Coalition
    without: Coalition
    rng: np.random.Generator


def test_regions(  # noqa: PLR0913, one for each part of a test
    evaluator: Evaluator,
    baseline: object,
    explanation: Explanation,
    image: object,
    *,
    target: Target | None,
    layout: str | None,
    plan: TestPlan,
) -> Explanation:
    """Return the explanation with tests of its regions, begun or continued."""
    sampler, described = _sampler(baseline)
    before = _earlier_rounds(explanation, described, plan)
    trials = _trials(explanation, plan)
    wanted = _target(explanation, target)
    session = evaluator.open_session()
    pixels = ImageReader(None, layout).read(image).pixels
    if pixels.shape[1:] != explanation.grid:
        message = (
            f"image has the grid {pixels.shape[1:]}, but the explanation is of "
            f"{explanation.grid}; pass the image that was explained"
        )
        raise ArgumentError(message)
    rounds = _Rounds(
        session, sampler, TestedImage(pixels, explanation.games[0].region, wanted), plan.seed
    )
    found = [list(before.get(trial.region, ())) for trial in trials]
    most = TIMES * explanation.evaluations if plan.most is None else plan.most
    _test_until_clear(rounds, trials, found, plan.rounds, most)
    made = {**before, **{t.region: tuple(row) for t, row in zip(trials, found, strict=True)}}
    spent = rounds.evaluations + (explanation.tests.evaluations if explanation.tests else 0)
    return replace(explanation, tests=Tests(made, described, plan.seed, evaluations=spent))


def _test_until_clear(
    rounds: _Rounds, trials: Sequence[Trial], found: list[list[float]], each: int, most: int
) -> None:
    """Test regions until they are clear, parents before children, as far as evaluations last."""
    while True:
        clear = [_is_clear(trial, row) for trial, row in zip(trials, found, strict=True)]
        asked: list[tuple[int, int]] = []
        left = (most - rounds.evaluations) // 2
        for number, (trial, row) in enumerate(zip(trials, found, strict=True)):
            waits = trial.parent >= 0 and not clear[trial.parent]
            more = 0 if waits or clear[number] else min(STEP, each - len(row), left)
            asked += [(number, len(row) + place) for place in range(more)]
            left -= more
        if not asked:
            return
        rounds.play(trials, asked, found)


def _is_clear(trial: Trial, differences: Sequence[float]) -> bool:
    return bool(differences) and float(e_values(differences).max()) >= trial.needed


class _Rounds:
    """Plays rounds on one image, in batches that fit the session."""

    def __init__(self, session: Session, sampler: Sampler, image: TestedImage, seed: int) -> None:
        self._session, self._sampler, self._seed = session, sampler, seed
        self._pixels, self._root, self._target = image
        self._keys: dict[Region, int] = {}
        self._whole: float | None = None
        self.evaluations = 0

    def play(
        self,
        trials: Sequence[Trial],
        asked: Sequence[tuple[int, int]],
        found: list[list[float]],
    ) -> None:
        """Append the differences of the rounds that are asked for, as (trial, round)."""
        pairs = [self._round(trials[number], number, place) for number, place in asked]
        inputs = [(kept, pair.rng) for pair in pairs for kept in (pair.shown, pair.without)]
        scores = self._scores(inputs)
        for pair, shown, without in zip(pairs, scores[::2], scores[1::2], strict=True):
            found[pair.trial].append(shown - without)

    def _round(self, trial: Trial, number: int, place: int) -> Round:
        rng = np.random.default_rng((self._seed, self._key(trial.region), place))
        size = int(rng.integers(0, len(trial.others) + 1))
        chosen = sorted(rng.permutation(len(trial.others))[:size].tolist())
        without = tuple(trial.others[i] for i in chosen)
        return Round(number, (*without, trial.region), without, rng)

    def _key(self, region: Region) -> int:
        """Return a number for a region: its pixels, so that continued tests draw new numbers."""
        if region not in self._keys:
            shown = np.packbits(mask((region,), self._pixels.shape[1:]))
            self._keys[region] = zlib.crc32(shown.tobytes())
        return self._keys[region]

    def _scores(self, inputs: Sequence[tuple[Coalition, np.random.Generator]]) -> list[float]:
        """Return the score of each input; the whole image is scored once."""
        grid = self._pixels.shape[1:]
        area = int(np.prod(grid))
        whole = [sum(region.area for region in kept) == area for kept, _ in inputs]
        drawn = [item for item, is_whole in zip(inputs, whole, strict=True) if not is_whole]
        scores = iter(self._score_draws(drawn))
        if any(whole) and self._whole is None:
            own = self._pixels[None]
            kept = next(kept for (kept, _), is_whole in zip(inputs, whole, strict=True) if is_whole)
            self._whole = self._score_inputs(own, [kept])[0]
        return [float(self._whole or 0.0) if one else next(scores) for one in whole]

    def _score_draws(
        self, inputs: Sequence[tuple[Coalition, np.random.Generator]]
    ) -> Iterator[float]:
        most = self._session.capacity(self._pixels.shape, self._pixels.dtype.itemsize)
        for start in range(0, len(inputs), most):
            few = inputs[start : start + most]
            stand_ins = np.stack([self._stand_in(kept, rng) for kept, rng in few])
            yield from self._score_inputs(stand_ins, [kept for kept, _ in few])

    def _stand_in(self, kept: Coalition, rng: np.random.Generator) -> Array:
        visible: Mask = mask(kept, self._pixels.shape[1:])
        drawn = to_numpy("sampler's answer", self._sampler(self._pixels, visible, 1, rng))
        if drawn.shape != (1, *self._pixels.shape):
            message = (
                f"sampler returned shape {drawn.shape}; "
                f"it must return {(1, *self._pixels.shape)} for one draw"
            )
            raise ArgumentError(message)
        return drawn[0].astype(self._pixels.dtype, copy=False)

    def _score_inputs(self, stand_ins: Array, coalitions: Sequence[Coalition]) -> list[float]:
        """Return the model's score of each coalition over the stand-in of the same number."""
        put, pixels = self._session.put, self._pixels
        behind = StandIns(Still(stand_ins), pixels.shape, put)
        canvas = Canvas(pixels, behind, self._root, put=put, position=0)
        rows = [Row(canvas, kept, draw) for draw, kept in enumerate(coalitions)]
        values = measure(self._target, self._session.score(rows))
        self.evaluations += len(rows)
        if not np.isfinite(values).all():
            found = values[~np.isfinite(values)][0]
            message = f"the model gave {found} in a test; explain a finite output, such as a logit"
            raise ModelError(message)
        return values.tolist()


def _sampler(baseline: object) -> tuple[Sampler, JsonObject]:
    """Return the sampler of a random baseline, and its description."""
    described = describe(baseline)
    if isinstance(baseline, Conditional):
        return baseline.sampler, cast("JsonObject", described)
    if isinstance(baseline, References):
        return _resampler(baseline.images), cast("JsonObject", described)
    message = (
        f"baseline is {checks.shown(baseline)}, which draws nothing anew; pass baseline="
        "References(images) or Conditional(sampler), whose draws a test can repeat"
    )
    raise ArgumentError(message)


def _resampler(images: Array) -> Sampler:
    """Return a sampler that draws one of the reference images, each as likely."""

    def sampler(image: Array, visible: Mask, draws: int, rng: np.random.Generator) -> Array:
        del visible
        check_shape(images.shape[1:], image.shape)
        return images[rng.integers(0, len(images), draws)]

    return sampler


def _earlier_rounds(
    explanation: Explanation, described: JsonObject, plan: TestPlan
) -> Mapping[Region, tuple[float, ...]]:
    """Return the rounds that were made already, if they can be continued."""
    tests = explanation.tests
    if tests is None:
        return {}
    fresh = "pass the explanation as explain returned it, to test it anew"
    if (tests.sampler, tests.seed) != (described, plan.seed):
        message = f"the explanation was tested with another sampler or seed ({tests.name}); {fresh}"
        raise ArgumentError(message)
    return tests.differences


def _trials(explanation: Explanation, plan: TestPlan) -> list[Trial]:
    """Return the tests of a plan, larger regions first."""
    others = {
        part: tuple(other for other in game.children if other != part)
        for game in explanation.games
        for part in game.children
    }
    junctions = junctions_of(explanation) if plan.error == "family" else []
    return [
        Trial(
            node.region, others.get(node.region, ()), 1.0 / (plan.alpha * node.share), node.parent
        )
        for node in family(explanation, junctions)
    ]


def _target(explanation: Explanation, target: Target | None) -> Target:
    """Return the explained output; it must be given if the explanation knows only its name."""
    given = explanation.target if target is None else target
    if isinstance(given, str):
        message = (
            f'the explanation is of "{given}"; pass target= with the callable that it explains'
        )
        raise ArgumentError(message)
    (one,) = as_targets(given)
    if describe_target(one) != explanation.target:
        message = (
            f"target is {checks.shown(describe_target(one))}, but the explanation is of "
            f"{checks.shown(explanation.target)}; pass the target that was explained"
        )
        raise ArgumentError(message)
    return one
