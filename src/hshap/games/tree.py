"""The regions of a run as a tree, with the coefficient and the share of each.

Everything comes from the games that were played; no model is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from hshap.games.contexts import ALONE
from hshap.games.shapley import shapley, weighted_shapley

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Heat
    from hshap.games.game import Game
    from hshap.partitions.protocol import Region


Ratios: TypeAlias = "list[float] | None"
"""How a game divides the share of its region among the parts; None if none of them raises it."""

Counts: TypeAlias = "tuple[float, ...]"
"""How many sources of the score each part of a game holds."""

MOST_VALUES = 2**18
"""Scores of games that are looked at together: of more, copies would fill memory."""

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
    games: Sequence[Game],
    *,
    draws: int = 1,
    shared: tuple[Sequence[Counts], Sequence[Ratios]] | None = None,
) -> dict[Region, Part]:
    """Return every region of the games, parents before children.

    `shared` are the `sources` and the `ratios` of these games, where they were computed with those
    of others.
    """
    root = games[0]
    # The root is a player of no game, so its standard error is not known.
    error = 0.0 if draws == 1 else float("nan")
    seen = {root.region: Part(root.region, 0, -1, 0, root.total, error, root.total, root.total)}
    counts = shared[0] if shared else sources(games)
    divided = shared[1] if shared else ratios(games, counts)
    for game, ratio in zip(games, divided, strict=True):
        whole, values = seen[game.region], game.values.tolist()
        shares = _passed_on(game, whole.share, ratio, counts[0] if game is root else None)
        known = zip(
            game.children,
            game.coefficients.tolist(),
            game.errors.tolist(),
            shares,
            (values[1 << i] - values[0] for i in range(len(game.children))),
            strict=True,
        )
        plays_alone = len(game.children) == 1  # a root that is not split: it is its own part
        for child, phi, error, share, alone in known:
            if plays_alone:
                seen[child] = whole._replace(coefficient=phi, error=error, share=share)
            else:
                place = (len(seen), whole.number, whole.depth + 1)
                seen[child] = Part(child, *place, phi, error, share, alone)
    return seen


def shares(games: Sequence[Game], counted: Sequence[Counts] | None = None) -> dict[Region, float]:
    """Return the share of every region, as `parts` has it, without the rest.

    `counted` are the `sources` that count, if they are not those of these games.
    """
    root = games[0]
    seen = {root.region: root.total}
    counts = sources(games) if counted is None else counted
    divided = ratios(games, counts)
    for game, ratio in zip(games, divided, strict=True):
        top = counts[0] if game is root else None
        seen.update(
            zip(game.children, _passed_on(game, seen[game.region], ratio, top), strict=True)
        )
    return seen


def _passed_on(game: Game, share: float, ratio: Ratios, top: Counts | None) -> list[float]:
    """Return the shares of the parts of a game; `top` are the counts of the image's own game.

    Those of the image in one context are its values, which may be negative.
    """
    if top is not None and not game.contexts:
        return [value or 0.0 for value in _values([game], [top])[0].tolist()]  # 0, not -0
    if ratio is None:
        return [share if len(game.children) == 1 else 0.0] * len(game.children)
    return [share * part or 0.0 for part in ratio]


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

    >>> from hshap import shapley
    >>> from hshap.protocols import Box, Game
    >>> left, right = Box((0,), (2,)), Box((2,), (4,))
    >>> values = np.array([0.0, 1.0, 0.0, 1.0])  # none, left, right, both
    >>> whole = Box((0,), (4,))
    >>> game = Game(whole, (left, right), values, shapley(values), np.zeros(2))
    >>> null_players([game])
    (Box(start=(2,), stop=(4,)),)
    """
    played = [game for game in games if not game.inferred and len(game.children) > 1]
    most = ROUNDING * _largest_change(played)
    # Of a game that was played alone in each context, what else is shown was not asked.
    asked = [
        game
        for game in played
        if not game.contexts or any(one.number != ALONE for one in game.contexts)
    ]
    found: dict[int, list[Region]] = {}
    for chosen in _alike(asked):
        rows = [
            values
            for i in chosen
            for values in (asked[i].values, *(one.values for one in asked[i].contexts))
        ]
        first = np.cumsum([0, *(1 + len(asked[i].contexts) for i in chosen[:-1])])
        values = np.array(rows)
        players = len(asked[chosen[0]].children)
        for number in range(players):
            # Pairs of coalitions, without the part and with it.
            pairs = values.reshape(len(values), -1, 2, 1 << number)
            changes = np.abs(pairs[:, :, 1] - pairs[:, :, 0]).max((1, 2))
            for place in np.flatnonzero(np.maximum.reduceat(changes, first) <= most).tolist():
                found.setdefault(chosen[place], []).append(asked[chosen[place]].children[number])
    return tuple(part for number in sorted(found) for part in found[number])


