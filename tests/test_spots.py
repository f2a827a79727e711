"""Cells around the differences from a template: where they lie, and what they leave out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hshap
from hshap import DepthFirst, Explainer, Fixed, Spots
from hshap.errors import ArgumentError


def pixels_of(region):
    return np.ravel_multi_index(region.index, region.grid)


def all_leaves(region):
    parts = region.split()
    return [leaf for part in parts for leaf in all_leaves(part)] if parts else [region]


def root_of(cell_size, image, hidden):
    return Spots(cell_size).compare(image, np.broadcast_to(hidden, image.shape))


def labels_of(cell_size, image, hidden):
    return Spots(cell_size).tree(image, np.broadcast_to(hidden, image.shape)).labels


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 9),
    st.sampled_from([(1,), (7,), (1, 13), (11, 14), (4, 5, 6)]),
    st.integers(0, 5),
)
def test_leaves_cover_every_pixel_once(seed, size, grid, marks):
    rng = np.random.default_rng(seed)
    image = np.zeros((2, *grid))
    image[:, *(rng.integers(0, side, marks) for side in grid)] = rng.random(marks)
    root = root_of(size, image, 0.0)
    found = np.concatenate([pixels_of(leaf) for leaf in all_leaves(root)])
    assert np.array_equal(np.sort(found), np.arange(np.prod(grid)))


def test_cells_lie_around_the_differences():
    template = np.random.default_rng(0).random((1, 40, 60))
    image = template.copy()
    places = [(5, 5), (8, 40), (30, 12), (31, 50)]
    for row, column in places:
        image[0, row, column] += 1.0
    labels = labels_of(8, image, template)
    cells = [np.argwhere(labels == number) for number in range(len(places))]
    assert {tuple(cell.mean(axis=0)) for cell in cells} == {(r, c) for r, c in places}
    assert {len(cell) for cell in cells} == {81}
    assert labels.max() == len(places)  # and the area outside


def test_every_object_is_found_with_few_evaluations():
    rng = np.random.default_rng(1)
    template = rng.random((1, 128, 128)) * 0.2
    image = template.copy()
    rows, columns = np.divmod(rng.choice(64, 30, replace=False), 8)
    image[0, rows * 16 + 8, columns * 16 + 8] = 0.9  # differences that the model ignores
    for row, column in ((24, 40), (104, 88), (56, 8)):
        image[0, row : row + 3, column] = 1.0

    def model(batch):
        return (batch[:, 0] >= 1.0).any(axis=(1, 2)).astype(float)

    explainer = Explainer(model, Fixed(template), Spots(8), DepthFirst(0.0))
    found = explainer.explain(image, target=0)
    truth = image[0] >= 1.0
    assert len(found.leaves) == 3
    assert (found.saliency()[truth] > 0).all()
    assert found.evaluations <= 40  # a grid of this size takes 2 + 2 * 3 * 8 at least


@pytest.mark.parametrize(
    "baseline",
    [
        hshap.Constant(0),
        hshap.Constant([0.0, 0.0]),
        hshap.Fixed(np.zeros((2, 9, 12))),
        hshap.Mean(np.zeros((4, 2, 9, 12))),
        hshap.References(np.zeros((4, 2, 9, 12))),
        hshap.Blur(2.0),
        lambda image: hshap.protocols.Still(np.zeros((1, *image.shape))),
    ],
)
def test_the_explainers_baseline_places_the_cells(baseline):
    image = np.zeros((2, 9, 12))
    image[:, 4, 3] = 1.0
    explainer = Explainer(lambda b: b.max(axis=(1, 2, 3)), baseline, Spots(3))
    found = explainer.explain(image, target=0)
    (leaf,) = found.leaves
    assert [axis.mean() for axis in leaf.index] == [4, 3]
    assert found.settings["partition"] == {"type": "Spots", "cell_size": 3}


def test_integers_and_tensors_are_compared():
    torch = pytest.importorskip("torch")
    image = np.zeros((1, 9, 12), dtype=np.uint16)
    image[0, 4, 3] = 60_000
    for each in (image, torch.tensor(image.astype(np.float32))):
        assert Spots(3).tree(each, np.zeros((1, 9, 12))).labels.max() == 1


def test_it_is_not_shifted():
    with pytest.raises(ArgumentError, match="moving the image does not move them"):
        hshap.Shifted(Spots(4), 3)
    with pytest.raises(ArgumentError, match="spin over several partitions"):
        hshap.Shifted(hshap.Superpixels.from_labels(np.zeros((4, 4), int)), 3)
    assert hshap.Shifted(hshap.Superpixels(), 3)


def test_many_differences_are_refused():
    with pytest.raises(ArgumentError, match="pass a larger cell_size"):
        root_of(1, np.random.default_rng(0).random((1, 200, 200)), 0.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Spots(0), "cell_size must be at least 1"),
        (lambda: Spots("large"), 'cell_size=.large. is not a size; pass pixels, or "auto"'),
        (lambda: Spots(2.5), "cell_size must be a whole number, got 2.5"),
        (lambda: Spots(4)(np.zeros((1, 5, 5))), "needs the baseline too"),
        (lambda: Spots(4).compare(np.zeros((3, 6, 5)), np.zeros((3, 5, 5))), "hidden has shape"),
        (lambda: root_of(4, np.full((1, 4, 4), np.nan), 0.0), "not finite"),
        (lambda: Spots(4).compare("picture.png", np.zeros((1, 4, 4))), "pass"),
        (lambda: Spots(4).compare(np.zeros(5), np.zeros(5)), "pass (channels"),
        (lambda: Spots(4).compare(np.zeros((1, 5)), np.full((1, 5), np.nan)), "not finite"),
    ],
)
def test_bad_input_is_refused(make, words):
    with pytest.raises(ArgumentError, match=words.replace("(", r"\(")):
        make()
