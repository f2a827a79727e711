"""Concerns: what a reader must know before trusting an explanation, and what to do next.

This is the one place with these rules. The repr, the command line and the page show its sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from hshap.explanation.audit import FAR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hshap.explanation.explanation import Explanation

Kind: TypeAlias = Literal[
    "random",
    "baseline",
    "nothing",
    "doubt",
    "certificate",
    "whole",
    "unfinished",
    "evidence",
]

LITTLE = 0.25
"""An image that adds less than this share of the score to the baseline adds little."""


@dataclass(frozen=True)
class Concern:
    """A reason not to trust an explanation as it is, and the next step.

    - "random": the model gave two scores for one input.
    - "baseline": the baseline alone has most of the score, or more than the image.
    - "nothing": no region is relevant.
    - "doubt": the audit's doubt or its OR gap is 0.3 or more.
    - "certificate": the certificate of `GroupTesting` failed.
    - "whole": the leaves cover 30 % of the image or more.
    - "unfinished": a budget ended the search.
    - "evidence": the backward pass for the maps inside leaves failed.

    >>> print(Concern("nothing", "nothing was found", "lower the tolerance"))
    nothing was found; lower the tolerance
    """

    kind: Kind
    text: str
    fix: str

    def __str__(self) -> str:
        """Return the reason and the next step in one line."""
        return f"{self.text}; {self.fix}"


class HowSure(NamedTuple):
    """How far an explanation can be trusted, in one word, and the reason.

    - "holds": no concern.
    - "look twice": there is a concern, but the findings stand.
    - "do not trust": the model gives other scores each time, the baseline has the score already, or
      parts act together, so the findings may be in the wrong place.
    - "negative": the model does not decide for the target, so a run did not explain the image.

    >>> from hshap.demo import example
    >>> example().how_sure.word
    'holds'
    """

    word: Literal["holds", "look twice", "do not trust", "negative"]
    reason: str


def how_sure(concerns: Sequence[Concern], gap: float) -> HowSure:
    """Return the word for some concerns, the gravest first; `gap` is that of the audit."""
    for concern in concerns:
        if concern.kind in ("random", "baseline"):
            return HowSure("do not trust", concern.text)
        if concern.kind == "doubt" and gap >= FAR:
            return HowSure(
                "do not trust",
                "areas of the image act together, so a finding may be too small, too large or in "
                "the wrong place",
            )
    if concerns:
        return HowSure("look twice", concerns[0].text)
    return HowSure("holds", "every check of this run passed")


def concerns_of(explanation: Explanation) -> tuple[Concern, ...]:
    """Return the concerns about an explanation, the gravest first; none if all is well."""
    checks = (_random, _baseline, _nothing, _doubt, _certificate, _whole, _unfinished, _evidence)
    return tuple(concern for check in checks for concern in check(explanation))


def _random(explanation: Explanation) -> Iterator[Concern]:
    if explanation.provenance.batches == "not repeatable":
        yield Concern(
            "random",
            "the model gave two scores for one input, so every number of this run is uncertain",
            "switch off dropout and other random parts of the model, or explain the mean of "
            "several of its answers",
        )


def _baseline(explanation: Explanation) -> Iterator[Concern]:
    score, bare = explanation.score, explanation.baseline_score
    if all(not np.ptp(game.values) for game in explanation.games):
        yield Concern(
            "baseline",
            f"the model gave one score, {score:.3g}, for every input, hidden or not",
            "check that the model reads its input, that the image has the scale it expects, and "
            "that the target is the right output",
        )
        return
    scores = f"the image scores {score:.3g} and the baseline alone {bare:.3g}"
    fix = (
        "pass a baseline without the object, such as the mean of similar images or a template "
        "(baseline=, --baseline), or explain the class that the model predicts"
    )
    if score <= bare:
        yield Concern("baseline", f"{scores}, so nothing speaks for this target", fix)
    elif score - bare < LITTLE * max(abs(score), abs(bare)):
        yield Concern("baseline", f"{scores}, so little of the score is explained", fix)


def _nothing(explanation: Explanation) -> Iterator[Concern]:
    if not explanation.leaves:
        yield Concern(
            "nothing",
            "nothing was found: no region is relevant by itself",
            "lower the tolerance, allow larger regions (min_size) or pass another baseline",
        )


def _doubt(explanation: Explanation) -> Iterator[Concern]:
    audit = explanation.audit
    if audit.gap >= FAR:
        yield Concern(
            "doubt",
            f"areas act together (OR gap {audit.gap:.2f}), do not trust it alone",
            "compare with another baseline and another partition, or allow larger regions",
        )
    elif explanation.leaves and 1 - audit.carried >= FAR:
        yield Concern(
            "doubt",
            f"the findings carry only {audit.carried:.0%} of the score that the image adds",
            "lower the tolerance, or compare with another partition",
        )
    elif 1 - audit.alone >= FAR:
        yield Concern(
            "doubt",
            f"the findings, each by itself, add up to only {audit.alone:.0%} of the score",
            "read the findings together, or allow larger regions",
        )
    elif audit.unlike >= FAR:
        yield Concern(
            "doubt",
            "some findings have the score by themselves, and others have far less",
            "look at the strongest findings alone, or compare with another baseline",
        )
    elif explanation.leaves and audit.cancelled**2 >= FAR:
        yield Concern(
            "doubt",
            f"the whole image lacks {audit.cancelled:.0%} of the score that parts of it have",
            "look at the parts with negative coefficients, or compare with another baseline",
        )
    elif audit.loose >= FAR:
        yield Concern(
            "doubt",
            f"hiding the findings changes about {audit.filled:.0%} of their pixels: they may be "
            "much larger than the object",
            "allow smaller regions (min_size, min_area), or take regions that follow the image",
        )
    elif explanation.leaves and audit.doubt >= FAR > audit.covered:
        yield Concern(
            "doubt",
            f"several lacks add up to a doubt of {audit.doubt:.2f}",
            "print(explanation.audit) has each; compare with another baseline or partition",
        )


def _certificate(explanation: Explanation) -> Iterator[Concern]:
    made = explanation.certificate
    if made is not None and not made.held:
        inferred = sum(game.inferred for game in explanation.games)
        rest = f"; {inferred} of {len(explanation.games)} games are inferred" if inferred else ""
        yield Concern(
            "certificate",
            f"the certificate of the search failed: {made.reason}{rest}",
            "compare with DepthFirst (--search games), which plays every game, or allow larger "
            "regions",
        )


def _whole(explanation: Explanation) -> Iterator[Concern]:
    covered = sum(leaf.area for leaf in explanation.leaves) / prod(explanation.grid)
    if covered >= FAR:
        yield Concern(
            "whole",
            f"the findings cover {covered:.0%} of the image, which hardly tells a place",
            "allow smaller regions (min_size, min_area), raise the budget or pass another baseline",
        )


def _unfinished(explanation: Explanation) -> Iterator[Concern]:
    left = len(explanation.unfinished)
    if left:
        regions = "1 region" if left == 1 else f"{left} regions"
        yield Concern(
            "unfinished",
            f"the search is incomplete: the budget left {regions} unsplit",
            "raise the budget (max_evaluations=, --budget) for finer findings",
        )


def _evidence(explanation: Explanation) -> Iterator[Concern]:
    reason = explanation.settings.evidence_failure
    if reason:
        inside = "follows the findings nearby" if explanation.settings.nearby else "is even"
        yield Concern(
            "evidence",
            f"{reason}, so the map inside each finding {inside}",
            "use the findings and not the map inside them, or pass evidence='even'",
        )
