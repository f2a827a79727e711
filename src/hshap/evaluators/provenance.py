"""Provenance: how the scores of an image were made, for its audit.

A session that can tell has a method `provenance`; a session of another make need not have one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast, get_args, runtime_checkable

if TYPE_CHECKING:
    from hshap.evaluators.protocol import Session

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
