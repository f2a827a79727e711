"""Functions: callables with the facts about their model, for libraries that give no gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from hshap._util.types import Array, ScoreFunction
    from hshap.models.facts import Facts

Layout = Literal["HWC", "CHW"]


@dataclass(frozen=True, eq=False)
class Function:
    """A callable on batches `(n, channels, *grid)` with the facts about its model."""

    call: ScoreFunction
    facts: Facts

    def __call__(self, batch: Array) -> object:
        """Return the scores of a batch."""
        scores = self.call(batch)
        shape = np.shape(scores)  # pyright: ignore[reportArgumentType]
        self.facts.check_count(shape[1] if len(shape) > 1 else 1)
        return scores


def check_layout(layout: object) -> None:
    """Refuse an order of axes that is neither channels last nor channels first."""
    if layout not in ("HWC", "CHW"):
        message = f"layout must be 'HWC' or 'CHW', got {checks.shown(layout)}; pass one of the two"
        raise ArgumentError(message)
