"""Maps without gradients: leaves nearby guide them, sums over leaves are exact, and smoothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hshap
from hshap._util.smoothing import enlarged, gaussian
from hshap.explanation.nearby import levels_nearby, smoothing_width

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


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([(40,), (15, 18), (7, 8, 9)]), st.integers(8, 60))
def test_sums_over_leaves_are_exact(seed, grid, budget):
    found = explained(seed, grid, search=hshap.DepthFirst(max_evaluations=budget))
    heat, alone = found.attribution(), found.alone()
    for leaf in found.leaves:
        assert heat[leaf.index].sum() == pytest.approx(found.parts[leaf].share, abs=1e-9)
        assert alone[leaf.index].sum() == pytest.approx(found.parts[leaf].alone, abs=1e-9)
        inside = heat[leaf.index] * np.sign(found.parts[leaf].share)
        assert (inside >= 0).all()
    assert (heat[found.saliency() == 0] == 0).all()


def test_the_default_call_follows_the_leaves_nearby_and_says_so():
    found = explained()
    assert found.settings.nearby
    assert "maps inside regions follow the regions nearby" in found.settings.chosen
    assert not np.allclose(found.attribution(), found.attribution(even=True))


@pytest.mark.parametrize(
    "options", [{"evidence": "even"}, {"partition": hshap.Bisection(4)}], ids=["even", "given"]
)
def test_maps_are_even_if_asked_for_or_if_the_partition_is_given(options):
    found = explained(**options)
    assert not found.settings.nearby
    assert np.array_equal(found.attribution(), found.attribution(even=True))


def test_a_given_partition_follows_the_leaves_nearby_on_request():
    assert explained(partition=hshap.Bisection(4), evidence="auto").settings.nearby


def test_a_leaf_is_stronger_next_to_a_strong_one():
    """Two leaves, the right one without much score: its left side is next to the strong one."""

    def model(batch):
        return batch[:, 0, :, :8].sum(axis=(1, 2)) + 0.01 * batch[:, 0, :, 8:].sum(axis=(1, 2))

    found = hshap.Explainer(
        model,
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection((16, 8)),
        evidence="auto",
    ).explain(np.ones((1, 16, 16)), target=0)
    row = found.attribution()[8]
    assert (np.diff(row[8:]) <= 0).all()
    assert row[8] > 1.1 * row[15]
    assert row[:8].sum() > row[8:].sum()


def test_a_saved_explanation_gives_the_same_maps(tmp_path):
    found = explained()
    found.save(tmp_path / "found.npz")
    loaded = hshap.Explanation.load(tmp_path / "found.npz")
    assert np.array_equal(loaded.attribution(), found.attribution())
    assert np.array_equal(loaded.attribution(smooth="auto"), found.attribution(smooth="auto"))


def test_a_reading_follows_its_own_leaves():
    found = explained(partition=hshap.Bisection(2), evidence="auto")
    coarse = found.at(min_size=6)
    heat = coarse.attribution()
    assert len(coarse.leaves) < len(found.leaves)
    for leaf in coarse.leaves:
        assert heat[leaf.index].sum() == pytest.approx(coarse.parts[leaf].share, abs=1e-9)


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


def test_a_spin_ranks_by_the_mean_of_maps_that_are_each_smoothed_by_their_own_width():
    shape, tree = (100, 120), hshap.Superpixels(200)
    explainer = hshap.Explainer(
        weighed(0, shape),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(8),
        evidence="auto",
    )
    spin = hshap.cycle_spin(
        explainer, image(0, shape), target=0, partitions=[hshap.Bisection(5), tree]
    )
    widths = [member.usual_width for member in spin.members]
    assert widths[0] != pytest.approx(widths[1])
    maps = [
        gaussian(member.attribution(), width, range(2))
        for member, width in zip(spin.members, widths, strict=True)
    ]
    assert spin.ranking() == pytest.approx(np.mean(maps, axis=0))
    assert spin.ranking().sum() == pytest.approx(spin.attribution().sum())


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


def test_the_guide_is_the_smoothed_map_also_when_it_is_made_on_a_coarser_copy():
    heat = np.zeros((90, 110))
    heat[30:60, 20:50] = 1.0
    heat[40:50, 70:80] = 3.0
    for width in (1.0, 3.0, 7.5, 12.0):
        exact = gaussian(heat, width, range(2))
        found = (levels_nearby(heat, width) / 255.0) ** 2
        assert found == pytest.approx(exact / exact.max(), abs=0.06)


def test_no_guide_without_a_positive_share_or_for_large_images():
    assert levels_nearby(np.zeros((4, 4)), 1.0) is None
    assert levels_nearby(-np.ones((4, 4)), 1.0) is None
    assert levels_nearby(np.broadcast_to(1.0, (2**11, 2**11)), 1.0) is None


def test_without_shares_all_leaves_count():
    leaves = [hshap.Box((0, 0), (8, 8)), hshap.Box((8, 8), (24, 24))]
    grid = (400, 400)
    assert smoothing_width(leaves, [0.0, -1.0], grid) == 3.0
    assert smoothing_width(leaves[:1], [1.0], grid) == 2.0
    assert smoothing_width([hshap.Box((0, 0), (1, 1))], [1.0], grid) == 1.0


def test_without_evidence_a_ranking_is_the_smoothed_map():
    for found in (explained(), explained(evidence="even")):
        assert np.array_equal(found.ranking(), found.attribution(smooth="auto"))


def smoothed_whole(heat, width):
    """The same guide by the whole image: no part of it is left out."""
    step = max(1, int(width / 2))
    coarse = np.pad(heat, [(0, -side % step) for side in heat.shape], mode="edge")
    for axis in range(heat.ndim):
        blocks = np.split(coarse, coarse.shape[axis] // step, axis)
        coarse = np.stack([block.mean(axis) for block in blocks], axis)
    sigma = width / step
    radius = int(4 * sigma + 0.5)
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    for axis in range(heat.ndim):
        padding = [(radius, radius) if a == axis else (0, 0) for a in range(heat.ndim)]
        padded = np.pad(coarse, padding, mode="symmetric")
        coarse = np.apply_along_axis(np.convolve, axis, padded, kernel / kernel.sum(), "valid")
    fine = enlarged(coarse, tuple(side * step for side in coarse.shape))
    return fine[tuple(map(slice, heat.shape))]


@pytest.mark.parametrize("seed", range(30))
def test_the_guide_around_leaves_is_that_of_the_whole_image(seed):
    rng = np.random.default_rng(seed)
    heat = np.zeros(tuple(rng.integers(1, 90, rng.integers(1, 4) if seed % 5 else 2)))
    for _ in range(rng.integers(1, 4)):
        start = [rng.integers(0, side) for side in heat.shape]
        heat[tuple(slice(a, a + rng.integers(1, 12)) for a in start)] = rng.uniform(-0.2, 1)
    if not (heat > 0).any():
        return
    width = rng.uniform(1, 15)
    expected = smoothed_whole(np.maximum(heat, 0), width)
    found = levels_nearby(heat, width).astype(int)
    assert np.abs(found - 255 * np.sqrt(expected / expected.max())).max() < 0.5 + 1e-6
