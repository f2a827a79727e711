"""Checks of an evaluator and its sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util.arrays import to_numpy
from hshap.baselines.recipes import Constant
from hshap.errors import HshapError
from hshap.evaluators.canvas import Backdrop, Canvas, Row
from hshap.evaluators.protocol import Evaluator, Session
from hshap.explainer import Explainer
from hshap.partitions.grids import Dyadic
from hshap.testing import brute_force
from hshap.testing.report import Report, expect, run_checks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Array, Heat, Image, ScoreFunction
    from hshap.baselines.protocol import Baseline
    from hshap.partitions.protocol import Region

COALITIONS = 24


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
    >>> print(check_evaluator(hshap.Batched(mean), mean, np.ones((1, 8, 8))).passed[0])
    it has the methods of an evaluator
    """
    runs = _Runs(evaluator, model, brute_force.locked(image), baseline or Constant(0.0), tolerance)
    return run_checks(
        evaluator,
        {
            "it has the methods of an evaluator": runs.it_has_the_methods,
            "a batch has room for at least one input": runs.capacity_is_positive,
            "scores are finite and have a row for each input": runs.scores_have_a_row_each,
            "scores equal the model's on painted inputs": runs.scores_equal_brute_force,
            "scores do not depend on the other inputs of the batch": runs.batches_are_independent,
            "a second session gives the same scores": runs.sessions_repeat,
            "image and stand-ins are not written to": runs.inputs_stay_as_they_are,
            "games have the Shapley values of brute force": runs.games_equal_brute_force,
            "an unusable output is refused with an error of hshap": runs.outputs_are_checked,
        },
    )


