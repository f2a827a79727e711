"""Contexts: what else of the image is shown while the parts of a region play.

Contexts are nested along the tree. In each of them a part of a region sees what its whole saw, and
some of its siblings besides:

- 0, *alone*: none of them. This is the paper's game, and says what suffices.
- 1, *missing*: all of them. The game says what cannot be missing.
- 2 and more, *mixed*: those before the part in a random order; the odd one of a pair shows those
  after it. This is how the Owen value averages over the rest of the image, so the mean of these
  contexts is an estimate of it without bias.

So the scores of a region with and without all of its parts are known from the game of the region
around it, and a game of two parts costs two evaluations in each context.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from hshap.partitions.protocol import Coalition

ALONE, MISSING = 0, 1

SECOND_PAIR = 50
"""Evaluations from which on there is a mixed pair, and a further one at each fourfold of it."""


class Sides(NamedTuple):
    """The coalitions of a context without a region and with it, and the scores of both."""

    hidden: Coalition
    shown: Coalition
    low: float
    high: float


def context_word(number: int) -> str:
    """Return the name of a context.

    >>> [context_word(number) for number in range(4)]
    ['alone', 'missing', 'mixed', 'mixed']
    """
    return ("alone", "missing")[number] if number <= MISSING else "mixed"


def context_count(spent: int) -> int:
    """Return the number of contexts after so many evaluations.

    >>> [context_count(spent) for spent in (20, 50, 199, 200, 1000)]
    [2, 4, 4, 6, 8]
    """
    count, at = 2, SECOND_PAIR
    while spent >= at:
        count, at = count + 2, 4 * at
    return count


def siblings_shown(number: int, parts: int, seed: tuple[int, ...]) -> list[int]:
    """Return the siblings that a context shows beside each of so many parts, as bits.

    >>> siblings_shown(0, 2, ()), siblings_shown(1, 3, ())
    ([0, 0], [6, 5, 3])
    """
    every = (1 << parts) - 1
    if number <= MISSING:
        return [(every ^ 1 << part) * number for part in range(parts)]
    order = np.random.default_rng([number // 2, *seed]).permutation(parts)
    ranks = np.argsort(order)
    before = [int(sum(1 << other for other in order[: ranks[part]])) for part in range(parts)]
    return before if number % 2 == 0 else [every ^ b ^ 1 << i for i, b in enumerate(before)]
