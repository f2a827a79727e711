"""The contract of an evaluator: score rows, that is coalitions shown on canvases, with a model.

An evaluator is a recipe; `open_session()` starts the session that does the work of one run and
holds everything that the run can reuse. A faster way to call models implements these two protocols
and nothing else. A session may also tell how it made its scores; see `provenance`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Array, Heat, Shape, Tensor
    from hshap.evaluators.canvas import Row


@runtime_checkable
class Session(Protocol):
    """Scores rows during one run.

    >>> import hshap
    >>> session = hshap.Batched(lambda batch: batch.mean(axis=(1, 2, 3))).open_session()
    >>> isinstance(session, Session), session.capacity((3, 8, 8), itemsize=4)
    (True, 32)
    """

    def put(self, array: Array) -> Tensor:
        """Bring an array to the memory in which inputs are painted."""
        ...

    def capacity(self, shape: Shape, itemsize: int) -> int:
        """Return the number of images of a shape in a full batch."""
        ...

    def score(self, rows: Sequence[Row]) -> Heat:
        """Return the model's outputs `(rows, classes)`. All rows have one image shape and type."""
        ...


@runtime_checkable
class Evaluator(Protocol):
    """A recipe for scoring rows.

    >>> import hshap
    >>> isinstance(hshap.Batched(lambda batch: batch.mean(axis=(1, 2, 3))), Evaluator)
    True
    """

    def open_session(self) -> Session:
        """Start a run."""
        ...
