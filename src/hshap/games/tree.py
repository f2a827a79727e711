"""The regions of a run as a tree, with the coefficient and the share of each.

Everything comes from the games that were played; no model is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from hshap.games.contexts import ALONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Heat
    from hshap.games.game import Game
    from hshap.partitions.protocol import Region


Ratios: TypeAlias = "list[float] | None"
"""How a game divides the share of its region among the parts; None if none of them raises it."""

ROUNDING = 1e-6
"""A change of score below this share of the run's largest one is rounding."""


class Part(NamedTuple):
    """A region of the tree.

    `number` is 0 for the whole image. `parent` is the number of the larger region, -1 for the whole
    image. `coefficient` and `error` come from the parent's game. `share` is the region's part of
    `score - baseline_score`, and `alone` the score that the region adds to the baseline by itself.
    """

    region: Region
    number: int
    parent: int
    depth: int
    coefficient: float
    error: float
    share: float
    alone: float


def parts(
    games: Sequence[Game], *, draws: int = 1, shared: Sequence[Ratios] | None = None
) -> dict[Region, Part]:
    """Return every region of the games, parents before children.

    `shared` are the `ratios` of these games, where they were computed with those of others.
    """
    root = games[0]
    # The root is a player of no game, so its standard error is not known.
    error = 0.0 if draws == 1 else float("nan")
    seen = {root.region: Part(root.region, 0, -1, 0, root.total, error, root.total, root.total)}
    for game, divided in zip(games, shared or ratios(games), strict=True):
        whole, values = seen[game.region], game.values.tolist()
        coefficients = game.coefficients.tolist()
        if whole.parent < 0 and not game.contexts:
            shares: Sequence[float | None] = coefficients
        elif divided is None:
            shares = [None] * len(coefficients)
        else:
            shares = [whole.share * ratio for ratio in divided]
        known = zip(
            game.children,
            coefficients,
            game.errors.tolist(),
            shares,
            (values[1 << i] - values[0] for i in range(len(game.children))),
            strict=True,
        )
        plays_alone = len(game.children) == 1  # a root that is not split: it is its own part
        for child, phi, error, share, alone in known:
            if plays_alone:
                own = whole.share if share is None else share
                seen[child] = whole._replace(coefficient=phi, error=error, share=own)
            else:
                place = (len(seen), whole.number, whole.depth + 1)
                seen[child] = Part(child, *place, phi, error, share or 0.0, alone)
    return seen


def shares(games: Sequence[Game]) -> dict[Region, float]:
    """Return the share of every region, as `parts` has it, without the rest."""
    root = games[0].region
    seen = {root: games[0].total}
    for game, divided in zip(games, ratios(games), strict=True):
        whole = seen[game.region]
        if game.region == root and not game.contexts:
            found = game.coefficients.tolist()
        elif divided is None:
            found = [whole if len(game.children) == 1 else 0.0] * len(game.children)
        else:
            found = [whole * ratio for ratio in divided]
        if len(game.children) > 1:
            found = [share or 0.0 for share in found]  # 0, not -0
        seen.update(zip(game.children, found, strict=True))
    return seen


def coefficients(games: Sequence[Game]) -> dict[Region, float]:
    """Return the coefficient of every region, as `parts` has it, without the rest."""
    root = games[0]
    found = {root.region: root.total}
    for game in games:
        found.update(zip(game.children, game.coefficients.tolist(), strict=True))
    return found


def null_players(games: Sequence[Game]) -> tuple[Region, ...]:
    """Return the parts that the model was shown to ignore: no coalition's score depends on them.

    Games whose values were inferred show nothing, and neither does the game of an image that was
    not split: parts of it may cancel each other out.

    >>> import hshap
    >>> left, right = hshap.Box((0,), (2,)), hshap.Box((2,), (4,))
    >>> values = np.array([0.0, 1.0, 0.0, 1.0])  # none, left, right, both
    >>> whole = hshap.Box((0,), (4,))
    >>> game = hshap.Game(whole, (left, right), values, hshap.shapley(values), np.zeros(2))
    >>> null_players([game])
    (Box(start=(2,), stop=(4,)),)
    """
    played = [game for game in games if not game.inferred and len(game.children) > 1]
    most = ROUNDING * max((float(np.ptp(game.values)) for game in played), default=0.0)
    found: list[Region] = []
    for game in played:
        if game.contexts and all(one.number == ALONE for one in game.contexts):
            continue  # what else is shown was not asked
        values = np.stack([game.values, *(one.values for one in game.contexts)])
        for number, part in enumerate(game.children):
            # Pairs of coalitions, without the part and with it.
            pairs = values.reshape(len(values), -1, 2, 1 << number)
            if float(np.abs(pairs[:, :, 1] - pairs[:, :, 0]).max()) <= most:
                found.append(part)
    return tuple(found)


def ratios(games: Sequence[Game]) -> list[Ratios]:
    """Return the parts of each game by their positive coefficients, as shares of their sum.

    None for a game in which no coefficient is positive. Of a game in several contexts, the sums
    over all of them count, with the sign of their total; the areas if that is 0. Games of one size
    are taken at once.
    """
    found: list[Ratios] = [None] * len(games)
    numbers: dict[int, list[int]] = {}
    for number, game in enumerate(games):
        numbers.setdefault(len(game.children), []).append(number)
    for chosen in numbers.values():
        positive = np.maximum([_weights(games[i]) for i in chosen], 0.0)
        totals = positive.sum(1)
        divided = (positive / np.where(totals, totals, 1.0)[:, None]).tolist()
        for i, ratio, total in zip(chosen, divided, totals.tolist(), strict=True):
            found[i] = ratio if total else None
    return found


def _weights(game: Game) -> Heat:
    """Return the weights of the parts of a game: its coefficients, or those of all contexts."""
    if not game.contexts:
        return game.coefficients
    pooled = game.pooled
    total = float(pooled.sum())
    return pooled * np.sign(total) if total else np.array([part.area for part in game.children])
