"""Significance: which regions change the model's score beyond the chance of the draws.

In each round the score is taken twice, with and without the region, over two independent draws of
the hidden pixels. If the region changes nothing, either of the two is as likely to be the larger
one, and no bet on it gains on average: the expected wealth of a bettor, the e-value, is 1 whenever
the rounds end. The proofs are in docs/theory.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.explanation.archive import expect
from hshap.explanation.findings import boxes_around
from hshap.games.tree import coefficients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hshap._util.types import Heat, Json, JsonObject
    from hshap.explanation.explanation import Explanation
    from hshap.games.tree import Part
    from hshap.partitions.protocol import Region

ErrorRate: TypeAlias = Literal["family", "discovery"]
RATES = {
    "family": "the probability of any false one is at most the level",
    "discovery": "the expected share of false ones is at most the level",
}

STAKES = 48
"""Stakes that are tried at once, each with a share of the money."""

LARGEST = 690.0
"""Logarithm of the largest e-value; beyond it, floats end."""

NULL = (
    "Null hypothesis of a region: on this image, whichever other parts of its game are shown, "
    "showing the region too leaves the distribution of the model's score unchanged, with hidden "
    "pixels drawn by {sampler}. It is about the model and this sampler, not about the object, the "
    "patient or the disease."
)


@dataclass(frozen=True, eq=False)
class Tests:
    """The draws behind the significance of regions, as `Explainer.test` makes them.

    `differences` has the regions that a test was planned for, larger ones first: the score with
    the region minus the score without it, for each round. `sampler` describes the baseline that
    drew the hidden pixels. Rounds ended as soon as a region was clear, and may be continued.
    `evaluations` are the model inputs of all rounds.

    >>> import hshap
    >>> Tests({hshap.protocols.Box((0,), (4,)): (1.0, 0.5)}, {"type": "References"}).evaluations
    0
    """

    differences: Mapping[Region, tuple[float, ...]]
    sampler: JsonObject
    seed: int = 0
    evaluations: int = 0

    @property
    def name(self) -> str:
        """The sampler in a few words."""
        inner = self.sampler.get("sampler")
        kind = self.sampler.get("type", "a sampler")
        nested = cast("JsonObject", inner).get("type") if isinstance(inner, dict) else None
        return f"{kind}({nested})" if nested else str(kind)

    def p(self, region: Region) -> float:
        """Return the p-value of a region; 1 if it was not tested."""
        differences = self.differences.get(region, ())
        if not differences:
            return 1.0
        # Valid however the rounds ended: an e-value reaches 1 / p with probability p at most.
        return float(min(1.0, 1.0 / e_values(differences).max()))

    def e(self, region: Region) -> float:
        """Return the e-value of a region after its last round; 1 if it was not tested."""
        differences = self.differences.get(region, ())
        return float(e_values(differences)[-1]) if differences else 1.0

    def rounds(self, region: Region) -> int:
        """Return the number of rounds that a region was tested in."""
        return len(self.differences.get(region, ()))

    def document(self, number: Callable[[Region], int | None]) -> dict[str, Json]:
        """Return the tests as JSON; regions without a number are left out."""
        kept = [(number(region), found) for region, found in self.differences.items()]
        known = [(place, found) for place, found in kept if place is not None]
        return {
            "sampler": self.sampler,
            "seed": self.seed,
            "evaluations": self.evaluations,
            "regions": [place for place, _ in known],
            "differences": [list(found) for _, found in known],
        }


def read_tests(document: object, regions: Sequence[Region]) -> Tests | None:
    """Return the tests of a file; anything else than tests is damage."""
    if document is None:
        return None
    expect(isinstance(document, dict), "tests is no mapping")
    given = cast("dict[str, Json]", document)
    numbers, rounds = (cast("list[int]", given[key]) for key in ("regions", "differences"))
    values = [np.array(found, dtype=np.float64) for found in cast("list[list[float]]", rounds)]
    expect(all(type(number) is int for number in numbers), "tests refer to no regions")
    expect(all(0 <= number < len(regions) for number in numbers), "tests refer to no regions")
    expect(all(one.ndim == 1 and np.isfinite(one).all() for one in values), "tests hold no numbers")
    expect(len(values) == len(numbers), "tests lack rounds")
    expect(isinstance(given["sampler"], dict), "the sampler of the tests is no mapping")
    found = {
        regions[number]: tuple(one.tolist()) for number, one in zip(numbers, values, strict=True)
    }
    sampler = cast("JsonObject", given["sampler"])
    return Tests(found, sampler, cast("int", given["seed"]), cast("int", given["evaluations"]))


class SignificantFinding(NamedTuple):
    """A finding that survives tests: `adjusted` is the smallest level at which all of it does.

    >>> SignificantFinding(start=(2, 5), stop=(3, 6), score=1.0, adjusted=0.01).adjusted
    0.01
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    score: float
    adjusted: float


