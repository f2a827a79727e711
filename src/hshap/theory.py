"""The theorems of the paper about h-Shap, as functions.

Here `n` counts features, `gamma` parts for each node, and `s` the features of a leaf; `n` and `s`
are powers of `gamma`, as in the paper.

>>> cost_bound(n=1024 * 1024, gamma=4, k=3)  # evaluations for 3 findings in a million pixels
480
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def expected_visited(n: int, gamma: int, rho: float) -> float:
    """Return the expected number of visited nodes if each feature matters with probability `rho`.

    Theorem 1, for tolerance 0 and leaves of a single feature. The root always counts.

    >>> expected_visited(n=64, gamma=2, rho=1.0)
    127.0
    """
    levels = _levels("n", n, gamma)
    miss = 1 - checks.number("rho", rho, minimum=0.0, maximum=1.0)
    # From the leaves up: a node that matters has gamma parts, each of which may matter or not.
    visited = 1.0
    for level in range(1, levels):
        visited = 1 + gamma * _matters(gamma ** (level - 1), gamma**level, miss) * visited
    return 1 + gamma * (1 - miss ** (n // gamma)) * visited if levels else visited


def cost_bound(n: int, gamma: int, k: int) -> int:
    """Return the most model evaluations that `k` relevant leaves can cost: 2^gamma k log_gamma n.

    With nothing relevant the root's game is still played, so `k = 0` costs one game; the paper's
    remark leaves this case out.

    >>> cost_bound(n=64, gamma=4, k=2)
    96
    """
    levels = _levels("n", n, gamma)
    k = checks.integer("k", k, minimum=0)
    return 2**gamma * (k * levels if k else 1)


def question_floor(n: int, k: int) -> float:
    """Return the yes-or-no questions that name `k` of `n` leaves: log2 of the number of choices.

    Under the paper's assumption, no search that shows parts of the image can do with fewer on
    average. `GroupTesting` comes near it.

    >>> round(question_floor(n=64 * 64, k=10), 1)
    98.2
    """
    n = checks.integer("n", n, minimum=1)
    k = checks.integer("k", k, minimum=0)
    if k > n:
        message = f"k={k} must not exceed n={n}; pass a smaller one"
        raise ArgumentError(message)
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return ways / math.log(2)


def similarity_bound(s: int, k: int, n: int) -> float:
    """Return the least cosine between the map and the exact Shapley values.

    Theorem 2: leaves of `s` features, `k` of `n` features relevant.

    >>> similarity_bound(s=4, k=1, n=64)
    0.5
    """
    n = checks.integer("n", n, minimum=1)
    s = checks.integer("s", s, minimum=1)
    k = checks.integer("k", k, minimum=1)
    if s > n or k > n:
        message = f"s={s} and k={k} must not exceed n={n}; pass smaller ones"
        raise ArgumentError(message)
    return max(1 / math.sqrt(s), math.sqrt(k / n))


def simulate_visited(
    n: int, gamma: int, rho: float, *, trials: int, seed: int
) -> NDArray[np.int64]:
    """Return the number of visited nodes in `trials` random images.

    >>> simulate_visited(n=64, gamma=2, rho=1.0, trials=2, seed=0)
    array([127, 127])
    """
    levels = _levels("n", n, gamma)
    rho = checks.number("rho", rho, minimum=0.0, maximum=1.0)
    trials = checks.integer("trials", trials, minimum=1)
    matters = np.random.default_rng(seed).random((trials, n)) < rho
    visited = np.ones(trials, dtype=np.int64)
    for level in range(levels):
        nodes = matters.reshape(trials, -1, gamma**level).any(axis=2)
        visited += nodes.sum(axis=1)
    return visited


def _matters(size: int, parent: int, miss: float) -> float:
    """Return the chance that a part of `size` features matters, given that its parent does."""
    # 1 - miss**m, without cancellation for small chances.
    chance = [-math.expm1(m * math.log(miss)) if miss > 0 else 1.0 for m in (size, parent)]
    return chance[0] / chance[1] if chance[1] else size / parent


def _levels(name: str, value: int, gamma: int) -> int:
    gamma = checks.integer("gamma", gamma, minimum=2)
    value = checks.integer(name, value, minimum=1)
    levels = round(math.log(value, gamma))
    if gamma**levels != value:
        message = f"{name}={value} is not a power of gamma={gamma}; pass {gamma**levels}"
        raise ArgumentError(message)
    return levels