def _largest_change(games: Sequence[Game]) -> float:
    """Return the largest difference between two scores of one game."""
    if not games:
        return 0.0
    values = np.concatenate([game.values for game in games])
    first = np.cumsum([0, *(len(game.values) for game in games[:-1])])
    return float((np.maximum.reduceat(values, first) - np.minimum.reduceat(values, first)).max())


def ratios(games: Sequence[Game], counted: Sequence[Counts] | None = None) -> list[Ratios]:
    """Return the parts of each game by their positive values, as shares of their sum.

    A value is a part's coefficient, or of a game in several contexts the sum over all of them, with
    the sign of their total; the areas count if that is 0. None for a game in which no value is
    positive. `counted` are the `sources` that count, if they are not those of these games.

    Where parts can stand in for each other, the coefficient divides what they have in common
    evenly. But one of them may hold more sources of the score than another, and so it is divided by
    their number: `weighted_shapley`. Of a model that one source is enough for, each source then has
    the same share, which is its Shapley value in the game of all leaves.
    """
    counts = sources(games) if counted is None else counted
    found: list[Ratios] = [None] * len(games)
    for chosen in _alike(games):
        values = _values([games[i] for i in chosen], [counts[i] for i in chosen])
        positive = np.maximum(values, 0.0)
        totals = positive.sum(1)
        divided = (positive / np.where(totals, totals, 1.0)[:, None]).tolist()
        for i, ratio, total in zip(chosen, divided, totals.tolist(), strict=True):
            found[i] = ratio if total else None
    return found


def _alike(games: Sequence[Game]) -> list[list[int]]:
    """Return the numbers of games with equally many players, up to so many scores at a time."""
    groups: dict[int, list[int]] = {}
    for number, game in enumerate(games):
        groups.setdefault(len(game.children), []).append(number)
    found: list[list[int]] = []
    for players, chosen in groups.items():
        most = max(MOST_VALUES >> players, 1)
        found += [chosen[start : start + most] for start in range(0, len(chosen), most)]
    return found


def sources(games: Sequence[Game], inside: Mapping[Region, float] | None = None) -> list[Counts]:
    """Return for each game how many sources of the score each of its parts holds, 1 or more.

    `inside` are those of parts that were split in games of their own; any other part that was not
    split is one.
    """
    held = sources_held(games, inside)
    return [tuple([held.get(part, 1.0) for part in game.children]) for game in games]


def sources_held(
    games: Sequence[Game], inside: Mapping[Region, float] | None = None
) -> dict[Region, float]:
    """Return how many sources of the score each region that was split holds, 1 or more.

    A region holds those of its parts, each as far as the part alone has the score of the region:
    all of them if any is enough, and one if they add up. A region that adds no more than rounding
    holds one. `inside` is as in `sources`.
    """
    held = dict(inside or {})
    rounding = ROUNDING * _largest_change(games)
    for game in reversed(games):
        values = game.values.tolist()
        low, worth = values[0], values[-1] - values[0]
        if abs(worth) > rounding and len(game.children) > 1:
            alone = [(values[1 << i] - low) / worth for i in range(len(game.children))]
            own = [
                held.get(part, 1.0) * min(max(a, 0.0), 1.0)
                for part, a in zip(game.children, alone, strict=True)
            ]
            held[game.region] = max(1.0, sum(own))
    return held


def _values(games: Sequence[Game], counts: Sequence[Counts]) -> Heat:
    """Return the values of the parts of each game, summed over the contexts it was played in.

    All games have equally many parts.
    """
    held = np.array(counts)
    uneven = held.min(1) < held.max(1)
    found = np.array([game.coefficients for game in games])
    if uneven.any():
        values = np.array([game.values for game, one in zip(games, uneven, strict=True) if one])
        found[uneven] = _by_sources(values, held[uneven])
    further = [(i, one.values) for i, game in enumerate(games) for one in game.contexts]
    if not further:
        return found
    owner, values = np.array([i for i, _ in further]), np.array([one for _, one in further])
    own, by_sources, rest = shapley(values), uneven[owner], np.zeros_like(found)
    own[by_sources] = _by_sources(values[by_sources], held[owner[by_sources]])
    np.add.at(rest, owner[~by_sources], own[~by_sources])
    found += rest
    np.add.at(found, owner[by_sources], own[by_sources])
    for i in set(owner.tolist()):
        total = float(found[i].sum())
        found[i] = found[i] * np.sign(total) if total else [one.area for one in games[i].children]
    return found


def _by_sources(values: Heat, counts: Heat) -> Heat:
    """Return the values of the parts of games in one context each; `counts` are their sources."""
    if not len(values):
        return np.zeros(counts.shape)
    worth = values[:, -1] - values[:, 0]
    alone = values[:, 1 << np.arange(counts.shape[1])] - values[:, :1]
    stand_in = (alone.sum(1) - worth) * worth > 0  # the parts have more alone than together
    found = shapley(values)
    found[stand_in] = weighted_shapley(values[stand_in], counts[stand_in])
    return found
