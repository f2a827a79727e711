"""Smoothed maps: the width is a quarter of the leaves' mean side, and the total stays."""

from __future__ import annotations

import numpy as np
import pytest

import hshap
from hshap._util.smoothing import gaussian

pytest.importorskip("higra")


def weighed(seed, grid):
    """A model without gradients: it adds up pixels by random weights, some of them below 0."""
    weights = np.random.default_rng(seed).normal(0.3, 1.0, grid)
    return lambda batch: (batch[:, 0] * weights).sum(axis=tuple(range(1, len(grid) + 1)))


def image(seed, grid):
    return np.random.default_rng(seed + 1).random((1, *grid))


def explained(seed=0, grid=(20, 24), **options):
    options.setdefault("baseline", hshap.Constant(0.0))
    model = hshap.Batched(weighed(seed, grid), check_batches=False)
    return hshap.Explainer(model, **options).explain(image(seed, grid), target=0)


@pytest.mark.parametrize("map_of", ["attribution", "alone"])
def test_auto_smooths_by_a_quarter_of_the_mean_side(map_of):
    found = explained(partition=hshap.Bisection(8), search=hshap.DepthFirst())
    sides = np.array([leaf.area**0.5 for leaf in found.leaves])
    shares = np.array([found.parts[leaf].share for leaf in found.leaves])
    mean = (sides * shares).sum() / shares.sum()
    width = max(1.0, 0.25 * mean)
    plain, smooth = getattr(found, map_of)(), getattr(found, map_of)(smooth="auto")
    assert smooth == pytest.approx(gaussian(plain, width, range(2)))
    assert smooth.sum() == pytest.approx(plain.sum())


def test_a_spin_is_smoothed_by_the_mean_width_of_its_members():
    explainer = hshap.Explainer(
        weighed(0, (20, 24)), baseline=hshap.Constant(0.0), partition=hshap.Bisection(8)
    )
    spin = hshap.cycle_spin(explainer, image(0, (20, 24)), target=0, shifts=[0, 2])
    width = np.mean([member.usual_width for member in spin.members])
    expected = gaussian(spin.attribution(), width, range(2))
    assert spin.attribution(smooth="auto") == pytest.approx(expected)


@pytest.mark.parametrize("smooth", ["wide", -1.0, None, float("nan"), True])
def test_another_width_is_refused_in_one_line(smooth):
    with pytest.raises(hshap.ArgumentError, match="smooth") as refused:
        explained().attribution(smooth=smooth)
    assert len(str(refused.value).splitlines()) == 1


def test_nothing_found_gives_an_empty_map():
    found = hshap.Explainer(lambda batch: np.zeros(len(batch))).explain(image(0, (9, 9)), target=0)
    assert not found.leaves
    assert found.usual_width == 0
    assert not found.attribution(smooth="auto").any()
