"""Every region that a run saw, with its place in the tree and what it is worth.

Read off the games that were played; no model is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.games.game import Game
    from hshap.partitions.protocol import Region


class Part(NamedTuple):
    """A region that was seen.

    `number` counts from 0, the whole image, and `parent` is the number of the region it is a part
    of, -1 for the whole. `coefficient` and `error` are those of its parent's game; `share` is what
    falls to it of all that the image adds to the baseline, `alone` what it adds by itself.
    """

    region: Region
    number: int
    parent: int
    depth: int
    coefficient: float
    error: float
    share: float
    alone: float


def parts(games: Sequence[Game], *, draws: int = 1) -> dict[Region, Part]:
    """Return every region of the games, the whole image first and parts after what they are of."""
    root = games[0]
    # The root has no game but the whole; its error is not kept, so it is not known.
    error = 0.0 if draws == 1 else float("nan")
    seen = {root.region: Part(root.region, 0, -1, 0, root.total, error, root.total, root.total)}
    for game in games:
        whole = seen[game.region]
        known = zip(
            game.children,
            game.coefficients.tolist(),
            game.errors.tolist(),
            _shares(whole, game),
            game.alone.tolist(),
            strict=True,
        )
        for child, phi, error, share, alone in known:
            if child == game.region:
                # It is not split: its game is its own, and so is its place.
                own = whole.share if share is None else share
                seen[child] = whole._replace(coefficient=phi, error=error, share=own)
            else:
                place = (len(seen), whole.number, whole.depth + 1)
                seen[child] = Part(child, *place, phi, error, share or 0.0, alone)
    return seen


def _shares(whole: Part, game: Game) -> Sequence[float | None]:
    """Return the shares of a game's parts; None where nothing is positive, and so none is known."""
    if whole.parent < 0:
        return game.coefficients.tolist()
    positive = np.maximum(game.coefficients, 0.0)
    if not positive.any():
        return [None] * len(positive)
    return (whole.share * (positive / positive.sum())).tolist()
