"""Smoothed maps: "auto" softens each region by its own side; totals and ignored parts stay."""

from __future__ import annotations

import numpy as np
import pytest

import hshap

pytest.importorskip("higra")

BUDGETS = (12, 40, 200)


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


@pytest.mark.parametrize("grid", [(40,), (20, 24), (9, 10, 12)])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("context", [None, "alone", "missing"])
def test_auto_keeps_the_total(grid, budget, context):
    found = explained(grid=grid, partition=hshap.Bisection(1), search=hshap.BestFirst(budget))
    even = found.attribution(smooth=0, context=context)
    soft = found.attribution(smooth="auto", context=context)
    assert soft.sum() == pytest.approx(even.sum())


def test_auto_is_the_default_of_games_in_several_contexts_only():
    partition = hshap.Bisection(4)
    several = explained(partition=partition, search=hshap.BestFirst(40))
    assert np.array_equal(several.attribution(), several.attribution(smooth="auto"))
    assert not np.array_equal(several.attribution(), several.attribution(smooth=0))
    paper = explained(partition=partition, search=hshap.DepthFirst())
    assert np.array_equal(paper.attribution(), paper.attribution(smooth=0))
    softened = paper.attribution(smooth="auto")
    assert not np.array_equal(softened, paper.attribution())
    assert softened.sum() == pytest.approx(paper.attribution().sum())


def spread(heat):
    """The variance of where the weight of a map lies, along its rows."""
    rows = np.arange(len(heat))
    shares = heat.sum(axis=1) / heat.sum()
    return (shares * (rows - (shares * rows).sum()) ** 2).sum()


def test_auto_softens_a_larger_region_more():
    """One quarter of the rows and columns has almost all weight, and is split more and more."""
    weights = np.full((128, 128), 1e-6)
    weights[48, 48] = 1.0
    model = lambda batch: (batch[:, 0] * weights).sum((1, 2))
    widened = []
    for budget in (20, 40, 60, 80):
        found = hshap.Explainer(
            model, hshap.Constant(0.0), hshap.Bisection(1), hshap.BestFirst(budget, contexts=2)
        ).explain(np.ones((1, 128, 128)), target=0)
        widened.append(spread(found.attribution()) - spread(found.attribution(smooth=0)))
    assert min(widened[:-1]) > 0
    assert widened == sorted(widened, reverse=True)


def test_auto_leaves_a_score_alone_that_is_divided_to_the_end():
    weights = np.random.default_rng(0).random((4, 4))
    found = hshap.Explainer(
        lambda batch: (batch[:, 0] * weights).sum((1, 2)),
        hshap.Constant(0.0),
        hshap.Bisection(1),
        hshap.BestFirst(1000),
    ).explain(np.ones((1, 4, 4)), target=0)
    assert not found.unfinished
    assert found.attribution() == pytest.approx(weights)


@pytest.mark.parametrize("budget", BUDGETS)
def test_auto_stays_out_of_ignored_parts(budget):
    weights = np.random.default_rng(0).random((32, 32))
    weights[:, 16:] = 0.0
    found = hshap.Explainer(
        lambda batch: (batch[:, 0] * weights).sum((1, 2)),
        hshap.Constant(0.0),
        hshap.Bisection(1),
        hshap.BestFirst(budget),
    ).explain(np.ones((1, 32, 32)), target=0)
    assert found.ignored[:, 16:].all()
    heat = found.attribution(smooth="auto")
    assert not heat[found.ignored].any()
    assert heat.sum() == pytest.approx(found.score - found.baseline_score)


def test_a_spin_shows_the_mean_of_its_members_maps():
    explainer = hshap.Explainer(
        weighed(0, (20, 24)), baseline=hshap.Constant(0.0), partition=hshap.Bisection(8)
    )
    spin = hshap.cycle_spin(explainer, image(0, (20, 24)), target=0, shifts=[0, 2])
    for smooth in ("auto", 2.0, None):
        expected = np.mean([one.attribution(smooth=smooth) for one in spin.members], axis=0)
        assert spin.attribution(smooth=smooth) == pytest.approx(expected)


@pytest.mark.parametrize("smooth", ["wide", -1.0, float("nan"), True])
def test_another_width_is_refused_in_one_line(smooth):
    with pytest.raises(hshap.ArgumentError, match="smooth") as refused:
        explained().attribution(smooth=smooth)
    assert len(str(refused.value).splitlines()) == 1


def test_nothing_found_gives_an_empty_map():
    found = hshap.Explainer(lambda batch: np.zeros(len(batch))).explain(image(0, (9, 9)), target=0)
    assert not found.leaves
    assert not found.attribution().any()
    assert not found.attribution(smooth="auto").any()