class TestedRegion(NamedTuple):
    """A region with its p-value, its e-value, and its value adjusted for all tested regions.

    `adjusted` is the smallest level at which the region survives. `parent` is the place of the next
    larger tested region in `Significance.regions`, -1 if there is none.

    >>> from hshap.protocols import Box
    >>> TestedRegion(Box((0,), (4,)), 0.01, 90.0, adjusted=0.02, rounds=9, leaf=True).parent
    -1
    """

    region: Region
    p: float
    e: float
    adjusted: float
    rounds: int
    leaf: bool
    parent: int = -1


@dataclass(frozen=True, eq=False, repr=False)
class Significance:
    """The tested regions of an explanation, larger ones first, under one error rate.

    `error` is "family" (no false finding, with probability `1 - level`) or "discovery" (the
    expected share of false findings is at most the level). `null` is the hypothesis in words.

    >>> import hshap
    >>> import numpy as np
    >>> image, references = np.zeros((1, 4, 4)), np.zeros((9, 1, 4, 4))
    >>> image[0, 1, 2] = 1.0
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.References(references),
    ...     partition=hshap.Bisection(min_size=1),
    ... )
    >>> tested = explainer.test(explainer.explain(image, target=0), image)
    >>> found = significance(tested)
    >>> found.regions[0].adjusted < 0.05, found.surviving(0.05)[0].region
    (True, Box(start=(1, 2), stop=(2, 3)))
    """

    regions: tuple[TestedRegion, ...]
    error: ErrorRate
    null: str
    evaluations: int
    explanation: Explanation = field(repr=False)

    def surviving(self, alpha: float) -> list[TestedRegion]:
        """Return the regions that survive at a level and hold no smaller one that does."""
        limit = checks.number("alpha", alpha, minimum=0.0, maximum=1.0)
        larger = {row.parent for row in self.regions if row.adjusted <= limit}
        return [
            row
            for number, row in enumerate(self.regions)
            if row.adjusted <= limit and number not in larger
        ]

    def boxes(self, alpha: float, *, merge: bool = True) -> list[SignificantFinding]:
        """Return the boxes around the leaves that survive, as `Explanation.boxes` has them.

        `merge` joins leaves that touch; of their adjusted values, the largest counts.
        """
        level = checks.number("alpha", alpha, minimum=0.0, maximum=1.0)
        adjusted = {row.region: row.adjusted for row in self.regions if row.adjusted <= level}
        made = self.explanation
        leaves = tuple(leaf for leaf in made.leaves if leaf in adjusted)
        scores = coefficients(made.games) if leaves else {}
        every = boxes_around(leaves, scores, made.grid, merge=merge, placement=made.placement)
        return [
            SignificantFinding(*box, max(adjusted[leaves[number]] for number in inside))
            for box, inside in every
        ]

    def __repr__(self) -> str:
        leaves = [row for row in self.regions if row.leaf]
        first = f"<Significance of {len(leaves)} leaves, {RATES[self.error]}"
        lines = [f"{first}; {self.evaluations} evaluations", f"  {self.null}"]
        lines += [
            f"  {'leaf' if row.leaf else 'part'} {row.region}: p {row.p:.2g}, e {row.e:.3g}, "
            f"adjusted {row.adjusted:.2g}, {row.rounds} rounds"
            for row in self.regions
        ]
        return "\n".join(lines) + ">"


