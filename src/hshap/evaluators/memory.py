"""Memory that runs out: the batch is halved, and the run continues."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import ModelFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Heat, Shape
    from hshap.evaluators.canvas import Row


class BatchLimits:
    """The batch that memory allows for each image shape, where it ran out once."""

    def __init__(self) -> None:
        self._limits: dict[Shape, int] = {}

    @property
    def known(self) -> bool:
        """Whether memory ran out for any shape."""
        return bool(self._limits)

    def get(self, shape: Shape) -> int | None:
        """Return the largest batch of a shape, or None where memory was always enough."""
        return self._limits.get(shape)

    def scores(
        self,
        rows: Sequence[Row],
        run: Callable[[Sequence[Row]], Heat],
        release: Callable[[], None] = lambda: None,
    ) -> Heat:
        """Score rows with `run`, in halves where memory runs out; `release` frees memory before.

        The error of a batch of one input is not caught.
        """
        parts: list[Heat] = []
        done, shape = 0, rows[0].canvas.shape
        while done < len(rows):
            batch = rows[done : done + self._limits.get(shape, len(rows))]
            try:
                parts.append(run(batch))
            except Exception as error:
                cause = error.__cause__ if isinstance(error, ModelFailedError) else error
                if not out_of_memory(cause) or len(batch) == 1:
                    raise
            else:
                done += len(batch)
                continue
            # Outside the except clause: the traceback no longer holds the batch that was too big.
            self._limits[shape] = len(batch) // 2
            release()
            free_memory()
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def out_of_memory(error: BaseException | None) -> bool:
    """Tell whether an exception reports missing memory, whichever library raised it."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    # torch on the CPU and onnxruntime have no exception class for it.
    phrases = ("out of memory", "can't allocate memory", "failed to allocate", "bad allocation")
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(phrase in text for phrase in phrases)


def free_memory() -> None:
    """Return the memory that torch keeps in reserve on a GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
