"""The contract of an evaluator: score rows, that is coalitions shown on canvases, with a model.

An evaluator is a recipe; `open_session()` starts the session that does the work of one run and
holds everything that the run can reuse. A faster way to call models implements these two protocols
and nothing else. A session that can say how it made its scores has a method `provenance`, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast, get_args, runtime_checkable

import numpy as np

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


Comparison: TypeAlias = Literal["not made", "passed", "failed"]
"""Scores from patches, compared with a full forward pass."""

Batches: TypeAlias = Literal[
    "not checked", "one at a time", "independent", "dependent", "not repeatable"
]
"""Whether a score depends on the other inputs of its batch.

With "dependent", every input ran alone from the moment when this was found. With "not repeatable",
the model gave two scores for one input.
"""

COMPARISONS: tuple[Comparison, ...] = get_args(Comparison)
BATCHES: tuple[Batches, ...] = get_args(Batches)
LONGEST_REASON = 120


@dataclass(frozen=True)
class Provenance:
    """How the scores of one image were made.

    - `full` counts the inputs that went through the model in full.
    - `incremental` counts the inputs whose scores were computed from patches.
    - `comparison` says how patches compare with a full pass: "not made", "passed" or "failed".
    - `batches` says whether scores depend on the other inputs of a batch: "independent",
      "dependent" (every input ran alone), "one at a time", "not repeatable" (the model gave two
      scores for one input) or "not checked".
    - `reason` says why patches were not used; it is empty where they were, or were not asked for.

    Explanations of one image share its inputs, and so its counts. The default is that of an
    evaluator that reports nothing.

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
    def is_told(self) -> bool:
        """Whether the evaluator reported anything."""
        return self != NOT_TOLD

    @property
    def sentence(self) -> str:
        """The facts in one line."""
        if not self.is_told:
            return "not told by the evaluator"
        counts = f"{self.full} input{'' if self.full == 1 else 's'} in full"
        reason = "".join(letter if letter.isprintable() else " " for letter in self.reason)
        if len(reason) > LONGEST_REASON:
            reason = f"{reason[: LONGEST_REASON - 3]}..."
        counts += f" ({reason})" if reason else ""
        counts += f", {self.incremental} incremental" if self.incremental else ""
        compared = f"; comparison: {self.comparison}" if self.comparison != "not made" else ""
        return f"{counts}{compared}; batches: {self.batches}"


NOT_TOLD = Provenance()


@runtime_checkable
class TellsProvenance(Protocol):
    """A session that tells how it made its scores."""

    def provenance(self, position: int) -> Provenance:
        """Return how the scores of an image were made so far, by its number in the run."""
        ...


def score_rows(session: Session, rows: Sequence[Row]) -> Heat:
    """Return the model's outputs for rows of one shape and type, in full batches.

    For questions that no search asks; the engine fills the batches of searches.

    >>> import hshap
    >>> from hshap.evaluators.canvas import Backdrop, Row
    >>> session = hshap.Batched(lambda batch: batch.mean(axis=(1, 2, 3))).open_session()
    >>> root = hshap.protocols.Box((0, 0), (2, 2))
    >>> canvas = Backdrop(hshap.Constant(0.5), session.put).canvas(np.ones((1, 2, 2)), root, 0)
    >>> score_rows(session, [Row(canvas, (root,), 0), Row(canvas, (), 0)]).tolist()
    [[1.0], [0.5]]
    """
    parts: list[Heat] = []
    start, canvas = 0, rows[0].canvas
    while start < len(rows):
        most = max(1, session.capacity(canvas.shape, canvas.image.dtype.itemsize))
        # A copy, since a session may fill one array with the outputs of every batch.
        parts.append(np.array(session.score(rows[start : start + most])))
        start += most
    return np.concatenate(parts)


def provenance_of(session: Session, position: int) -> Provenance:
    """Return how a session made the scores of an image; the default if it does not tell.

    >>> import hshap
    >>> session = hshap.Batched(lambda batch: batch.mean(axis=(1, 2, 3))).open_session()
    >>> provenance_of(session, position=0).full
    0
    """
    # By its name: to check a protocol takes as long as a small search.
    if callable(getattr(session, "provenance", None)):
        return cast("TellsProvenance", session).provenance(position)
    return NOT_TOLD