def significance(explanation: Explanation, *, error: ErrorRate = "family") -> Significance:
    """Return p-values, e-values and adjusted values of the regions that were tested.

    The null hypothesis of a region: on this image, whichever other parts of its game are shown,
    showing the region too leaves the distribution of the model's score unchanged, with hidden
    pixels drawn by the sampler. It is about the model, not about the object or the disease.

    `error` is "family": with a probability of at least `1 - alpha`, no region whose null is true
    has an adjusted value of at most `alpha`. Or it is "discovery": of the leaves with an adjusted
    value of at most `alpha`, the expected share whose null is true is at most `alpha`.
    `Explainer.test` makes the tests; without them, this is an `ArgumentError`.

    >>> import hshap
    >>> significance(hshap.demo.example())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    hshap.errors.ArgumentError: the regions of this explanation were not tested; pass it to ...
    """
    tests = explanation.tests
    if tests is None:
        message = (
            "the regions of this explanation were not tested; pass it to "
            "explainer.test(explanation, image), which draws hidden pixels and calls the model"
        )
        raise ArgumentError(message)
    rate = as_error(error)
    chosen = family(explanation, tests.differences if rate == "family" else ())
    p_values = [tests.p(node.region) for node in chosen]
    evidence = [tests.e(node.region) for node in chosen]
    if rate == "family":
        adjusted = family_wise(
            p_values, [node.share for node in chosen], [node.parent for node in chosen]
        )
    else:
        adjusted = discoveries(evidence)
    rows = [
        TestedRegion(node.region, p, e, each, tests.rounds(node.region), node.leaf, node.parent)
        for node, p, e, each in zip(chosen, p_values, evidence, adjusted.tolist(), strict=True)
    ]
    null = NULL.format(sampler=tests.name)
    return Significance(tuple(rows), rate, null, tests.evaluations, explanation)


def as_error(value: str) -> ErrorRate:
    """Return the name of an error rate."""
    if value not in RATES:
        message = f"error is {checks.shown(value)}; pass one of {', '.join(map(repr, RATES))}"
        raise ArgumentError(message)
    return cast("ErrorRate", value)


class Node(NamedTuple):
    """A region of a family of tests: its share of the leaves, and the next larger one's number."""

    region: Region
    share: float
    parent: int
    leaf: bool


def family(
    explanation: Explanation, junctions: Mapping[Region, object] | Sequence[Region]
) -> list[Node]:
    """Return the leaves and those junctions that hold several of them, larger ones first."""
    every = explanation.parts
    by_number = {part.number: part for part in every.values()}
    leaves = set(explanation.leaves)
    counts: dict[int, int] = {}
    for leaf in explanation.leaves:
        for number in _upwards(every[leaf], by_number):
            counts[number] = counts.get(number, 0) + 1
    kept = [
        part
        for part in sorted(every.values(), key=lambda part: part.number)
        if part.region in leaves or (part.region in junctions and counts.get(part.number, 0) > 1)
    ]
    places = {part.number: place for place, part in enumerate(kept)}
    nodes: list[Node] = []
    for part in kept:
        above = (places[n] for n in _upwards(part, by_number) if n != part.number and n in places)
        share = counts.get(part.number, 1) / max(len(leaves), 1)
        nodes.append(Node(part.region, share, next(above, -1), part.region in leaves))
    return nodes


def junctions_of(explanation: Explanation) -> list[Region]:
    """Return the regions in whose game the way to the leaves parts, larger ones first."""
    every = explanation.parts
    by_number = {part.number: part for part in every.values()}
    ways: dict[int, set[int]] = {}
    for leaf in explanation.leaves:
        path = list(_upwards(every[leaf], by_number))
        for child, whole in pairwise(path):
            ways.setdefault(whole, set()).add(child)
    return [by_number[number].region for number in sorted(ways) if len(ways[number]) > 1]


