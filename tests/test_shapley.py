"""Shapley values of small games: all orders of arrival, the paper's equation, and the axioms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracle import by_definition, by_permutations

from hshap import ArgumentError, shapley

WORTHS = st.floats(-1e6, 1e6, allow_subnormal=False)
GAMES = st.integers(1, 5).flatmap(lambda p: arrays(np.float64, 2**p, elements=WORTHS))


@pytest.mark.parametrize("players", [1, 2, 3, 5, 7])
def test_agrees_with_all_permutations(players, rng):
    values = rng.normal(size=2**players)
    np.testing.assert_allclose(shapley(values), by_permutations(values), atol=1e-12)


@pytest.mark.parametrize("players", [1, 4, 8])
def test_agrees_with_the_papers_equation(players, rng):
    values = rng.normal(size=2**players)
    worth = lambda kept: values[sum(1 << player for player in kept)]
    np.testing.assert_allclose(shapley(values), by_definition(worth, players), atol=1e-12)


@pytest.mark.frameworks
@pytest.mark.parametrize("players", [2, 8])
def test_agrees_with_shapiq(players, rng):
    shapiq = pytest.importorskip("shapiq")
    values = rng.normal(size=2**players)

    def worth(coalitions):
        return values[coalitions.astype(int) @ (1 << np.arange(players))]

    exact = shapiq.ExactComputer(n_players=players, game=worth)("SV", order=1)
    theirs = [exact[(player,)] for player in range(players)]
    np.testing.assert_allclose(shapley(values), theirs, atol=1e-10)


@given(GAMES, st.data())
def test_the_axioms_hold(values, data):
    """Efficiency, null players exactly, and symmetry: sums of a drawn game and its mirrors."""
    players = len(values).bit_length() - 1
    one, other = data.draw(st.tuples(*[st.integers(0, players - 1)] * 2))
    every = np.arange(len(values))
    assert np.isclose(shapley(values).sum(), values[-1] - values[0], rtol=1e-9, atol=1e-6)
    without = values[every & ~(1 << one)]
    assert shapley(without)[one] == 0.0  # exactly: subtract first, then weight
    swapped = every & ~(1 << one | 1 << other)
    swapped |= (every >> one & 1) << other | (every >> other & 1) << one
    phi = shapley(values + values[swapped])
    assert np.isclose(phi[one], phi[other], rtol=1e-9, atol=1e-6)


@given(st.integers(1, 4).flatmap(lambda p: arrays(np.float64, (2, 3, 2**p), elements=WORTHS)))
def test_leading_axes_are_further_games(values):
    """Bit for bit, and a weighted sum of games has the weighted sum of their values."""
    together = shapley(values)
    for place in np.ndindex(2, 3):
        assert np.array_equal(together[place], shapley(values[place]))
    mixed = shapley(values[0] - 3 * values[1])
    np.testing.assert_allclose(mixed, together[0] - 3 * together[1], rtol=1e-9, atol=1e-3)


def test_twenty_players_are_no_problem():
    values = np.bitwise_count(np.arange(2**20)).astype(float)
    values.flags.writeable = False
    np.testing.assert_allclose(shapley(values), 1.0)


@pytest.mark.parametrize("bad", [[], [1.0], [1.0, 2.0, 3.0], 5.0, ["a", "b"], [1j, 2j]])
def test_what_is_no_game_is_refused(bad):
    with pytest.raises(ArgumentError, match="values"):
        shapley(bad)
