"""Significance: p-values and e-values are valid, error rates hold, and the cost is bounded."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

import hshap
from hshap import ArgumentError, Bisection, Conditional, Explainer, References
from hshap.explanation.guarantees.significance import e_values
from hshap.guarantees import significance


def all_signs(rounds):
    return np.array(list(product((-1.0, 1.0), repeat=rounds)))


@pytest.mark.parametrize("sizes", [np.ones(9), np.array([3.0, 0.1, 0.0, 1.0, 7.0, 2.0, 0.5])])
def test_the_expected_e_value_is_one(sizes):
    """Over all signs, whenever the rounds end."""
    paths = np.array([e_values(signs * sizes) for signs in all_signs(len(sizes))])
    assert paths.mean(axis=0) == pytest.approx(np.ones(len(sizes)))
    for limit in (1.2, 2.0, 5.0):
        stops = np.where((paths >= limit).any(1), (paths >= limit).argmax(1), len(sizes) - 1)
        assert paths[np.arange(len(paths)), stops].mean() == pytest.approx(1.0)
    # The mean of (1 + stake) ** n over stakes from 0 to 1 is (2 ** (n + 1) - 1) / (n + 1).
    wins = np.arange(1, 31)
    assert e_values(np.ones(30)) == pytest.approx((2.0 ** (wins + 1) - 1) / (wins + 1))
    assert np.isfinite(e_values(np.ones(5000))[-1])


# Regions, models and samplers with a known truth.

SIDE = 8


def reads(cells, weight=1.0):
    """Return a model that sums pixels of some of the 16 cells of 2 x 2 pixels, and its mask."""
    mask = np.zeros((1, SIDE, SIDE))
    for cell in cells:
        row, column = divmod(int(cell), 4)
        mask[0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = weight / 4
    return (lambda batch: (batch * mask).sum(axis=(1, 2, 3))), mask[0] > 0


def independent(image, visible, draws, rng):
    return rng.normal(size=(draws, *image.shape))


def correlated(image, visible, draws, rng):
    """Draw images whose pixels share a common part, whichever pixels are shown."""
    shared = rng.normal(size=(draws, *(1,) * image.ndim))
    return np.sqrt(0.7) * shared + np.sqrt(0.3) * rng.normal(size=(draws, *image.shape))


def with_tests(seed, cells, sampler, strength=0.0, **options):
    rng = np.random.default_rng(seed)
    model, truth = reads(cells)
    image = rng.normal(size=(1, SIDE, SIDE)) + strength * truth
    explainer = Explainer(
        model, baseline=Conditional(sampler, draws=2, seed=seed), partition=Bisection(min_size=2)
    )
    found = explainer.explain(image, target=0)
    return explainer.test(found, image, seed=seed, **options), truth


def is_false(row, truth):
    return not truth[row.region.index].any()


@pytest.mark.parametrize("sampler", [independent, correlated])
@pytest.mark.parametrize("error", ["family", "discovery"])
def test_error_rates_hold_on_simulated_images(sampler, error):
    shares, alpha, images = [], 0.2, 20
    for seed in range(images):
        found, truth = with_tests(
            seed, (seed % 16, 5), sampler, 3.0, error=error, alpha=alpha, rounds=24
        )
        rows = [row for row in significance(found, error=error).regions if row.adjusted <= alpha]
        false = [is_false(row, truth) for row in rows]
        shares.append(np.mean(false) if error == "discovery" and rows else float(any(false)))
    assert np.mean(shares) <= alpha + 2 * np.sqrt(alpha * (1 - alpha) / images)
    assert rows


def bright_dots(count=3):
    """Return an explainer with random references, and an image with a few bright pixels."""
    rng = np.random.default_rng(0)
    references = rng.uniform(0, 0.3, (30, 1, 16, 16))
    image = rng.uniform(0, 0.3, (1, 16, 16))
    for place in ((2, 3), (12, 13), (7, 9))[:count]:
        image[0, place[0], place[1]] = 2.0
    explainer = Explainer(
        lambda batch: np.clip(batch - 1.0, 0, None).sum(axis=(1, 2, 3)),
        baseline=References(references, draws=8),
        partition=Bisection(min_size=1),
    )
    return explainer, image


def test_clear_regions_survive():
    explainer, image = bright_dots()
    explanation = explainer.explain(image, target=0)
    found = explainer.test(explanation, image)
    boxes = significance(found).boxes(0.05)
    assert [box[:3] for box in boxes] == explanation.boxes()
    assert all(0 < box.adjusted <= 0.05 for box in boxes)
    assert found.boxes() == explanation.boxes()
    assert significance(found).boxes(1e-6) == []


def test_the_cost_of_a_test_is_bounded():
    explainer, image = bright_dots()
    explanation = explainer.explain(image, target=0)
    found = explainer.test(explanation, image)
    assert found.tests.evaluations <= 4 * explanation.evaluations
    clear = [row for row in significance(found).regions if row.adjusted <= 0.05]
    assert clear
    assert all(row.rounds <= 32 for row in clear)
    found, _ = with_tests(3, (0, 5), independent)  # nothing is clear here
    assert found.tests.evaluations <= 4 * found.evaluations
    limited, _ = with_tests(3, (0, 5), independent, max_evaluations=20)
    assert limited.tests.evaluations <= 20


def test_draws_that_chose_leaves_are_not_reused():
    # Leaves of noise alone: their coefficients are the largest of many, their p-values are not.
    rows = [
        row.p
        for seed in range(25)
        for row in significance(
            with_tests(seed, (0,), independent, error="discovery", rounds=12)[0],
            error="discovery",
        ).regions
        if is_false(row, reads((0,))[1])
    ]
    assert len(rows) > 30
    assert stats.kstest(rows, "uniform", alternative="greater").pvalue > 1e-3


def test_continued_tests_equal_one_at_once():
    short, _ = with_tests(1, (0,), independent, 1.0, rounds=8, alpha=1e-9, error="discovery")
    rng = np.random.default_rng(1)
    model, truth = reads((0,))
    image = rng.normal(size=(1, SIDE, SIDE)) + 1.0 * truth
    explainer = Explainer(
        model, baseline=Conditional(independent, draws=2, seed=1), partition=Bisection(min_size=2)
    )
    options = {"seed": 1, "alpha": 1e-9, "error": "discovery", "rounds": 16}
    continued = explainer.test(short, image, max_evaluations=4000, **options)
    at_once = explainer.test(replace(short, tests=None), image, max_evaluations=8000, **options)
    assert continued.tests.differences == at_once.tests.differences
    assert continued.tests.evaluations > short.tests.evaluations


def test_regions_wait_for_larger_ones():
    for seed in range(10):
        rows = significance(with_tests(seed, (0, 5), independent, 0.8)[0]).regions
        for row in rows:
            if row.parent >= 0:
                assert row.adjusted >= rows[row.parent].adjusted
                assert row.rounds == 0 or rows[row.parent].adjusted < 0.5


def test_tests_survive_saving_and_damage_is_refused(tmp_path):
    explainer, image = bright_dots()
    found = explainer.test(explainer.explain(image, target=0), image)
    found.save(tmp_path / "tested.npz")
    loaded = hshap.Explanation.load(tmp_path / "tested.npz")
    assert loaded.tests.differences == dict(found.tests.differences)
    assert repr(significance(loaded)) == repr(significance(found))
    assert significance(loaded).boxes(0.05) == significance(found).boxes(0.05)
    continued = explainer.test(loaded, image, alpha=0.001)
    assert continued.tests.evaluations > loaded.tests.evaluations
    bad = replace(found.tests, differences={found.leaves[0]: ("x",)})
    replace(found, tests=bad).save(tmp_path / "bad.npz")
    with pytest.raises(hshap.FormatError, match="damaged"):
        hshap.Explanation.load(tmp_path / "bad.npz")


def test_without_findings_nothing_is_tested():
    explainer, image = bright_dots(count=0)
    found = explainer.test(explainer.explain(image, target=0), image)
    assert significance(found).regions == ()
    assert significance(found).boxes(0.05) == []
    assert found.tests.evaluations == 0
    for text in (repr(significance(found)), significance(found).null):
        assert "about the model" in text
        assert "not about the object" in text


def test_mistakes_get_one_line():
    explainer, image = bright_dots()
    explanation = explainer.explain(image, target=0)
    done = explainer.test(explanation, image)
    by_callable = explainer.explain(image, target=lambda outputs: outputs[:, 0])
    with pytest.raises(ArgumentError, match=r"explainer\.test"):
        significance(explanation)
    for given, options, message in (
        (explanation, {"baseline": hshap.Constant(0.0)}, "draws nothing anew; pass baseline=Ref"),
        (explanation, {"error": "fdr"}, "error is 'fdr'; pass one of 'family', 'discovery'"),
        (explanation, {"alpha": 2.0}, "alpha must be a finite number"),
        (explanation, {"rounds": 0}, "rounds must be at least 1"),
        (explanation, {"target": 1}, "target is 1, but the explanation is of 0"),
        (explanation, {"max_evaluations": 1}, "max_evaluations must be at least 2"),
        (explanation, {"image": image[:, :8]}, "pass the image that was explained"),
        (done, {"seed": 1}, "another sampler or seed"),
        (by_callable, {}, "pass target= with the callable"),
    ):
        with pytest.raises(ArgumentError, match=message):
            explainer.test(given, **{"image": image, **options})
