"""Only the model speaks in a map: pixels that it was shown to ignore have no weight.

Models ignore pixels by their making, and null players are found by brute force over the games.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hshap

torch = pytest.importorskip("torch")
pytest.importorskip("higra")
pytest.importorskip("scipy")

GRID = (48, 56)
BUDGETS = (10, 20, 50, None)


def discs(rng, grid=GRID, count=7):
    """A noisy ground with discs of one colour, and where each disc is."""
    rows, columns = np.indices(grid)
    image = 0.5 + 0.02 * rng.normal(size=(3, *grid))
    centres = [[rng.integers(7, side - 7) for side in grid] for _ in range(count)]
    places = [np.hypot(rows - row, columns - column) < 5 for row, column in centres]
    for place in places:
        image[:, place] = np.array([0.2, 0.7, 0.3])[:, None]
    return image.astype(np.float32), places


class Weighs(torch.nn.Module):
    """The weighted sum of how green pixels are: those with a weight of 0 are ignored."""

    def __init__(self, weights):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.as_tensor(weights, dtype=torch.float64))

    def green(self, batch):
        batch = batch.double()
        return torch.relu(batch[:, 1] - batch[:, 0] - 0.2) * self.weights

    def forward(self, batch):
        return self.green(batch).sum((1, 2))[:, None]


class Detects(Weighs):
    """Whether any pixel with a weight is green: the OR rule."""

    def forward(self, batch):
        return self.green(batch).amax((1, 2))[:, None]


def ignoring(kind, rng, places):
    """A model of one kind that looks at some pixels of the image alone."""
    if kind == "a region has no weight":
        weights = rng.random(GRID)
        top, left = rng.integers(0, 20, 2)
        weights[top : top + 24, left : left + 30] = 0.0
        return Weighs(weights)
    if kind == "one quadrant":
        weights = np.zeros(GRID)
        weights[: GRID[0] // 2, : GRID[1] // 2] = 1.0
        return Weighs(weights)
    return Detects(places[0].astype(float))


KINDS = ("a region has no weight", "one quadrant", "one object")


def explained(model, image, budget, **options):
    search = None if budget is None else hshap.BestFirst(budget)
    evaluator = hshap.Batched(model.eval(), check_batches=False)
    return hshap.Explainer(evaluator, search=search, **options).explain(image, target=0)


def null_pixels(found):
    """The pixels of all null players, by the definition: no coalition's value depends on them.

    In games of several contexts, this holds in each that was played.
    """
    out = np.zeros(found.grid, dtype=bool)
    for game in found.games:
        players = range(len(game.children))
        played = [game.values, *(one.values for one in game.contexts)]
        for player in players:
            others = [other for other in players if other != player]
            gains = [
                values[sum(1 << one for one in some) + (1 << player)]
                - values[sum(1 << one for one in some)]
                for values in played
                for size in range(len(players))
                for some in combinations(others, size)
            ]
            if np.abs(gains).max() <= 1e-12 * np.abs(played).max():
                out[game.children[player].index] = True
    return out


def maps(found):
    return {
        "attribution": found.attribution(),
        "smooth": found.attribution(smooth=3.0),
        "alone": found.alone(),
        "even": found.attribution(smooth=0.0),
    }


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_ignored_parts_have_no_weight(kind, budget, seed):
    rng = np.random.default_rng(seed)
    image, places = discs(rng)
    model = ignoring(kind, rng, places)
    found = explained(model, image, budget)
    null = null_pixels(found)
    unweighed = model.weights.detach().numpy() == 0
    for game in found.games:
        for part in game.children:
            if unweighed[part.index].all():
                assert null[part.index].all()  # the oracle sees them all
    for name, heat in maps(found).items():
        assert np.abs(heat[null]).max(initial=0.0) <= 1e-6 * np.abs(heat).max(), name
    total = found.attribution().sum()
    assert found.attribution(smooth=3.0).sum() == pytest.approx(total, abs=1e-9)


def with_a_dot(seed):
    """Discs of one colour, of which a model sees the first, and a bright dot that it ignores."""
    rng = np.random.default_rng(seed)
    grid = (96, 96)
    image, places = discs(rng, grid, count=12)
    near = np.argwhere(places[0]).mean(0)
    rows, columns = np.indices(grid)
    free = ~np.any(places, axis=0) & (np.hypot(rows - near[0], columns - near[1]) < 20)
    row, column = rng.choice(np.argwhere(free))
    dot = (np.abs(rows - row) <= 1) & (np.abs(columns - column) <= 1) & ~places[0]
    image[:, dot] = np.array([1.0, 1.0, 0.0])[:, None]
    return image, places[0], dot


@pytest.mark.parametrize("budget", BUDGETS)
def test_an_ignored_dot_is_never_strongest(budget):
    strongest = []
    for seed in range(20):
        image, place, dot = with_a_dot(seed)
        found = explained(Weighs(place.astype(float)), image, budget)
        strongest += [dot.flat[heat.argmax()] for heat in maps(found).values()]
    assert sum(strongest) == 0


def with_a_difference(seed):
    """A template, and the same scene with a faint disc and, beside it, a bright ignored dot."""
    rng = np.random.default_rng(seed)
    template = np.kron(rng.random((3, 12, 12)) * 0.3 + 0.3, np.ones((8, 8))).astype(np.float32)
    rows, columns = np.indices(template.shape[1:])
    row, column = rng.integers(20, 76, 2)
    place = np.hypot(rows - row, columns - column) < 4
    aside = int(rng.choice([-1, 1]))
    dot = (np.abs(rows - row) <= 1) & (np.abs(columns - column - 7 * aside) <= 1)
    image = template.copy()
    image[1, place] = image[0, place] + 0.4
    image[:, dot] = 3.0
    return image, template, place, dot


@pytest.mark.parametrize("budget", BUDGETS)
def test_an_ignored_difference_is_never_strongest(budget):
    cells = 0
    for seed in range(20):
        image, template, place, dot = with_a_difference(seed)
        model = Weighs(place.astype(float))
        found = explained(model, image, budget, baseline=hshap.Fixed(template))
        cells += found.settings["partition"]["type"] == "Spots"
        read = maps(found)
        del read["smooth"]  # a width of the caller's choice spreads any cell from its middle
        for name, heat in read.items():
            assert not dot.flat[heat.argmax()], name
    assert cells > 15


def test_ignored_parts_of_a_leaf_have_no_weight():
    """Three quarters act together, so the automatic rule ends at the image; the last is ignored."""
    quarters = [(slice(0, 4), slice(0, 4)), (slice(0, 4), slice(4, 8)), (slice(4, 8), slice(0, 4))]

    def together(batch):
        return np.min([batch[:, 0, *quarter].mean((1, 2)) for quarter in quarters], axis=0)

    image = np.random.default_rng(0).random((1, 8, 8))
    found = hshap.Explainer(together, hshap.Constant(0.0), hshap.Dyadic("auto")).explain(
        image, target=0
    )
    assert [leaf.area for leaf in found.leaves] == [64]
    assert not found.attribution()[4:, 4:].any()
    assert found.attribution().sum() == pytest.approx(found.score - found.baseline_score)


def test_smoothing_stays_out_of_ignored_pixels():
    """The right half is ignored, and the left one is smoothed by another library's filter."""
    ndimage = pytest.importorskip("scipy.ndimage")
    image = np.random.default_rng(0).random((1, 16, 32))
    found = hshap.Explainer(
        lambda batch: batch[:, 0, :, :16].sum((1, 2)), hshap.Constant(0.0), hshap.Bisection(4)
    ).explain(image, target=0)
    plain, smooth = found.attribution(), found.attribution(smooth=2.0)
    left = np.arange(32) < 16
    room = ndimage.gaussian_filter(np.tile(left.astype(float), (16, 1)), 2.0)
    divided = np.where(left, plain / np.where(left, room, 1.0), 0.0)
    wanted = np.where(left, ndimage.gaussian_filter(divided, 2.0), 0.0)
    np.testing.assert_allclose(smooth, wanted, atol=1e-12)
    assert smooth.sum() == pytest.approx(plain.sum())
