"""Evidence: a guide to the pixels inside leaves, which leaves every total as it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hshap
from hshap.evaluators.evidence import MOST_COPIES, MOST_PIXELS, weights
from hshap.games.targets import slope

torch = pytest.importorskip("torch")
nn = torch.nn


def network(seed=0, *, channels=2, inplace=False):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1),
        nn.ReLU(inplace=inplace),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3, padding=1),
        nn.ReLU(inplace=inplace),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(5, 3),
    ).eval()


def images(seed, shape=(2, 12, 10)):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def explained(model, image, evidence="auto", partition=None, target=1):
    return hshap.Explainer(
        model,
        baseline=hshap.Constant(0.0),
        partition=partition or hshap.Bisection(3),
        evidence=evidence,
    ).explain(image, target=target)


def sums(explanation, heat):
    return np.array([heat[leaf.index].sum() for leaf in explanation.leaves])


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    evidence=st.sampled_from(["auto", None, "own", "one pixel"]),
    partition=st.sampled_from(
        [
            hshap.Bisection(1),
            hshap.Dyadic(4),
            hshap.Bisection("auto"),
            hshap.Spots(3),
            hshap.Spots("auto"),
        ]
    ),
)
def test_the_sum_over_each_leaf_is_its_share_whatever_the_spread(seed, evidence, partition):
    rng = np.random.default_rng(seed)
    one_pixel = np.zeros((12, 10))
    one_pixel[tuple(rng.integers((12, 10)))] = 1e-200
    if isinstance(partition, hshap.Spots):
        pytest.importorskip("scipy")
    given_map = {"own": rng.random((12, 10)) ** 9, "one pixel": one_pixel}.get(evidence)
    choice = evidence if given_map is None else lambda _: given_map
    found = explained(network(seed), images(seed), choice, partition)
    shares = [found.parts[leaf].share for leaf in found.leaves]
    alone = [found.parts[leaf].alone for leaf in found.leaves]
    assert np.allclose(sums(found, found.attribution()), shares, rtol=0, atol=1e-9)
    assert np.allclose(sums(found, found.alone()), alone, rtol=0, atol=1e-9)
    assert found.attribution().sum() + found.residual == pytest.approx(
        found.score - found.baseline_score, abs=1e-9
    )


def test_no_pixel_of_a_leaf_is_left_empty():
    found = explained(network(), images(3))
    assert found.evidence is not None
    assert found.settings["evidence"] == "gradients"
    for leaf in found.leaves:
        assert (np.abs(found.attribution()[leaf.index]) > 0).all()


def test_a_reading_counts_the_passes_of_the_evidence_too():
    by_model, evenly = (explained(network(), images(5), choice) for choice in ("auto", None))
    for size in (3, 6, 12):
        guided, even = by_model.at(min_size=size), evenly.at(min_size=size)
        assert guided.evaluations == even.evaluations + MOST_COPIES
        assert guided.at(min_size=12).evaluations == by_model.at(min_size=12).evaluations


def test_leaves_and_games_do_not_depend_on_it_and_its_passes_are_counted():
    by_model, evenly = (explained(network(), images(5), choice) for choice in ("auto", None))
    assert by_model.leaves == evenly.leaves
    assert by_model.evaluations == evenly.evaluations + MOST_COPIES
    assert evenly.evidence is None
    assert np.array_equal(by_model.attribution(even=True), evenly.attribution())
    assert not np.array_equal(by_model.attribution(), evenly.attribution())


def test_the_default_call_is_guided_and_stays_within_its_budget():
    class Counted(nn.Module):
        inputs = 0

        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, batch):
            self.inputs += len(batch)
            return self.inner(batch)

    for most in (4, 5, 6, 10, 20, 50):
        model = Counted().eval()
        found = hshap.Explainer(
            hshap.Batched(model, check_batches=False),
            baseline=hshap.Constant(0.0),
            search=hshap.DepthFirst(max_evaluations=most),
        ).explain(images(7), target=1)
        assert model.inputs == found.evaluations <= most
        told = "none: the budget has no room for it" if most == 4 else "gradients"
        assert found.settings["evidence"] == told
        assert found.settings["partition"]["min_area"] == (25 if most == 4 else "uncut")


def test_a_given_partition_has_even_maps_unless_evidence_is_asked_for():
    for choice, guided in ((None, False), ("even", False), ("auto", True)):
        assert (explained(network(), images(3), choice).evidence is not None) == guided
    even = hshap.Explainer(network(), hshap.Constant(0.0), evidence="even")
    assert even.explain(images(3), target=1).evidence is None


def pass_through(grid, weight):
    """A network whose evidence is known: the score is a weighted sum of the pixels."""

    class Sum(nn.Module):
        def forward(self, batch):
            return (batch * torch.as_tensor(weight)).sum(tuple(range(1, batch.ndim)))[:, None]

    assert weight.shape[1:] == grid
    return Sum().eval()


@pytest.mark.parametrize("grid", [(40,), (20, 24), (8, 10, 12)])
def test_maps_of_copies_are_brought_back_to_their_places(grid):
    image = np.zeros((1, *grid), np.float32)
    spot = tuple(side // 4 for side in grid)
    image[(0, *spot)] = 1.0
    model = pass_through(grid, np.ones((1, *grid), np.float32))
    found = explained(model, image, partition=hshap.Bisection(max(grid)), target=0)
    peak = np.unravel_index(found.evidence.argmax(), grid)
    assert max(abs(a - b) for a, b in zip(peak, spot, strict=True)) <= 1


def test_a_copy_that_the_model_misses_does_not_count():
    grid = (20, 20)
    image = np.zeros((1, *grid), np.float32)
    image[0, 3, 3] = image[0, 10, 10] = 1.0
    weight = np.full((1, *grid), -0.2, np.float32)
    weight[0, :8, :8] = 1.0  # one corner speaks for the class: mirrored copies have it elsewhere
    found = explained(pass_through(grid, weight), image, partition=hshap.Bisection(20), target=0)
    assert found.evidence[3, 3] == 255
    # As in the image alone; it would be 228 if the three other copies counted.
    assert found.evidence[10, 10] == pytest.approx(255 * 0.2**0.5, abs=2)


@pytest.mark.parametrize("inplace", [False, True])
def test_the_module_and_the_image_are_left_as_they_were(inplace):
    model, image = network(inplace=inplace), images(6)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kept = image.copy()
    assert explained(model, image).evidence is not None
    assert all(not part._forward_hooks for part in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert np.array_equal(image, kept)


class Cut(nn.Module):
    """A network without gradients."""

    def forward(self, batch):
        return batch.detach().amax((1, 2, 3))[:, None] * torch.ones(2)


class Failing(nn.Module):
    """A network that works without gradients only."""

    def forward(self, batch):
        if torch.is_grad_enabled():
            raise RuntimeError("no gradients here")
        return batch.amax((1, 2, 3))[:, None] * torch.ones(2)


def test_models_without_gradients_follow_the_leaves_nearby():
    found = explained(lambda batch: batch.max(axis=(2, 3)), images(1))
    assert found.evidence is None
    assert found.settings["evidence"] == "none: the model gives no gradients"
    assert found.settings.nearby


@pytest.mark.parametrize("model", [Cut().eval(), Failing().eval()])
def test_a_backward_pass_that_fails_stays_told(model):
    found = explained(model, images(1))
    assert found.evidence is None
    assert found.settings["evidence"].startswith("none: ")
    assert found.settings.nearby


def test_a_large_image_takes_no_backward_pass():
    side = int(MOST_PIXELS**0.5) + 1
    image = np.zeros((1, side, side), np.float32)
    image[0, 5, 5] = 1

    class Bright(nn.Module):
        def forward(self, batch):
            assert not torch.is_grad_enabled()
            return batch.amax((2, 3))

    assert (
        explained(Bright().eval(), image, partition=hshap.Bisection(side), target=0).evidence
        is None
    )


def test_it_finds_the_object_in_a_large_leaf():
    samples = hshap.demo.bundled()
    image = samples["images"][0].astype(np.float32) / np.float32(255)
    found = hshap.Explainer(
        hshap.demo.load(),
        baseline=hshap.OwnColour(),
        partition=hshap.Bisection(50),
        evidence="auto",
    ).explain(image, target=1)
    truth = samples["truths"][0]
    guided, even = (
        hshap.metrics.average_precision(found.attribution(even=even), truth)
        for even in (False, True)
    )
    assert guided > 3 * even


def test_a_map_of_the_caller_is_taken_and_checked():
    own = np.zeros((12, 10))
    own[2, 3] = 5.0
    found = explained(lambda b: b.max(axis=(2, 3)), images(2), lambda _: own)
    assert found.evidence.max() == found.evidence[2, 3] == 255
    for wrong in (np.ones((3, 3)), -np.ones((12, 10)), np.full((12, 10), np.nan)):
        with pytest.raises(hshap.ArgumentError, match="evidence returned"):
            explained(lambda b: b.max(axis=(2, 3)), images(2), lambda _, wrong=wrong: wrong)
    with pytest.raises(hshap.ArgumentError, match="evidence is 'gradients'"):
        explained(network(), images(2), "gradients")


def test_it_is_saved_and_read_again(tmp_path):
    found = explained(network(), images(4))
    found.save(tmp_path / "a.npz")
    again = hshap.Explanation.load(tmp_path / "a.npz")
    assert np.array_equal(again.evidence, found.evidence)
    assert np.array_equal(again.attribution(), found.attribution())
    assert np.array_equal(found.at(min_size=6).evidence, found.evidence)


@pytest.mark.parametrize("evaluator", [hshap.Batched, hshap.Incremental])
def test_evaluators_of_one_module_have_one_evidence(evaluator):
    plain, wrapped = (explained(one, images(8)) for one in (network(), evaluator(network())))
    assert np.array_equal(plain.evidence, wrapped.evidence)


def test_members_of_a_spin_share_it():
    explainer = hshap.Explainer(
        network(),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(3),
        evidence="auto",
    )
    spin = hshap.cycle_spin(explainer, images(9), target=1, shifts=[0, 1])
    assert spin.members[0].evidence is spin.members[1].evidence is not None
    assert spin.attribution().sum() == pytest.approx(spin.attribution(even=True).sum())


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=6),
    st.integers(0, 10**6),
)
def test_the_slope_of_a_target_is_that_of_autograd(outputs, seed):
    index = seed % len(outputs)
    values = torch.tensor(outputs, dtype=torch.float64, requires_grad=True)
    odds = values[index] - torch.logsumexp(
        torch.stack([v for i, v in enumerate(values) if i != index]), 0
    )
    (wanted,) = torch.autograd.grad(odds, values)
    assert slope(hshap.Output(index, "softmax"), np.array(outputs)) == pytest.approx(wanted.numpy())
    by_steps = slope(lambda rows: np.tanh(rows[:, index]) - rows[:, 0], np.array(outputs))
    exact = np.zeros(len(outputs))
    exact[index] += 1 - np.tanh(outputs[index]) ** 2
    exact[0] -= 1
    if np.abs(exact).max() > 1e-2:
        assert by_steps == pytest.approx(exact / np.abs(exact).max(), abs=1e-3)


def test_a_callable_that_saturates_is_followed_by_larger_steps():
    found = slope(lambda rows: 1 / (1 + np.exp(-rows[:, 1])), np.array([0.0, 45.0]))
    assert found.tolist() == [0.0, 1.0]


def test_a_callable_over_many_classes_is_followed_too():
    found = slope(lambda rows: rows[:, 700] - rows[:, 3], np.zeros(1000))
    assert np.flatnonzero(found).tolist() == [3, 700]
    assert found[700] == pytest.approx(-found[3])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), partition=st.sampled_from([hshap.Bisection(2), hshap.Dyadic(4)]))
def test_a_ranking_is_the_evidence_times_the_root_of_what_each_leaf_adds_alone(seed, partition):
    """Checked against scores of the model itself, each leaf shown by itself on the baseline."""
    guide = np.random.default_rng(seed).random((12, 10))
    model, image = network(seed), images(seed)
    found = explained(model, image, evidence=lambda _: guide, partition=partition)
    expected = np.zeros(found.grid)
    for leaf in found.leaves:
        shown = np.zeros((2, *image.shape), np.float32)
        relevant = np.zeros(found.grid, dtype=bool)
        relevant[leaf.index] = True
        shown[1][:, relevant] = image[:, relevant]
        with torch.no_grad():
            bare, alone = model(torch.from_numpy(shown))[:, 1].double().tolist()
        expected[relevant] = max(alone - bare, 0.0) ** 0.5 * weights(found.evidence)[relevant]
    assert np.allclose(found.ranking(), expected, rtol=1e-3, atol=1e-6)


def test_a_weak_leaf_does_not_outrank_strong_evidence():
    """Two objects, and a leaf of one pixel with a tenth of the score: its share is on one pixel."""
    worth = np.zeros((16, 16))
    worth[2:6, 2:6] = worth[10:14, 10:14] = 1 / 16
    worth[0, 15] = 0.2

    def model(batch):
        return (batch[:, 0] * worth).sum(axis=(1, 2))

    def evidence(_):
        return np.where(worth == 1 / 16, 1.0, 0.01)

    found = hshap.Explainer(
        model, hshap.Constant(0.0), hshap.Bisection(1), evidence=evidence
    ).explain(np.ones((1, 16, 16)), target=0)
    assert found.attribution()[0, 15] > found.attribution()[2:6, 2:6].max()
    assert found.ranking()[0, 15] < found.ranking()[2:6, 2:6].min()