def _upwards(part: Part, by_number: Mapping[int, Part]) -> list[int]:
    """Return the numbers of a region and of all that hold it, up to the whole image."""
    path = [part.number]
    while part.parent >= 0:
        part = by_number[part.parent]
        path.append(part.number)
    return path


def e_values(differences: Sequence[float] | Heat) -> Heat:
    """Return the e-value after each round, given the differences of the scores in their order.

    Evidence against "the region changes nothing" is an e-value far above 1: it reaches `1 / alpha`
    with a probability of at most `alpha` if the region changes nothing.

    >>> e_values([1.0] * 8).round(1).tolist()
    [1.5, 2.3, 3.8, 6.2, 10.5, 18.1, 31.9, 56.8]
    >>> e_values([0.0, 0.0]).tolist()
    [1.0, 1.0]
    """
    gains = relative(np.asarray(differences, dtype=np.float64))
    stakes, shares = _stakes()
    wealth = np.cumsum(np.log1p(stakes[:, None] * gains), axis=1)
    top = wealth.max(axis=0, initial=-np.inf)
    logs = top + np.log((shares[:, None] * np.exp(wealth - top)).sum(axis=0))
    return np.exp(np.minimum(logs, LARGEST))


@cache
def _stakes() -> tuple[Heat, Heat]:
    """Return stakes between 0 and 1, and the share of the money for each: Gauss's quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(STAKES)
    return (nodes + 1) / 2, weights / 2


def relative(differences: Heat) -> Heat:
    """Return each difference in units of the earlier ones, from -1 to 1.

    The unit is known before the round, so that the bet stays fair: the root mean square of the
    earlier differences that are not 0. The first one counts by its sign alone.

    >>> relative(np.array([0.0, -3.0, 1.5, 9.0])).tolist()
    [0.0, -1.0, 0.5, 1.0]
    """
    squares = np.cumsum(differences**2)
    counts = np.cumsum(differences != 0)
    before = np.concatenate([[0.0], squares[:-1]]), np.concatenate([[0], counts[:-1]])
    units = np.sqrt(before[0] / np.maximum(before[1], 1))
    scaled = np.divide(differences, units, out=np.sign(differences), where=units > 0)
    return np.clip(scaled, -1.0, 1.0)


def family_wise(
    p_values: Sequence[float] | Heat, shares: Sequence[float] | Heat, parents: Sequence[int]
) -> Heat:
    """Return adjusted values of a tree of regions, parents before children.

    `shares` are the shares of all leaves that each region holds, `parents` the number of the next
    larger region that was tested, -1 for none. The probability that any true null has an adjusted
    value of at most `alpha` is at most `alpha`, however the p-values depend on each other.

    >>> family_wise([0.001, 0.01, 0.2], [1.0, 0.5, 0.5], [-1, 0, 0]).tolist()
    [0.001, 0.02, 0.4]
    >>> family_wise([0.3, 0.001], [1.0, 1.0], [-1, 0]).tolist()  # not before its parent
    [0.3, 0.3]
    """
    own = np.minimum(np.asarray(p_values, dtype=np.float64) / np.asarray(shares), 1.0)
    for number, parent in enumerate(parents):
        if parent >= 0:
            own[number] = max(own[number], own[parent])
    return own


def discoveries(evidence: Sequence[float] | Heat) -> Heat:
    """Return the adjusted values of Wang and Ramdas (e-BH), for e-values of any dependence.

    >>> discoveries([100.0, 50.0, 1.0]).tolist()
    [0.03, 0.03, 1.0]
    """
    with np.errstate(divide="ignore"):
        given = 1.0 / np.asarray(evidence, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    scaled = given[order] * len(given) / np.arange(1, len(given) + 1)
    out = np.empty(len(given))
    out[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return out
