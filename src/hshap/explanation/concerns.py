"""Concerns, and the verdict that follows from them: how far an explanation can be trusted.

This is the one place with these rules. The repr, the table and the exit code of the command line,
run folders and the badge of the page read the verdict from here, and no other text judges a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from hshap.explanation.audit import FAR, additive_gap, all_gaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hshap.explanation.explanation import Explanation
    from hshap.games.search import Certificate

Kind: TypeAlias = Literal[
    "random",
    "baseline",
    "together",
    "inferred",
    "nothing",
    "against",
    "partial",
    "unfinished",
    "whole",
    "loose",
]
"""In the order of harm."""

SUPPORTED: Final = "supported"

GRAVE: frozenset[Kind] = frozenset(["random", "baseline", "together"])
"""Kinds that say "do not trust": findings may be in the wrong place, or mean nothing."""

LITTLE = 0.25
"""An image that adds less than this share of the score to the baseline adds little."""

HALF = 0.5
"""Findings that lack more than this share of the score do not explain it."""

SPARSE = 0.4
"""Findings of which hiding changes fewer pixels are larger than the object; see decision 15."""

WHOLE = 0.9
"""Findings that cover this share of the image name no place; large objects cover less."""


@dataclass(frozen=True)
class Concern:
    """A reason that changes how an explanation should be read, and the next step.

    In the order of harm; after one of the first three, no other is given:

    - "random": the model gave two scores for one input.
    - "baseline": the baseline alone has most of the score, or more than the image, or the model
      gave one score for every input of the run.
    - "together": areas act together. The OR gap is 0.3 or more, in games above the findings, and
      the scores of parts do not add up either; or parts of an image without a score cancel out.
    - "inferred": values of `GroupTesting` follow from a rule that its checks do not support.
    - "nothing": no region is relevant.
    - "against": the whole image lacks half of the score that parts of it have, or more.
    - "partial": the findings carry less than half of the score, together or each by itself.
    - "unfinished": a budget ended the search.
    - "whole": the leaves cover 90 % of the image or more.
    - "loose": hiding the findings changes less than 40 % of their pixels.

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
    """The verdict on an explanation in one word, with the gravest reason and the next step.

    - "supported": there is no concern. This is the outcome of checks, not a proof.
    - "look twice": there is a concern, but the findings stand.
    - "do not trust": the model gives other scores each time, the baseline has the score already, or
      areas act together, so the findings may be in the wrong place.
    - "negative": the model does not decide for the target, so a run did not explain the image.

    >>> from hshap.demo import example
    >>> print(example().how_sure)
    supported: no check of this run raised a concern
    """

    word: Literal["supported", "look twice", "do not trust", "negative"]
    reason: str
    fix: str = ""

    @property
    def is_concern(self) -> bool:
        """Whether the verdict rests on a concern; a negative image raises none."""
        return self.word in ("look twice", "do not trust")

    def __str__(self) -> str:
        """Return the verdict in one line."""
        return f"{self.word}: {'; '.join(filter(None, (self.reason, self.fix)))}"


def how_sure(concerns: Sequence[Concern], certificates: Iterable[Certificate | None]) -> HowSure:
    """Return the verdict on an explanation with these concerns, the gravest first.

    Values that were inferred are named also where every check supports them.
    """
    for worst in concerns[:1]:
        word = "do not trust" if worst.kind in GRAVE else "look twice"
        return HowSure(word, worst.text, worst.fix)
    reason = "no check of this run raised a concern"
    inferred = sum(made.inferred for made in certificates if made is not None)
    if inferred:
        games = "1 game is" if inferred == 1 else f"{inferred} games are"
        reason += f", but {games} inferred, not measured"
    return HowSure(SUPPORTED, reason)


def concerns_of(explanation: Explanation) -> tuple[Concern, ...]:
    """Return the concerns about an explanation, the gravest first; none if all is well.

    A grave one stands alone: the others are about findings that should not be read at all.
    """
    for check in (_random, _baseline, _together):
        for grave in check(explanation):
            return (grave,)
    checks = (_inferred, _nothing, _against, _partial, _unfinished, _whole, _loose)
    if explanation.settings.drops_nothing:
        # The map shows what the findings leave out, and contexts ask what areas do together.
        checks = (_nothing, _against, _whole, _loose)
    return tuple(concern for check in checks for concern in check(explanation))


