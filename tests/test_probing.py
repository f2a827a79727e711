"""Probes: cells that are shown alone guide the maps of small budgets; sums over leaves stay exact.

The scene is a grid of squares that differ from the template by known contrasts, so that the order
of probes, their scores and the weights inside cells are known without the package.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hshap
from hshap.evaluators.evidence import weights
from hshap.explainer.guides import UNSEEN
from hshap.games.search.probing import probes_within

pytest.importorskip("scipy")

SIDE, STEP, ACROSS = 5, 20, 4
"""Pixels of a square and from one to the next, and squares on each axis."""

FIRST_GAME = 4
TOLD = "the scores of {} cells shown alone"
NONE = "none: the model gives no gradients"


def squares(contrasts):
    """Return a template, an image with a square of each contrast, and their boxes."""
    template = np.zeros((1, ACROSS * STEP, ACROSS * STEP))
    image, boxes = template.copy(), []
    for number, contrast in enumerate(contrasts):
        corner = [part * STEP + (STEP - SIDE) // 2 for part in divmod(number, ACROSS)]
        box = tuple(slice(start, start + SIDE) for start in corner)
        image[(0, *box)] = contrast
        boxes.append(box)
    return template, image, boxes


class Weighing:
    """A model whose outputs weigh the squares that are shown; it keeps its inputs."""

    def __init__(self, image, boxes, *weights_of):
        self.image, self.boxes, self.weights = image, boxes, np.array(weights_of)
        self.inputs = []

    def __call__(self, batch):
        self.inputs += list(np.array(batch))
        return self.shown(batch) @ self.weights.T

    def shown(self, batch):
        """Return which squares are shown in full, for each input."""
        equal = [(batch[:, 0][:, *b] == self.image[0][b]).all(axis=(1, 2)) for b in self.boxes]
        return np.stack(equal, axis=1).astype(float)


def case(seed, outputs=1, graded=True):
    """Return template, image and model: contrasts in any order, and a weight for each square."""
    rng = np.random.default_rng(seed)
    contrasts = rng.permutation(np.linspace(0.3, 1.0, ACROSS**2))
    template, image, boxes = squares(contrasts)
    draw = rng.random if graded else lambda shape: rng.integers(0, 2, shape).astype(float)
    model = Weighing(image, boxes, *draw((outputs, len(boxes))))
    return template, image, model, np.argsort(-contrasts)


def explainer(template, model, search, **options):
    evaluator = hshap.Batched(model, check_batches=False)
    options = {"partition": hshap.Spots(11), "evidence": "auto", **options}
    return hshap.Explainer(evaluator, hshap.Fixed(template), search=search, **options)


SEEDS = st.integers(0, 2**32 - 1)
BUDGETS = st.integers(FIRST_GAME, 60)


@settings(max_examples=25, deadline=None)
@given(SEEDS, BUDGETS, st.booleans())
def test_sums_over_leaves_are_exact_and_the_budget_is_kept(seed, budget, graded):
    template, image, model, _ = case(seed, graded=graded)
    search = hshap.DepthFirst(max_evaluations=budget)
    found = explainer(template, model, search).explain(image, target=0)
    assert found.evaluations == len(model.inputs) <= budget
    for leaf in found.leaves:
        share = found.parts[leaf].share
        assert found.attribution()[leaf.index].sum() == pytest.approx(share, abs=1e-9)
    total = found.attribution().sum() + found.residual
    assert total == pytest.approx(found.score - found.baseline_score, abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.integers(FIRST_GAME + 1, FIRST_GAME + ACROSS**2 - 1))
def test_a_small_budget_shows_the_cells_that_differ_most(seed, budget):
    template, image, model, order = case(seed)
    search = hshap.DepthFirst(max_evaluations=budget)
    explainer(template, model, search).explain(image, target=0)
    probes = model.shown(np.stack(model.inputs))[FIRST_GAME:]
    assert (probes.sum(axis=1) == 1).all()
    assert probes.argmax(axis=1).tolist() == order[: budget - FIRST_GAME].tolist()


@pytest.mark.parametrize("budget", [FIRST_GAME, FIRST_GAME + ACROSS**2, 60])
def test_a_budget_for_all_cells_or_for_the_first_game_alone_is_left_to_games(budget):
    template, image, model, _ = case(1)
    search = hshap.DepthFirst(max_evaluations=budget)
    found = explainer(template, model, search).explain(image, target=0)
    even = explainer(template, model, search, evidence="even").explain(image, target=0)
    assert found.evidence is None
    assert (found.leaves, found.evaluations) == (even.leaves, even.evaluations)


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.integers(FIRST_GAME + 2, FIRST_GAME + ACROSS**2 - 1))
def test_weights_inside_a_leaf_are_the_roots_of_scores(seed, budget):
    """The same weights, from the model's known weights: contrasts of the image do not count."""
    template, image, model, order = case(seed)
    search = hshap.DepthFirst(max_evaluations=budget)
    found = explainer(template, model, search).explain(image, target=0)
    shown = order[: budget - FIRST_GAME]
    scores = model.weights[0] / model.weights[0][shown].max()
    factor = np.full(image.shape[1:], UNSEEN)
    for number in shown:
        middle = [part * STEP + STEP // 2 - 1 for part in divmod(int(number), ACROSS)]
        cell = tuple(slice(at - 5, at + 7) for at in middle)
        factor[cell] = scores[number] ** 0.5
    peaks = [tuple((one.start + one.stop) // 2 for one in box) for box in model.boxes]
    levels = np.array([weights(found.evidence)[peak] for peak in peaks])
    expected = np.array([factor[peak] for peak in peaks])
    got, told = levels / levels.max(), expected / expected.max()
    assert got == pytest.approx(told, abs=0.03)


def test_cells_that_add_nothing_get_less_than_cells_that_were_not_shown():
    template, image, model, order = case(3)
    model.weights[0][order[:6]] = 0.0
    search = hshap.DepthFirst(max_evaluations=FIRST_GAME + 6)
    found = explainer(template, model, search).explain(image, target=0)
    mass = [found.ranking()[model.boxes[number]].sum() for number in order]
    assert min(mass[6:]) > 2 * max(mass[:6])


@pytest.mark.parametrize(
    "search",
    [
        hshap.DepthFirst(max_evaluations=12),
        hshap.BreadthFirst(percentile=0, max_evaluations=12),
        hshap.Share(0.05, max_evaluations=12),
        hshap.Share(0.05, max_evaluations=12, of="finding"),
    ],
    ids=lambda search: f"{type(search).__name__} {getattr(search, 'of', '')}",
)
def test_probes_follow_the_first_game_of_any_search_that_plays_games(search):
    template, image, model, _ = case(4)
    found = explainer(template, model, search).explain(image, target=0)
    assert found.settings["evidence"] == TOLD.format(8)
    assert found.evaluations <= 12


def test_group_testing_and_searches_without_a_budget_or_with_a_time_ask_for_no_probes():
    template, image, model, _ = case(4)
    timed = hshap.DepthFirst(max_evaluations=15, max_seconds=3600.0)
    for search in (hshap.GroupTesting(max_evaluations=15), hshap.DepthFirst(), timed, None):
        found = explainer(template, model, search).explain(image, target=0)
        assert found.settings["evidence"] == NONE


@pytest.mark.parametrize("draws", [2, 3])
def test_each_probe_takes_all_draws_within_the_budget(draws):
    template, image, model, _ = case(5)
    references = np.stack([template + 0.001 * number for number in range(draws)])
    search = hshap.DepthFirst(max_evaluations=30)
    found = explainer(template, model, search)
    several = hshap.Explainer(
        found.model, hshap.References(references), hshap.Spots(11), search, "auto"
    ).explain(image, target=0)
    fit = (30 - (1 + 3 * draws)) // draws
    assert several.settings["evidence"] == TOLD.format(fit)
    assert several.evaluations == len(model.inputs) <= 30


def test_many_images_and_targets_give_the_same_as_one_by_one():
    cases = [case(seed, outputs=2) for seed in (6, 7)]
    search = hshap.DepthFirst(max_evaluations=11)
    known = {one[1].tobytes(): one[2] for one in cases}

    def model(batch):
        """Weigh each input by the model of its own image: that with the most equal pixels."""
        models = list(known.values())
        near = [[(one == m.image).sum() for m in models] for one in batch]
        return np.stack(
            [models[int(np.argmax(n))](one[None])[0] for n, one in zip(near, batch, strict=True)]
        )

    made = explainer(cases[0][0], model, search)
    pairs = [(image, [0, 1]) for _, image, *_ in cases]
    together = list(made.explain_many(pairs))
    for found in together:
        image = cases[found.position][1]
        alone = made.explain(image, target=found.target)
        assert found.evidence.tobytes() == alone.evidence.tobytes()
        assert (found.leaves, found.evaluations) == (alone.leaves, alone.evaluations)
    assert len(together) == 4
    first, second = (one for one in together if one.position == 0)
    assert first.evidence.tobytes() != second.evidence.tobytes()


def test_files_rows_readings_and_pages_keep_the_guide(tmp_path):
    template, image, model, _ = case(8)
    search = hshap.DepthFirst(max_evaluations=14)
    found = explainer(template, model, search).explain(image, target=0)
    found.save(tmp_path / "found.npz")
    loaded = hshap.Explanation.load(tmp_path / "found.npz")
    assert loaded.settings["evidence"] == found.settings["evidence"] == TOLD.format(10)
    assert (loaded.attribution() == found.attribution()).all()
    pytest.importorskip("pyarrow")
    from hshap.runs.storing.rows import Origin, as_row
    from hshap.runs.storing.stored_rows import from_row

    row = from_row(as_row(found, Origin("a", "b", "c", "d", "0")))
    assert row.attribution() == pytest.approx(found.attribution(), abs=1e-12)
    assert repr(row) == repr(found)
    coarse = found.at(tolerance=0.0)
    assert coarse.leaves == found.leaves
    assert (coarse.attribution() == found.attribution()).all()
    assert "cells shown alone" in found._repr_html_()
    view = hshap.viewer.View("one", image, {"square": found})
    hshap.viewer.write_page(tmp_path / "page.html", [view])
    assert (tmp_path / "page.html").stat().st_size > 0


def test_the_default_call_with_a_small_budget_tells_its_probes():
    rng = np.random.default_rng(9)
    _, _, boxes = squares(np.ones(ACROSS**2))
    template = rng.random((1, ACROSS * STEP, ACROSS * STEP)).round()
    image = template.copy()
    for box in boxes:
        image[(0, *box)] = 0.5
    model = Weighing(image, boxes, rng.random(len(boxes)))
    search = hshap.DepthFirst(max_evaluations=12)
    made = hshap.Explainer(model, hshap.Fixed(template), search=search)
    found = made.explain(image, target=0)
    assert found.settings["partition"]["type"] == "Spots"
    assert f"maps inside regions follow {TOLD.format(8)}" in repr(found)
    assert found.evaluations <= 12


@pytest.mark.parametrize(("budget", "probes"), [(15, 0), (16, 8), (20, 12), (23, 15), (24, 0)])
def test_beside_gradients_few_probes_are_left_out(budget, probes):
    """Four copies of the image and the first game take eight evaluations of the budget."""
    torch = pytest.importorskip("torch")
    template, image, boxes = squares(np.linspace(0.3, 1.0, ACROSS**2))

    class Brightest(torch.nn.Module):
        def forward(self, batch):
            return torch.stack([batch[:, :, *box].sum(dim=(1, 2, 3)) for box in boxes], dim=1)

    model = torch.nn.Sequential(Brightest(), torch.nn.AdaptiveMaxPool1d(1)).eval()
    made = explainer(template.astype("f4"), model, hshap.DepthFirst(max_evaluations=budget))
    found = made.explain(image.astype("f4"), target=0)
    told = f", and the scores of {probes} cells shown alone" if probes else ""
    assert found.settings["evidence"] == f"gradients times differences{told}"
    assert found.evaluations <= budget
    for leaf in found.leaves:
        share = found.parts[leaf].share
        assert found.attribution()[leaf.index].sum() == pytest.approx(share, abs=1e-9)


def test_a_budget_that_takes_games_down_to_cells_finds_them_among_many():
    template = np.zeros((1, 200, 200))
    image = template.copy()
    image[0, 5::10, 5::10] = 1.0
    dots = ((0, 45, 65), (0, 155, 15))

    def model(batch):
        return np.stack([batch[:, *dot] for dot in dots]).max(axis=0)[:, None]

    search = hshap.DepthFirst(max_evaluations=120)
    made = explainer(template, model, search, partition=hshap.Spots(7))
    found = made.explain(image, target=0)
    assert found.settings["evidence"] == NONE
    assert [leaf.area for leaf in found.leaves] == [49, 49]
    assert all(found.saliency()[dot[1:]] > 0 for dot in dots)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 100), st.integers(0, 40), st.integers(1, 4))
def test_probes_and_the_first_game_fit_into_the_budget(budget, cells, draws):
    kept = probes_within(budget, range(cells), draws, 2)
    assert kept == tuple(range(len(kept)))
    if kept:
        assert len(kept) * draws + 1 + 3 * draws <= budget
        assert len(kept) < cells
