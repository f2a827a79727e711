"""An audit of the assumption: how far a model is from the paper's rule on one image.

The paper assumes the OR rule: a region is positive if and only if one of its parts is, so it scores
as its best part does. The games that were played show how far the model is from this rule, and the
pixels show how well the leaves fit; no model is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from hshap.evaluators.protocol import NOT_TOLD, Provenance
from hshap.games.shapley import FEW, sides
from hshap.games.tree import MOST_VALUES, parts, ratios, sources
from hshap.partitions.filling import filling

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from hshap._util.types import Array, Heat
    from hshap.explanation.explanation import Explanation
    from hshap.games.game import Game
    from hshap.games.search import Certificate
    from hshap.partitions.protocol import Region

FAR = 0.3
"""From this gap on, areas act together; smaller lacks than this are not put into words."""

LOOSE = 4
"""Power of `1 - filled` in the doubt; chosen on families of drawings, see decision 15."""

NOISE = 1e-5
"""Decreases below this share of the score are rounding, not a sign of the model."""


@dataclass(frozen=True)
class Audit:
    """How far the model is from the OR rule, and a bound on the area that was dropped.

    - `gaps` has one number for each game, in their order: the largest difference between the score
      of some parts together and the score of the best of them alone.
    - `gap` is the mean of `gaps`, weighted by each game's largest change of score: 0 if the rule
      holds, about 1 if no part has a score alone.
    - `failures` is the share of games in which showing one more part lowered the score.
    - `fall` is the largest such decrease.
    - `dropped_at_most` is the largest score that any one dropped part, or anything in it, adds
      alone, if the model is monotone. The model is not monotone if `failures` is above 0.
    - `carried` is the share of `score - baseline_score` that `attribution()` gives to the leaves;
      1 if the image adds nothing to the baseline.
    - `alone` is the share of `score - baseline_score` that the leaves add up to, each by itself,
      at most 1; 1 without leaves. Under the rule every leaf has the whole score alone, and in an
      additive model they add up to it; less means that leaves are pieces of an object.
    - `alike` is 1 if the leaves, each by itself, score alike, as under the rule, or add up to the
      score, as in an additive model. Else it is the score of the median leaf as a share of the
      highest one, or one minus the distance of their sum from the score, the larger of the two.
    - `covered` is the share of the image that the leaves cover. Nothing is known of the pixels
      inside a leaf, so leaves on most of the image say little.
    - `cancelled` is the share of the largest change of score that is lost in the whole image: near
      1 if parts of the image have a score and the whole image has none.
    - `filled` is the share of the leaves' pixels that hiding them changes: 1 if all pixels of a
      leaf differ alike from the baseline, 0.1 if a leaf is a thin line and nine times as many
      pixels that look as the baseline does. It is the mean over leaves, by area, of the squared sum
      of the differences, divided by the sum of their squares and by the area. 1 where it is not
      known: if stand-ins depend on the shown pixels, and for `Spots`, whose cells hold pixels of
      the template.
    - `provenance` says how the scores were made: from full inputs or from patches, whether the
      two were compared, and whether scores depend on the other inputs of a batch.

    `gaps`, `gap` and `fall` are shares of the largest change of score in any game. Leaves that a
    budget left unsplit do not count in `alike`, `covered` and `filled`. `doubt` is a number to sort
    runs by: how far the findings are from carrying the score, each by itself, on a small area whose
    pixels differ from the baseline. The verdict is `Explanation.how_sure`.

    Here a model needs two pixels at once, which no part has alone:

    >>> import hshap
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch[:, 0, 0, 0] * batch[:, 0, 3, 3],
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ... )
    >>> explainer.explain(np.ones((1, 4, 4)), target=0).audit.gap
    1.0
    """

    gap: float
    gaps: tuple[float, ...]
    failures: float
    fall: float
    dropped_at_most: float
    carried: float
    alone: float = 1.0
    covered: float = 0.0
    provenance: Provenance = NOT_TOLD
    alike: float = 1.0
    cancelled: float = 0.0
    filled: float = 1.0

    @property
    def doubt(self) -> float:
        """One minus a product of shares: 0 for small findings that each have the score by itself.

        It sorts runs, and is no verdict: findings that rightly cover a large object raise it.

        The shares are the smaller of `carried` and `alone`, since both count a dropped part,
        `1 - covered`, `1 - unlike`, `1 - cancelled ** 2` and `1 - loose`. Small values of the last
        three count little: graded scores are seldom alike, other objects often lower a score a
        little, and the cells of a grid never have the shape of an object. The
        gap is not among them: where parts act together but the findings have the score by
        themselves, the findings are right. Regions that a budget left unsplit do not count; see
        `Explanation.unfinished`.
        """
        found = min(self.carried, self.alone) * (1.0 - self.covered)
        return 1.0 - found * (1.0 - self.unlike) * (1.0 - self.cancelled**2) * (1.0 - self.loose)

    @property
    def unlike(self) -> float:
        """The square of `1 - alike`: how much unlike findings add to the doubt."""
        return (1.0 - self.alike) ** 2

    @property
    def loose(self) -> float:
        """The fourth power of `1 - filled`: how much pixels like the baseline add to the doubt."""
        return (1.0 - self.filled) ** LOOSE

    def __str__(self) -> str:
        """Return the audit in words: measurements, and no verdict; see `Explanation.how_sure`."""
        made = f"Scores: {self.provenance.sentence}."
        return " ".join((_rule(self.gap), _leaves(self), _dropped(self), made))


def audit(  # noqa: PLR0913, one for each field of an explanation that counts
    games: Sequence[Game],
    leaves: Sequence[Region],
    unfinished: Sequence[Region],
    found: float,
    provenance: Provenance,
    *,
    certificate: Certificate | None = None,
    filled: float | None = None,
    shared: tuple[Heat, Heat, Heat] | None = None,
) -> Audit:
    """Return the audit of a run; `found` is the sum of the shares of the leaves.

    `shared` are `all_gaps` of these games, where they were computed with those of others. An
    inferred game follows the OR rule by itself. The gap of the run's answers counts instead.
    """
    split = set(leaves).difference(unfinished)
    together, lowered, weights = shared or all_gaps(games)
    largest = float(weights.max())
    unit = largest or 1.0
    total = _added(games[0])
    alone = _scores_alone(games, set(leaves), total)
    inferred = 0.0 if certificate is None else certificate.gap
    gaps = [
        max(gap, inferred) if game.inferred else gap
        for gap, game in zip((together / unit).tolist(), games, strict=True)
    ]
    falls = (lowered / unit).tolist()
    return Audit(
        gap=float((gaps * weights).sum() / weights.sum()) if largest else 0.0,
        gaps=tuple(gaps),
        failures=sum(fall > NOISE for fall in falls) / len(falls),
        fall=max(falls),
        dropped_at_most=max((most for _, most in dropped(games, leaves, certificate)), default=0.0),
        carried=min(max(found / total, 0.0), 1.0) if total else 1.0,
        alone=min(float(alone.sum()), 1.0) if len(alone) else 1.0,
        covered=sum(leaf.area for leaf in split) / games[0].region.area,
        provenance=provenance,
        alike=_alike(_scores_alone(games, split, total) if unfinished else alone),
        cancelled=min(max(1.0 - games[0].total / unit, 0.0), 1.0) if largest else 0.0,
        filled=1.0 if filled is None else filled,
    )


def audit_many(explanations: Sequence[Explanation]) -> None:
    """Fill in `parts` and `audit` of explanations, as each one would compute them when asked.

    A call of NumPy takes as long for the games of sixteen images as for those of one. Every number
    is that of one game alone, so results are the same bit for bit.

    Nothing is filled in where the games are too large, or where those of one explanation raise an
    error: then each computes its own, and only that one fails.
    """
    games = [game for one in explanations for game in one.games]
    if sum([len(game.values) for game in games]) > MOST_VALUES:
        return
    try:
        counts = [count for one in explanations for count in sources(one.games)]
        divided, gaps = ratios(games, counts), all_gaps(games)
    except Exception:  # noqa: BLE001, of games that a caller made; asked again, they tell
        return
    ends = accumulate((len(one.games) for one in explanations), initial=0)
    for one, (begin, end) in zip(explanations, pairwise(ends), strict=True):
        own = (gaps[0][begin:end], gaps[1][begin:end], gaps[2][begin:end])
        try:
            tree = parts(one.games, draws=one.draws, shared=(counts[begin:end], divided[begin:end]))
            found = sum(tree[leaf].share for leaf in one.leaves)
            made = audit(
                one.games,
                one.leaves,
                () if one.complete else one.unfinished,
                found,
                one.provenance,
                certificate=one.certificate,
                filled=one.filled,
                shared=own,
            )
        except Exception:  # noqa: BLE001, S112, the explanation raises it again when it is asked
            continue
        vars(one).update(parts=tree, audit=made)  # where `cached_property` keeps them


def filled_by(leaves: Sequence[Region], image: Array, stand_ins: Sequence[Array]) -> float | None:
    """Return the share of the leaves' pixels that hiding them changes; 1 without leaves.

    The difference of a pixel is that of all its channels, over all stand-ins `(channels, *grid)`.
    None if a difference is not finite: some models take NaN for a missing pixel.

    >>> from hshap.protocols import Box
    >>> image = np.zeros((1, 10))
    >>> image[0, 3] = 1.0
    >>> round(filled_by([Box((0,), (10,))], image, [np.zeros((1, 10))]), 2)
    0.1
    """
    filled = 0.0
    with np.errstate(over="ignore"):
        for leaf in leaves:
            pixels = (slice(None), *leaf.index)
            shown = image[pixels].astype(np.float64)
            apart = np.zeros(shown.shape[1:])
            for stand_in in stand_ins:
                apart += np.abs(shown - stand_in[pixels]).sum(axis=0)
            if not np.isfinite(apart).all():
                return None
            filled += leaf.area * filling(apart)
    return min(filled / sum(leaf.area for leaf in leaves), 1.0) if leaves else 1.0


def _added(root: Game) -> float:
    """Return the score that the image adds to the baseline; 0 if it adds nothing."""
    return root.total if root.total > NOISE * float(np.abs(root.values).max()) else 0.0


def _scores_alone(games: Sequence[Game], leaves: AbstractSet[Region], total: float) -> Heat:
    """Return the score that each leaf adds by itself, as a share; empty if the image adds none."""
    if not total:
        return np.zeros(0)
    alone = [
        game.values[1 << number] - game.values[0]
        for game in games
        for number, part in enumerate(game.children)
        if part in leaves
    ]
    return np.maximum(alone, 0.0) / total


def _alike(alone: Heat) -> float:
    """Tell how alike the leaves score, or how near their sum is to the score of the image."""
    if not len(alone) or not alone.any():
        return 1.0  # there is nothing to compare
    highest = sorted(np.minimum(alone, 1.0).tolist())
    apart = min(abs(float(alone.sum()) - 1.0), 1.0)
    return max(median(highest) / highest[-1], 1.0 - apart)


def dropped(
    games: Sequence[Game], leaves: Sequence[Region], certificate: Certificate | None = None
) -> list[tuple[Region, float]]:
    """Return the parts that were dropped, and the largest score that each can add alone.

    The bound holds for monotone games. A player that adds `a` to the empty coalition of `gamma`
    players has a coefficient of at least `a / gamma`, since it comes first in that share of orders.
    A part whose game was inferred adds at most as much as the image without the leaves, which was
    measured: it is shown there with others.
    """
    left = 0.0 if certificate is None else max(certificate.left, 0.0)
    return [
        (part, left if game.inferred else len(game.children) * max(phi, 0.0))
        for game, number, part in _outside(games, leaves)
        for phi in [float(game.coefficients[number])]
    ]


def dropped_alone(games: Sequence[Game], leaves: Sequence[Region]) -> list[float]:
    """Return the score that each dropped part adds alone, as its game has it."""
    return [float(game.alone[number]) for game, number, _ in _outside(games, leaves)]


def _outside(games: Sequence[Game], leaves: Sequence[Region]) -> Iterator[tuple[Game, int, Region]]:
    """Yield the dropped parts, each with its game and its number there."""
    found = set(leaves)
    # A root that plays alone is its own part.
    played = {game.region for game in games if game.children != (game.region,)}
    for game in games:
        if game.region not in found:
            for number, part in enumerate(game.children):
                if part not in found and part not in played:
                    yield game, number, part


def all_gaps(games: Sequence[Game]) -> tuple[Heat, Heat, Heat]:
    """Return the OR gap, the monotone gap and the largest change of score of each game."""
    out = np.zeros((3, len(games)))
    numbers: dict[int, list[int]] = {}
    for number, game in enumerate(games):
        numbers.setdefault(len(game.children), []).append(number)
    for chosen in numbers.values():
        values = np.array([games[i].values for i in chosen])
        # The largest change, not the total: parts that raise and lower the score cancel in it.
        change = np.abs(values - values[:, :1]).max(1)
        out[:, chosen] = (or_gaps(values), monotone_gaps(values), change)
    return out[0], out[1], out[2]


def or_gaps(values: Heat) -> Heat:
    """Return the largest difference between parts together and the best of them alone.

    `values[i]` are the scores of all coalitions of game `i`, as for `monotone_gaps`.
    """
    players = _players(values)
    if players <= FEW:
        best = np.take(values, _members(players), axis=1).max(2)
        return np.abs(values[:, 1:] - best).max(1)
    best = np.full(values.shape, -np.inf)
    for player, (_, having) in enumerate(_halves(best)):
        np.maximum(having, values[:, 1 << player, None, None], out=having)
    return np.abs(values[:, 1:] - best[:, 1:]).max(1)


def monotone_gaps(values: Heat) -> Heat:
    """Return the most that the score falls when one more part is shown; 0 if it never does."""
    players = _players(values)
    if players <= FEW:
        having, lacking = sides(players)
        falls = np.take(values, lacking, axis=1) - np.take(values, having, axis=1)
        return np.maximum(falls.max((1, 2)), 0.0)
    every = [(lacking - having).max((1, 2)) for lacking, having in _halves(values)]
    return np.maximum(np.max(every, axis=0), 0.0)


def additive_gap(values: Heat) -> float:
    """Return the largest difference between parts together and the sum of what each adds alone.

    >>> additive_gap(np.array([0.0, 1.0, 2.0, 3.0])), additive_gap(np.array([0.0, 0.0, 0.0, 1.0]))
    (0.0, 1.0)
    """
    singles = 1 << np.arange(len(values).bit_length() - 1)
    is_member = (np.arange(len(values))[:, None] & singles) > 0
    added = values - values[0]
    return float(np.abs(added - is_member @ added[singles]).max())


def _players(values: Heat) -> int:
    return values.shape[1].bit_length() - 1


@cache
def _members(players: int) -> NDArray[np.intp]:
    """Return each coalition's players alone, as coalitions `(all but the empty one, players)`.

    In the place of a player that it lacks is its first one, which changes no maximum.
    """
    every, alone = np.arange(1, 2**players)[:, None], 1 << np.arange(players)
    return np.where(every & alone, alone, every & -every)


def _halves(values: Heat) -> Iterator[tuple[Heat, Heat]]:
    """Yield views of the coalitions without each player, and of those with it, in one order."""
    for player in range(_players(values)):
        split = values.reshape(len(values), -1, 2, 2**player)
        yield split[:, :, 0], split[:, :, 1]


def _rule(gap: float) -> str:
    return (
        f"OR gap {gap:.2f}: 0 if every region scores as its best part, as the paper assumes, and 1 "
        "if no part scores alone."
    )


def _leaves(found: Audit) -> str:
    share = f"carry {found.carried:.0%} of the score that the image adds"
    told = [f"The findings {share}, and cover {found.covered:.0%} of the image."]
    if not found.covered:
        told = ["There are no findings."]
    if 1.0 - found.alone >= FAR:
        told.append(f"The findings, each by itself, add up to {found.alone:.0%} of the score.")
    if 1.0 - found.alike >= FAR:
        told.append("Some findings have the score by themselves, and others have far less.")
    if found.cancelled >= FAR:
        told.append(f"The whole image lacks {found.cancelled:.0%} of the score that parts have.")
    if found.loose >= FAR:
        told.append(f"Hiding the findings changes about {found.filled:.0%} of their pixels.")
    return " ".join(told)


def _dropped(found: Audit) -> str:
    bound = f"no single dropped part adds more than {found.dropped_at_most:.2g}"
    if found.failures:
        return (
            f"In {found.failures:.0%} of the games one more part lowered the score, by up to "
            f"{found.fall:.1%} of it. If it never did, {bound}."
        )
    return f"If showing more never lowers the score, {bound}."