def in_order(concerns: Iterable[Concern]) -> tuple[Concern, ...]:
    """Return concerns in the order of harm, the gravest first."""
    return tuple(sorted(concerns, key=lambda concern: get_args(Kind).index(concern.kind)))


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
            f"the model gave one score, {score:.3g}, for every input of this run, "
            f"{explanation.evaluations} in all",
            "check that the model reads its input, that the image has the scale it expects, and "
            "that the target is the right output",
        )
        return
    scores = f"the image scores {score:.3g} and the baseline alone {bare:.3g}"
    fix = (
        "pass a baseline without the object, such as the mean of similar images or a template "
        "(baseline=, --baseline), or explain the class that the model predicts"
    )
    highest = max(float(game.values.max()) for game in explanation.games)
    if score <= bare < highest and bare - score < LITTLE * (highest - bare):
        text = f"{scores}, but a part of it {highest:.3g}: areas cancel each other out"
        yield Concern("together", text, "look at the parts by themselves, or explain another class")
    elif score <= bare:
        yield Concern(
            "baseline", f"{scores}, so the image as a whole does not speak for this target", fix
        )
    elif score - bare < LITTLE * max(abs(score), abs(bare)):
        yield Concern("baseline", f"{scores}, so little of the score is explained", fix)


def _nothing(explanation: Explanation) -> Iterator[Concern]:
    if not explanation.leaves:
        yield Concern(
            "nothing",
            "nothing was found: no region is relevant by itself",
            "lower the tolerance, allow larger regions (min_size) or pass another baseline",
        )


def _together(explanation: Explanation) -> Iterator[Concern]:
    gap = 0.0 if explanation.settings.drops_nothing else explanation.audit.gap
    if gap >= FAR and _interaction(explanation) >= FAR:
        yield Concern(
            "together",
            f"areas act together (OR gap {gap:.2f}), so a finding may be too small, too large or "
            "in the wrong place",
            "compare with another baseline and another partition, or allow larger regions",
        )


def _interaction(explanation: Explanation) -> float:
    """Return how far the games above the findings are from both the OR rule and a sum of parts.

    An additive model has a large OR gap, and its values are as good as those of an OR. What parts
    of a finding do together moves no finding, unless it is the whole image. The mean over games has
    the weights of the audit.
    """
    games = explanation.games
    leaves = set(explanation.leaves).difference([games[0].region])
    _, _, weights = all_gaps(games)
    sums = np.array([additive_gap(game.values) for game in games]) / weights.max()
    above = weights * [game.region not in leaves for game in games]
    gaps = np.minimum(explanation.audit.gaps, sums)
    return float(np.average(gaps, weights=above)) if above.any() else 0.0


def _against(explanation: Explanation) -> Iterator[Concern]:
    if explanation.leaves and explanation.audit.cancelled >= HALF:
        yield Concern(
            "against",
            f"the whole image lacks {explanation.audit.cancelled:.0%} of the score that parts of "
            "it have",
            "look at the parts with negative coefficients, or compare with another baseline",
        )


def _partial(explanation: Explanation) -> Iterator[Concern]:
    audit = explanation.audit
    if explanation.leaves and audit.carried < HALF:
        yield Concern(
            "partial",
            f"the findings carry only {audit.carried:.0%} of the score that the image adds",
            "lower the tolerance, or compare with another partition",
        )
    elif audit.alone < HALF:
        yield Concern(
            "partial",
            f"the findings, each by itself, add up to only {audit.alone:.0%} of the score",
            "read the findings together, or allow larger regions",
        )


def _inferred(explanation: Explanation) -> Iterator[Concern]:
    made = explanation.certificate
    if made is not None and made.word == "not supported":
        yield Concern(
            "inferred",
            f"{made.inferred} of {len(explanation.games)} games are inferred by the OR rule, which "
            f"the checks do not support: {made.reason}",
            "compare with DepthFirst (--search games), which plays every game, or raise the budget",
        )


def _whole(explanation: Explanation) -> Iterator[Concern]:
    covered = sum(leaf.area for leaf in explanation.leaves) / prod(explanation.grid)
    if covered >= WHOLE:
        yield Concern(
            "whole",
            f"the findings cover {covered:.0%} of the image, so they hardly localise anything",
            "allow smaller regions (min_size, min_area), raise the budget or pass another baseline",
        )


def _unfinished(explanation: Explanation) -> Iterator[Concern]:
    left = 0 if explanation.complete else len(explanation.unfinished)
    if left:
        regions = "1 region" if left == 1 else f"{left} regions"
        yield Concern(
            "unfinished",
            f"the search is incomplete: the budget left {regions} unsplit",
            "raise the budget (max_evaluations=, --budget) for finer findings",
        )


def _loose(explanation: Explanation) -> Iterator[Concern]:
    filled = explanation.audit.filled
    if filled < SPARSE:
        yield Concern(
            "loose",
            f"hiding the findings changes about {filled:.0%} of their pixels: they may be "
            "much larger than the object",
            "allow smaller regions (min_size, min_area), or take regions that follow the image",
        )
