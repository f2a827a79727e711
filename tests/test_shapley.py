from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracle import by_definition, by_permutations

from hshap import ArgumentError, shapley

WORTHS = st.floats(-1e6, 1e6, allow_subnormal=False)


def games(most=5):
    return st.integers(1, most).flatmap(lambda p: arrays(np.float64, 2**p, elements=WORTHS))


@pytest.mark.parametrize("players", range(1, 8))
def test_agrees_with_all_permutations(players, rng):
    values = rng.normal(size=2**players)
    np.testing.assert_allclose(shapley(values), by_permutations(values), atol=1e-12)


@pytest.mark.parametrize("players", [1, 2, 4, 8])
def test_agrees_with_the_paper_s_equation(players, rng):
    values = rng.normal(size=2**players)
    worth = lambda kept: values[sum(1 << player for player in kept)]
    np.testing.assert_allclose(shapley(values), by_definition(worth, players), atol=1e-12)


@pytest.mark.parametrize("players", [2, 4, 8])
def test_agrees_with_shapiq(players, rng):
    shapiq = pytest.importorskip("shapiq")
    values = rng.normal(size=2**players)

    def worth(coalitions):
        return values[coalitions.astype(int) @ (1 << np.arange(players))]

    exact = shapiq.ExactComputer(n_players=players, game=worth)("SV", order=1)
    theirs = [exact[(player,)] for player in range(players)]
    np.testing.assert_allclose(shapley(values), theirs, atol=1e-10)


def test_agrees_with_the_worked_table_of_four_players():
    # Glove game: players 0 and 1 hold left gloves, 2 and 3 right ones; a pair is worth 1.
    values = [min((c & 3).bit_count(), (c >> 2).bit_count()) for c in range(16)]
    np.testing.assert_allclose(shapley(values), [0.5] * 4, atol=1e-15)


@given(games())
def test_efficiency(values):
    gain = values[-1] - values[0]
    assert np.isclose(shapley(values).sum(), gain, rtol=1e-9, atol=1e-6)


@given(games(), st.data())
def test_a_null_player_scores_exactly_zero(values, data):
    players = len(values).bit_length() - 1
    player = data.draw(st.integers(0, players - 1))
    every = np.arange(len(values))
    null = values[every & ~(1 << player)]
    assert shapley(null)[player] == 0.0


@given(games(), st.data())
def test_symmetric_players_score_alike(values, data):
    players = len(values).bit_length() - 1
    one, other = data.draw(st.tuples(*[st.integers(0, players - 1)] * 2))
    every = np.arange(len(values))
    bits = (every >> one & 1) + (every >> other & 1)
    # Only how many of the two are in decides, not which.
    lowest = every & ~(1 << one) & ~(1 << other)
    symmetric = values[lowest | np.where(bits > 0, 1 << one, 0)] + bits
    phi = shapley(symmetric)
    assert np.isclose(phi[one], phi[other], rtol=1e-9, atol=1e-6)


@given(st.integers(1, 5).flatmap(lambda p: arrays(np.float64, (2, 2**p), elements=WORTHS)), WORTHS)
def test_linearity(pair, factor):
    mixed = shapley(pair[0] + factor / 1e3 * pair[1])
    apart = shapley(pair[0]) + factor / 1e3 * shapley(pair[1])
    np.testing.assert_allclose(mixed, apart, rtol=1e-9, atol=1e-3)


@given(st.integers(1, 4).flatmap(lambda p: arrays(np.float64, (2, 3, 2**p), elements=WORTHS)))
def test_leading_axes_are_games_of_their_own_bit_for_bit(values):
    together = shapley(values)
    for place in np.ndindex(2, 3):
        assert np.array_equal(together[place], shapley(values[place]))


def test_twenty_players_are_no_problem():
    values = np.bitwise_count(np.arange(2**20)).astype(float)
    np.testing.assert_allclose(shapley(values), 1.0)


def test_values_are_left_alone(rng):
    values = rng.normal(size=16)
    before = values.copy()
    shapley(values)
    assert np.array_equal(values, before)


@pytest.mark.parametrize("bad", [[], [1.0], [1.0, 2.0, 3.0], 5.0, ["a", "b"], [1j, 2j]])
def test_what_is_no_game_is_refused(bad):
    with pytest.raises(ArgumentError, match="values"):
        shapley(bad)
