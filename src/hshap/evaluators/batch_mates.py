"""Batch mates: a score must not depend on the other inputs of its batch.

A batch norm without running statistics takes those of the batch, so the same input scores
differently in another batch. No coefficient is exact then. One input of the first batch is scored a
second time, alone. If the two scores differ, every input runs alone, and a warning says so.
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

    Run = Callable[[Sequence[Row]], Heat]

ROUNDING = 1e-5
"""Allowed difference, relative to the score; more where the model is less precise."""

PRECISIONS = 4
"""The allowed difference in units of the model's relative precision."""

SPREAD = 1e-3
"""Allowed difference, relative to the differences between the scores of a batch."""


class BatchMates:
    """Runs batches, and tells whether scores depend on the other inputs of a batch.

    `precision` is the relative precision of the model's numbers. `reason` says why scores are known
    to depend on the batch, and is empty if that is to be found out, unless `check` is False.
    """

    def __init__(
        self, precision: float, reason: str = "", *, warn: bool = True, check: bool = True
    ) -> None:
        self._rounding = max(ROUNDING, PRECISIONS * precision)
        self.outcome: Batches = "one at a time" if check else "not checked"
        if reason:
            self.outcome = "dependent"
        if reason and warn:
            _warn_alone(reason)

    @property
    def run_alone(self) -> bool:
        """Whether every input has to run alone."""
        return self.outcome == "dependent"

    def scores(self, rows: Sequence[Row], run: Run) -> Heat:
        """Score rows with `run`: together, or each alone if that makes a difference."""
        if not self.run_alone:
            scores = run(rows)
            if len(rows) > 1 and self.outcome == "one at a time":
                self._check(rows, scores, run)
            if not self.run_alone:
                return scores
        return np.concatenate([run([row]) for row in rows])

    def _check(self, rows: Sequence[Row], together: Heat, run: Run) -> None:
        number = _least_shown(rows)
        row, expected = [rows[number]], together[number]
        alone = run(row)[0]
        if self._agree(alone, expected, together):
            self.outcome = "independent"
            return
        if not self._agree(run(row)[0], alone, together):
            self.outcome = "not repeatable"
            message = (
                "the model gave two scores for one input, so all values of this run are uncertain; "
                "switch off dropout and other random parts of the model"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return
        self.outcome = "dependent"
        _warn_alone(_told(expected, alone))

    def _agree(self, one: Heat, other: Heat, batch: Heat) -> bool:
        """Tell whether two scores of one input are equal, up to rounding."""
        if one.shape != other.shape:
            return False
        finite = np.where(np.isfinite(batch), batch, 0.0)
        largest = float(np.abs(other).max(where=np.isfinite(other), initial=0.0))
        allowed = self._rounding * largest + SPREAD * float(np.ptp(finite, axis=0).max())
        return bool(np.allclose(one, other, rtol=0.0, atol=allowed, equal_nan=True))


def _told(together: Heat, alone: Heat) -> str:
    """Tell how the scores of one input differ."""
    if alone.shape != together.shape:
        return f"one input has {together.size} scores in a batch, {alone.size} alone"
    apart = np.abs(alone - together)
    column = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
    return f"one input scores {together[column]:.6g} in a batch, {alone[column]:.6g} alone"


def _least_shown(rows: Sequence[Row]) -> int:
    """Return the number of the row that shows the fewest pixels, but some.

    It has the least in common with its batch mates.
    """
    shown = [sum(region.area for region in row.kept) for row in rows]
    return min(range(len(rows)), key=lambda number: shown[number] or float("inf"))


def _warn_alone(reason: str) -> None:
    message = (
        f"the model's scores depend on the other inputs of a batch ({reason}), so every input runs "
        "alone, which is slower; use layers with running statistics to allow batches"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=2)
