"""The contract of an evaluator: score rows, that is coalitions shown on canvases, with a model.

An evaluator is a recipe; `open_session()` starts the session that does the work of one run and
holds everything that the run can reuse. A faster way to call models implements these two protocols
and nothing else. A session may also tell how it made its scores; see `Provenance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Array, Heat, Shape, Tensor
    from hshap.evaluators.canvas import Row

Comparison: TypeAlias = Literal["not made", "passed", "failed"]
"""Scores from patches, compared with a full forward pass."""

Batches: TypeAlias = Literal[
    "not checked", "one at a time", "independent", "dependent", "not repeatable"
]
"""Whether a score depends on the other inputs of its batch.

With "dependent", every input ran alone. With "not repeatable", the model gave two scores for one
input.
"""


@dataclass(frozen=True)
class Provenance:
    """How a run made its scores so far.

    `full` inputs went through the model in full; the scores of `incremental` ones were computed
    from patches, which `comparison` compares with a full pass. `batches` tells whether scores
    depend on the other inputs of a batch. `reason` says why patches were not used, and is empty
    where they were, or where the evaluator has none. The default is that of a session which does
    not tell.

    >>> Provenance(full=3, incremental=40, comparison="passed", batches="independent").sentence
    '3 inputs in full, 40 incremental; comparison: passed; batches: independent'
    >>> Provenance().sentence
    'not told by the evaluator'
    """

    full: int = 0
    incremental: int = 0
    comparison: Comparison = "not made"
    batches: Batches = "not checked"
    reason: str = ""

    @property
    def sentence(self) -> str:
        """The facts in one line."""
        if self == Provenance():
            return "not told by the evaluator"
        reason = f" ({self.reason})" if self.reason else ""
        compared = f"; comparison: {self.comparison}" if self.comparison != "not made" else ""
        return (
            f"{self.full} inputs in full{reason}, {self.incremental} incremental{compared}; "
            f"batches: {self.batches}"
        )


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


@runtime_checkable
class TellsProvenance(Protocol):
    """A session that tells how it made its scores. Sessions need not."""

    @property
    def provenance(self) -> Provenance:
        """How the scores were made so far."""
        ...


def provenance_of(session: Session) -> Provenance:
    """Return how a session made its scores; the default if it does not tell.

    >>> import hshap
    >>> session = hshap.Batched(lambda batch: batch.mean(axis=(1, 2, 3))).open_session()
    >>> provenance_of(session).full
    0
    """
    return session.provenance if isinstance(session, TellsProvenance) else Provenance()
