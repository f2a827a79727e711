"""Batch independence: a score must not depend on the other inputs of its batch.

A batch norm without running statistics takes those of the batch, so the same input scores
differently in another batch. No coefficient is exact then. A few inputs are scored a second time,
alone: two of the first batch, which show different pixels, and one of the second. If a score
differs, every input runs alone, and a warning says so.

The check misses a dependence that none of these three inputs shows: one that begins in a later or a
larger batch, concerns few inputs, or changes scores by no more than rounding may: a thousandth of
their range and, for models whose precision is not known, 0.4 % of the score.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Heat
    from hshap.evaluators.canvas import Row
    from hshap.evaluators.protocol import Batches
    from hshap.partitions.protocol import Region

    Run = Callable[[Sequence[Row]], Heat]

ROUNDING = 1e-5
"""Allowed difference, relative to the score; more where the model is less precise."""

PRECISIONS = 4
"""The allowed difference in units of the model's relative precision."""

CHECKED_BATCHES = 2

LEAST_CONTENT = 0.05
"""Of the row that differs most from its stand-in: rows that differ less may show nothing."""

SPREAD = 1e-3
"""Allowed difference, relative to the differences between the scores of a batch."""


class BatchIndependence:
    """Runs batches, and tells whether scores depend on the other inputs of a batch.

    `precision` is the relative precision of the model's numbers. `reason` says why scores are known
    to depend on the batch, and is empty if that is to be found out, unless `check` is False.
    """

    def __init__(
        self, precision: float, reason: str = "", *, warn: bool = True, check: bool = True
    ) -> None:
        self._rounding = max(ROUNDING, PRECISIONS * precision)
        self._to_check, self._passed = (CHECKED_BATCHES if check else 0), 0
        self.outcome: Batches = "one at a time" if check else "not checked"
        if reason:
            self.outcome = "dependent"
        if reason and warn:
            _warn_alone(reason)

    @property
    def run_alone(self) -> bool:
        """Whether every input has to run alone."""
        return self.outcome == "dependent"

    def note_independent(self) -> None:
        """Note that another check found scores independent; batches are checked all the same."""
        if self.outcome == "one at a time":
            self.outcome = "independent"

    def scores(self, rows: Sequence[Row], run: Run) -> Heat:
        """Score rows with `run`: together, or each alone if that makes a difference."""
        if not self.run_alone:
            scores = run(rows)
            if len(rows) > 1 and self._to_check > 0:
                self._check(rows, scores, run)
                self._to_check -= 1
            if not self.run_alone:
                self._passed += len(rows) if len(rows) > 1 else 0
                return scores
        return np.concatenate([run([row]) for row in rows])

    def _check(self, rows: Sequence[Row], together: Heat, run: Run) -> None:
        """Score some rows again, alone, and set the outcome."""
        for number in _choose_rows(rows, together, count=1 if self._passed else 2):
            alone = run([rows[number]])[0]
            if self._agree(alone, together[number], together):
                continue
            if self._agree(run([rows[number]])[0], alone, together):
                self.outcome = "dependent"
                _warn_alone(_describe_difference(together[number], alone), self._passed)
            else:
                self.outcome, self._to_check = "not repeatable", 0
                message = (
                    "the model gave two scores for one input, so all values of this run are "
                    "uncertain; switch off dropout and other random parts of the model"
                )
                warnings.warn(message, RuntimeWarning, stacklevel=2)
            return
        self.outcome = "independent"

    def _agree(self, one: Heat, other: Heat, batch: Heat) -> bool:
        """Tell whether two scores of one input are equal, up to rounding."""
        if one.shape != other.shape:
            return False
        finite = np.where(np.isfinite(batch), batch, 0.0)
        largest = float(np.abs(other).max(where=np.isfinite(other), initial=0.0))
        allowed = self._rounding * largest + SPREAD * float(np.ptp(finite, axis=0).max())
        return bool(np.allclose(one, other, rtol=0.0, atol=allowed, equal_nan=True))


def _describe_difference(together: Heat, alone: Heat) -> str:
    """Tell how the scores of one input differ."""
    if alone.shape != together.shape:
        return f"one input has {together.size} scores in a batch, {alone.size} alone"
    apart = np.abs(alone - together)
    column = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
    return f"one input scores {together[column]:.6g} in a batch, {alone[column]:.6g} alone"


def _choose_rows(rows: Sequence[Row], scores: Heat, count: int) -> list[int]:
    """Return the numbers of one or two rows to score again.

    The first shows little, but more than a stand-in: so it hardly holds an extremum of the batch,
    such as the brightest pixel or the highest score, and depends on it if the model does. The
    second shows other pixels, and its score is the farthest from that of the first. It holds the
    extremum, or depends on it, if the first does not.
    """
    contents = _contents(rows)
    visible = [n for n in range(len(rows)) if contents[n] > LEAST_CONTENT * contents.max()]
    first = min(visible or range(len(rows)), key=contents.__getitem__)
    if count == 1:
        return [first]
    with np.errstate(invalid="ignore"):  # infinite scores
        apart = np.abs(scores - scores[first])
    distance = np.where(np.isfinite(apart), apart, 0.0).max(axis=1)
    others = [n for n in range(len(rows)) if n != first]
    unlike = [n for n in visible if _are_disjoint(rows[n], rows[first])]
    differ = [n for n in unlike if distance[n] > SPREAD * distance.max()]
    return [first, max(differ or others, key=distance.__getitem__)]


def _contents(rows: Sequence[Row]) -> Heat:
    """Return how far each row is from its stand-in: the sum of differences over its pixels."""
    return np.array([sum(_content(row, region) for region in row.kept) for row in rows], float)


def _content(row: Row, region: Region) -> float:
    canvas = row.canvas
    if not canvas.is_still:  # other stand-ins would have to be drawn again
        return float(region.area)
    pixels = (slice(None), *region.index)
    return float(abs(canvas.on_host[pixels] - canvas.stand_ins.on_host(row.draw)[pixels]).sum())


def _are_disjoint(one: Row, other: Row) -> bool:
    """Tell whether rows share no region; parts of two shifted partitions may still overlap."""
    if one.canvas is not other.canvas:
        return True
    whole = (one.canvas.root,)
    return whole not in (one.kept, other.kept) and not set(one.kept) & set(other.kept)


def _warn_alone(reason: str, passed: int = 0) -> None:
    since = f" from now on (the {passed} inputs before ran in batches)" if passed else ""
    message = (
        f"the model's scores depend on the other inputs of a batch ({reason}), so every input runs "
        f"alone{since}, which is slower; use layers with running statistics to allow batches"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=2)
