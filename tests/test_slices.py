"""An exam by a model of its slices: which slices, then where, as games of one pooled model."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import hshap
from hshap import (
    ArgumentError,
    Bags,
    Bisection,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    Explanation,
    Mean,
    References,
    Spots,
    Superpixels,
)
from hshap.baselines.per_slice import PerSlice
from hshap.partitions.by_slices import BySlices
from hshap.testing import shapley_by_permutations
from hshap.volumes import explain_slices, found_slices, slice_coefficients

LAYOUT = "CZYX"
GRID = (7, 12, 16)
LESIONS = (
    (1, slice(2, 5), slice(3, 6)),
    (2, slice(2, 5), slice(3, 6)),
    (5, slice(8, 9), slice(12, 14)),
)


def made_exam(seed=0):
    """Return noise with three bright boxes: two in neighbouring slices, one alone."""
    exam = np.random.default_rng(seed).random((1, *GRID)) * 0.4
    for z, rows, columns in LESIONS:
        exam[0, z, rows, columns] = 1.0
    return exam


def bright(slices):
    """Score slices by their bright pixels, and by their brightest; not linear on purpose."""
    flat = slices.reshape(len(slices), -1)
    return np.stack([np.tanh((flat > 0.8).sum(axis=1) / 4), np.sqrt(flat.max(axis=1))], axis=1)


def as_is(values):
    return values


def weighted(values):
    weights = np.exp(3 * values[:, :1])
    return np.concatenate([weights * values, weights], axis=1)


def divided(bags):
    return bags[:, :-1] / bags[:, -1:]


POOLS = {
    "max": Bags(as_is, as_is, pool="max"),
    "sum": Bags(as_is, as_is),
    "attention": Bags(weighted, divided),
}


def pooled(exams, bags, axis=0):
    """Score whole exams with the model of slices, by a loop that knows nothing of the library."""
    scores = []
    for exam in exams:
        outputs = bright(np.stack([exam.take(i, axis + 1) for i in range(exam.shape[axis + 1])]))
        made = bags.embed(outputs)
        bag = made.max(axis=0) if bags.pool == "max" else made.sum(axis=0)
        scores.append(bags.head(bag[None])[0])
    return np.array(scores)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_it_is_the_explanation_of_the_pooled_model(pool, axis):
    """The plain explainer, on whole exams, finds the same leaves, games and coefficients."""
    exam, bags, search = made_exam(), POOLS[pool], DepthFirst(tolerance=0.01)
    baseline, partition = Constant(0.2), Bisection(3)
    found = explain_slices(
        Explainer(bright, baseline, partition, search), exam, 0, axis=axis, bags=bags, layout=LAYOUT
    )
    plain = Explainer(
        lambda exams: pooled(exams, bags, axis),
        PerSlice(baseline, axis),
        BySlices(partition, axis),
        search,
    ).explain(exam, 0, layout=LAYOUT)
    assert found.leaves == plain.leaves
    assert len(found.games) == len(plain.games) > 5
    for mine, theirs in zip(found.games, plain.games, strict=True):
        assert mine.children == theirs.children
        np.testing.assert_allclose(mine.values, theirs.values, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.coefficients(), plain.coefficients(), atol=1e-12)


def painted(image, behind, kept):
    inside = np.zeros(image.shape[1:], bool)
    for region in kept:
        inside[region.index] = True
    return np.where(inside, image, behind)


@pytest.mark.parametrize("pool", POOLS)
def test_every_coefficient_is_the_one_of_brute_force(pool):
    """Paint each coalition of each game by hand, score it, and average over all orders."""
    exam, bags = made_exam(1), POOLS[pool]
    found = explain_slices(
        Explainer(bright, Constant(0.2), Dyadic(6), DepthFirst(tolerance=0.01)),
        exam,
        0,
        bags=bags,
        layout=LAYOUT,
    )
    blank = np.full_like(exam, 0.2)
    for game in found.games:
        count = len(game.children)
        coalitions = [
            [part for i, part in enumerate(game.children) if c >> i & 1] for c in range(2**count)
        ]
        values = pooled([painted(exam, blank, kept) for kept in coalitions], bags)[:, 0]
        np.testing.assert_allclose(game.values, values, atol=1e-12)
        np.testing.assert_allclose(game.coefficients, shapley_by_permutations(values), atol=1e-12)


def test_the_known_answer_of_a_made_exam():
    """With the OR rule the found slices and voxels are the planted ones, and no others."""
    exam = made_exam()
    explainer = Explainer(
        lambda slices: (slices > 0.8).any(axis=(1, 2, 3)).astype(float), Constant(0.0), Bisection(1)
    )
    found = explain_slices(explainer, exam, 0, layout=LAYOUT)
    truth = np.zeros(GRID, bool)
    for place in LESIONS:
        truth[place] = True
    assert np.array_equal(found.coefficients() > 0, truth)
    slices = found_slices(found)
    assert sorted(one.number for one in slices) == [1, 2, 5]
    for one in slices:
        assert np.array_equal(one.explanation.coefficients() > 0, truth[one.number])
        assert one.explanation.grid == GRID[1:]
        assert one.alone == 1.0
    assert np.flatnonzero(slice_coefficients(found)).tolist() == [1, 2, 5]
    assert sum(one.share for one in slices) == pytest.approx(found.score - found.baseline_score)
    boxes = {(box.start, box.stop) for box in found.boxes()}
    assert boxes == {((1, 2, 3), (3, 5, 6)), ((5, 8, 12), (6, 9, 14))}


def test_a_slice_is_scored_once_for_each_set_of_its_regions():
    exam, seen = made_exam(), []

    def counted(slices):
        seen.extend(one.tobytes() for one in slices)
        return bright(slices)

    evaluator = hshap.Batched(counted, check_batches=False)
    explainer = Explainer(evaluator, Constant(0.2), Bisection(3), DepthFirst(0.01))
    found = explain_slices(explainer, exam, 0, layout=LAYOUT)
    inside = sum(len(game.values) - 2 for game in found.games if game.region.shape[0] == 1)
    assert len(seen) == len(set(seen)) == found.provenance.full
    assert len(seen) == GRID[0] + 1 + inside


@pytest.mark.parametrize(
    "partition", [Superpixels(min_area=4), Spots(5), None], ids=["superpixels", "spots", "chosen"]
)
def test_partitions_that_follow_the_image_look_at_each_slice(partition):
    exam = made_exam()
    explainer = Explainer(bright, Constant(0.2), partition)
    found = explain_slices(explainer, exam, 0, layout=LAYOUT)
    by_slice = {one.number: one.explanation for one in found_slices(found)}
    assert {1, 2} <= set(by_slice)
    own = Explainer(
        bright, Constant(0.2), partition or Superpixels(), hshap.Share(0.2, of="finding")
    )
    alone = own.explain(exam[:, 1], 0)
    assert by_slice[1].leaves == alone.leaves


def test_baselines_of_slices_are_applied_to_each():
    mean = np.random.default_rng(2).random((4, 1, *GRID[1:])) * 0.3
    for baseline in (Mean(mean), References(mean), hshap.Blur(2.0), None):
        made = Explainer(bright, baseline, Bisection(4))
        both = explain_slices(made, made_exam(), [0, 1], layout=LAYOUT)
        assert [one.target for one in both] == [0, 1]
        assert {1, 2} <= {one.number for one in found_slices(both[0])}
        if isinstance(baseline, References):
            blank = [pooled([np.stack([m] * GRID[0], axis=1)], POOLS["max"])[0, 0] for m in mean]
            assert both[0].draws == 4
            assert both[0].baseline_score == pytest.approx(np.mean(blank))


def test_a_torch_model_and_a_spacing():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.AdaptiveMaxPool2d(1), torch.nn.Flatten()).eval()
    exam = made_exam().astype(np.float32)
    found = explain_slices(
        Explainer(net, Constant(0.2), Bisection(3)), exam, 0, layout=LAYOUT, spacing=(5.0, 1.0, 2.0)
    )
    assert found.settings.spacing == (5.0, 1.0, 2.0)
    assert found.settings["partition"]["partition"]["spacing"] == [1.0, 2.0]
    (first, *_) = found_slices(found)
    assert first.explanation.settings.spacing == (1.0, 2.0)
    assert found.plot.slices(exam).axes[1].get_title().startswith("slice")


def test_it_is_saved_exported_plotted_and_shown_as_any_volume(tmp_path):
    exam = made_exam()
    found = explain_slices(
        Explainer(bright, Constant(0.2), Bisection(3)), exam, 0, layout=LAYOUT, spacing=(4, 1, 1)
    )
    found.save(tmp_path / "exam.npz")
    again = Explanation.load(tmp_path / "exam.npz")
    assert [one[:4] for one in found_slices(again)] == [one[:4] for one in found_slices(found)]
    assert np.array_equal(again.coefficients(), found.coefficients())
    figure = again.plot.slices(exam, most=2)
    assert [axes.get_title() for axes in figure.axes[1:]] == ["slice 1", "slice 2"]
    tifffile = pytest.importorskip("tifffile")
    path = hshap.export.write_tiff(tmp_path / "exam.tiff", found.coefficients())
    assert np.array_equal(tifffile.imread(path), found.coefficients().astype(np.float32))
    page = tmp_path / "exam.html"
    hshap.export.page.write_page(page, [hshap.export.page.View("exam", exam, {"lesion": found})])
    assert page.stat().st_size > 10_000


@pytest.mark.frameworks
def test_it_is_a_dataarray_of_xarray():
    pytest.importorskip("xarray")
    explainer = Explainer(bright, Constant(0.2), Bisection(3))
    found = explain_slices(explainer, made_exam(), 0, layout=LAYOUT)
    assert hshap.export.dataarray(found).sizes == dict(zip("zyx", GRID, strict=True))


def test_a_budget_leaves_slices_together_and_the_exam_is_forgotten():
    exam = made_exam()
    held = weakref.ref(exam)
    search = DepthFirst(max_evaluations=8)
    explainer = Explainer(bright, Constant(0.2), Bisection(3), search)
    found = explain_slices(explainer, exam, 0, layout=LAYOUT)
    assert not found.complete
    assert max(one.slices for one in found_slices(found)) > 1
    del exam
    gc.collect()
    assert held() is None
    assert found.leaves


def test_mistakes_are_told():
    exam, explainer = made_exam(), Explainer(bright, Constant(0.2), Bisection(3))
    with pytest.raises(ArgumentError, match=r"axis=3 is no axis of slices .* pass 0 to 2"):
        explain_slices(explainer, exam, 0, axis=3, layout=LAYOUT)
    with pytest.raises(ArgumentError, match="bags is 'mean'; pass Bags"):
        explain_slices(explainer, exam, 0, bags="mean", layout=LAYOUT)
    with pytest.raises(ArgumentError, match="regions of Bisection, not of slices"):
        found_slices(explainer.explain(exam[:, 1], 0))
    moving = Explainer(
        bright, hshap.Conditional(hshap.Similar(np.zeros((4, 1, *GRID[1:])))), Bisection(3)
    )
    with pytest.raises(ArgumentError, match=r"depends on the shown pixels.*pass one such as"):
        explain_slices(moving, exam, 0, layout=LAYOUT)
