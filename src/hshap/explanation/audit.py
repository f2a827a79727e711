"""An audit of the assumption: how far a model is from the paper's rule on one image.

The paper assumes that a region scores as its best part does (positive if and only if some part is:
the OR rule). The games that were played say how far that is from the truth; no model is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.renamed import warn_renamed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hshap.games.game import Game
    from hshap.partitions.protocol import Region

FAR = 0.3
"""From this gap on, an explanation says that it should not be trusted by itself."""

NOISE = 1e-5
"""Falls below this share of the score are rounding, not a model that is not monotone."""


@dataclass(frozen=True)
class Audit:
    """How far the model is from the OR rule, and what is known of the area that was dropped.

    `gaps` has a number for each game, in their order: the largest difference between what some
    parts score together and what the best of them scores alone, as a share of the most that any
    parts of the image move the score. `gap` is their mean over games, each by how far its parts
    move the score: 0 if the rule holds, about 1 if parts say nothing alone. `failures` is the share
    of games in which showing more lowered the score, and `fall` the most that it did, as such a
    share too. `dropped_at_most` is the most that any one dropped part, or anything in it, adds
    alone if the model is monotone; where `failures` is above 0, it is seen not to be. `carried` is the share of
    what the image adds to the baseline's score that `attribution()` gives to the found regions; 1
    if it adds nothing.

    `doubt` is the one number to look at: the larger of the gap and of what is not carried.

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

    @property
    def doubt(self) -> float:
        """How far the explanation is from one to trust: 0 near, 1 far.

        It does not know of regions that a budget left unsplit; these are in `unfinished`.
        """
        return max(self.gap, 1.0 - self.carried)

    @property
    def bound(self) -> float:
        """Old name of `dropped_at_most`."""
        warn_renamed("Audit.bound", "Audit.dropped_at_most")
        return self.dropped_at_most

    def __str__(self) -> str:
        """Say it in words."""
        return f"{_rule(self.gap)} {_carried(self.carried)} {_dropped(self)}"


def audit(games: Sequence[Game], leaves: Sequence[Region], found: float) -> Audit:
    """Read the audit off the games that were played; `found` is what the leaves carry together."""
    # Not by what all parts add together: where some raise the score and others lower it, that is
    # little, and says nothing of how they act.
    weights = np.array([np.abs(game.values - game.values[0]).max() for game in games])
    unit = float(weights.max()) or 1.0
    gaps = [or_gap(game) / unit for game in games]
    falls = np.array([monotone_gap(game) for game in games]) / unit
    return Audit(
        gap=float(np.average(gaps, weights=weights)) if weights.any() else 0.0,
        gaps=tuple(gaps),
        failures=float((falls > NOISE).mean()),
        fall=float(falls.max()),
        dropped_at_most=max((most for _, most in dropped(games, leaves)), default=0.0),
        carried=_share(found, games[0]),
    )


def _share(found: float, root: Game) -> float:
    """Return the share of what the image adds that was found; 1 if it adds nothing."""
    if root.total <= NOISE * float(np.abs(root.values).max()):
        return 1.0
    return min(max(found / root.total, 0.0), 1.0)


def dropped(games: Sequence[Game], leaves: Sequence[Region]) -> list[tuple[Region, float]]:
    """Return the parts that were dropped, and the most that each adds alone in a monotone game.

    Of `gamma` players in a monotone game, one that adds `a` to nobody has a coefficient of at least
    `a / gamma`: it comes first in that share of all orders.
    """
    found = set(leaves)
    # A root that plays alone is its own part.
    played = {game.region for game in games if game.children != (game.region,)}
    return [
        (part, len(game.children) * max(phi, 0.0))
        for game in games
        if game.region not in found
        for part, phi in zip(game.children, game.coefficients.tolist(), strict=True)
        if part not in found and part not in played
    ]


def or_gap(game: Game) -> float:
    """Return how far any parts together are from the best of them alone."""
    values, players = game.values, len(game.children)
    best = np.full(len(values), -np.inf)
    for player in range(players):
        has = _members(player, players)
        best[has] = np.maximum(best[has], values[1 << player])
    return float(np.abs(values[1:] - best[1:]).max())


def monotone_gap(game: Game) -> float:
    """Return the most that the score falls when one more part is shown; 0 if it never does."""
    players = len(game.children)
    falls = [
        game.values[~_members(player, players)] - game.values[_members(player, players)]
        for player in range(players)
    ]
    return max(float(np.max(falls)), 0.0)


def _members(player: int, players: int) -> NDArray[np.bool_]:
    """Tell for each coalition whether it holds the player."""
    return (np.arange(2**players) >> player & 1).astype(bool)


def _rule(gap: float) -> str:
    if gap < FAR / 3:
        return f"Parts speak for themselves (OR gap {gap:.2f}): the paper's assumption holds here."
    if gap < FAR:
        return f"Parts mostly speak for themselves (OR gap {gap:.2f}): near the paper's assumption."
    return (
        f"Parts act together (OR gap {gap:.2f}): the paper's assumption fails here, and what is "
        "highlighted may be too little, too much or elsewhere."
    )


def _carried(share: float) -> str:
    told = f"What was found carries {share:.0%} of what the image adds to the score"
    return f"{told}." if 1.0 - share < FAR else f"{told} only; where the rest is from is not shown."


def _dropped(found: Audit) -> str:
    bound = f"{found.dropped_at_most:.2g}"
    if found.failures:
        return (
            f"In {found.failures:.0%} of the games showing more lowered the score, by up to "
            f"{found.fall:.1%} of it: that no single dropped part adds more than {bound} is not "
            "proven."
        )
    return f"If the model is monotone, no single dropped part adds more than {bound}."