class _Runs:
    """Sessions of an evaluator over coalitions of one image."""

    def __init__(
        self,
        evaluator: Evaluator,
        model: ScoreFunction,
        image: Image,
        baseline: Baseline,
        tolerance: float,
    ) -> None:
        self._evaluator, self._model, self._image = evaluator, model, image
        self._baseline, self._tolerance = baseline, tolerance
        self._partition = Dyadic(min_size=max(1, max(image.shape[1:]) // 4))

    def _rows(self, session: Session) -> list[Row]:
        root = self._partition(self._image)
        stand_ins = Backdrop(self._baseline, session.put).behind(self._image)
        canvas = Canvas(self._image, stand_ins, root, put=session.put, position=0)
        return [
            Row(canvas, kept, draw)
            for kept in _coalitions(root)
            for draw in range(canvas.count(kept))
        ]

    def _scores(self, session: Session, rows: Sequence[Row]) -> Heat:
        size = max(1, session.capacity(self._image.shape, self._image.dtype.itemsize))
        batches = [rows[i : i + size] for i in range(0, len(rows), size)]
        return np.concatenate([_table(session.score(batch)) for batch in batches])

    def _painted(self, rows: Sequence[Row]) -> Array:
        fill = self._baseline(self._image)
        return np.stack(
            [
                brute_force.painted(self._image, np.asarray(fill(row.kept))[row.draw], row.kept)
                for row in rows
            ]
        )

    def _expect_close(self, found: Heat, expected: Heat, message: str) -> None:
        worst = float(np.abs(found - expected).max())
        unit = max(float(np.abs(expected).max()), 1e-30)
        expect(worst <= self._tolerance * unit, f"{message} by {worst / unit:.1g} of the largest")

    def it_has_the_methods(self) -> None:
        expect(_is(self._evaluator, Evaluator), "open_session() is missing")
        session = self._evaluator.open_session()
        expect(_is(session, Session), "its session lacks put(), capacity() or score()")

    def capacity_is_positive(self) -> None:
        image = self._image
        found = self._evaluator.open_session().capacity(image.shape, image.dtype.itemsize)
        expect(found >= 1, f"capacity({image.shape}, {image.dtype.itemsize}) is {found}")

    def scores_have_a_row_each(self) -> None:
        session = self._evaluator.open_session()
        rows = self._rows(session)[:3]
        found = np.asarray(session.score(rows))
        expect(found.ndim == 2, f"3 inputs gave shape {found.shape}; return (rows, classes)")
        expect(len(found) == len(rows), f"{len(rows)} inputs gave {len(found)} rows")
        expect(np.isfinite(found).all(), "there are NaN or infinite values")

    def scores_equal_brute_force(self) -> None:
        session = self._evaluator.open_session()
        rows = self._rows(session)
        expected = _table(self._model(self._painted(rows)))
        found = self._scores(session, rows)
        expect(
            found.shape == expected.shape,
            f"they have shape {found.shape}, the model's {expected.shape}",
        )
        self._expect_close(found, expected, "they differ")

    def batches_are_independent(self) -> None:
        session = self._evaluator.open_session()
        rows = self._rows(session)
        together = self._scores(session, rows)
        backward = self._scores(session, rows[::-1])[::-1]
        alone = np.concatenate([_table(session.score([row])) for row in rows])
        self._expect_close(backward, together, "in another order they differ")
        self._expect_close(alone, together, "one at a time they differ")

    def sessions_repeat(self) -> None:
        first, second = self._evaluator.open_session(), self._evaluator.open_session()
        one = self._scores(first, self._rows(first))
        other = self._scores(second, self._rows(second))
        self._expect_close(other, one, "they differ")

    def inputs_stay_as_they_are(self) -> None:
        session = self._evaluator.open_session()
        rows = self._rows(session)
        canvas = rows[0].canvas
        before = to_numpy("image", canvas.image).copy()
        stand_in = to_numpy("stand-in", canvas.stand_ins((), 0)).copy()
        self._scores(session, rows)
        expect(np.array_equal(to_numpy("image", canvas.image), before), "the image changed")
        after = to_numpy("stand-in", canvas.stand_ins((), 0))
        expect(np.array_equal(after, stand_in), "a stand-in changed")

    def games_equal_brute_force(self) -> None:
        found = Explainer(
            self._evaluator, baseline=self._baseline, partition=self._partition
        ).explain(self._image, target=0)
        for game in found.games[:8]:
            expected = brute_force.shapley_by_permutations(game.values.tolist())
            unit = max(1.0, float(np.abs(game.values).max()))
            expect(
                np.allclose(game.coefficients, expected, rtol=0, atol=1e-9 * unit)
                or found.draws > 1,
                f"the game of {game.region!r} has {game.coefficients}, not {expected}",
            )

    def outputs_are_checked(self) -> None:
        explainer = Explainer(self._evaluator, baseline=self._baseline, partition=self._partition)
        try:
            explainer.explain(self._image, target=10**6)
        except HshapError:
            return
        except Exception as error:  # noqa: BLE001, the evaluator may raise anything
            expect(kept=False, message=f"target 1000000 raised {type(error).__name__}: {error}")
        expect(kept=False, message="target 1000000 raised nothing")


def _is(value: object, protocol: type) -> bool:
    return isinstance(value, protocol)


def _table(scores: object) -> Heat:
    """Return scores as `(rows, classes)`; one number for each row is one class."""
    found = np.asarray(to_numpy("scores", scores), dtype=np.float64)
    return found[:, None] if found.ndim == 1 else found


def _coalitions(root: Region) -> list[tuple[Region, ...]]:
    """Return the empty and the full coalition, and random ones of regions of all levels."""
    rng = np.random.default_rng(0)
    found: list[tuple[Region, ...]] = [(), (root,)]
    parents = [region for region in brute_force.nodes(root) if region.split()]
    while parents and len(found) < COALITIONS:
        parts = parents[rng.integers(len(parents))].split()
        chosen = tuple(part for part in parts if rng.random() < 0.5)
        if chosen and len(chosen) < len(parts):
            found.append(chosen)
    return found
