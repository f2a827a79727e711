"""An explanation: coarser readings, boxes, files, plots and what a notebook shows."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from colours import count_colours
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import any_marked, marked, same_explanation
from PIL import Image
from scipy import ndimage

import hshap
from hshap import (
    Bisection,
    BreadthFirst,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    Explanation,
    References,
    Shifted,
)
from hshap.errors import ArgumentError


def smooth(batch):
    """Score something with many small coefficients of both signs."""
    flat = batch.reshape(len(batch), -1)
    return np.tanh(flat).max(1) + 0.3 * np.sin(7 * flat).mean(1)


def explain(image, partition=None, search=None, model=smooth, baseline=None, *, layout=None):
    explainer = Explainer(
        model,
        baseline=baseline or Constant(0.0),
        partition=partition or Dyadic(1),
        search=search or DepthFirst(),
    )
    return explainer.explain(image, target=0, layout=layout)


# Readings


@settings(max_examples=50)
@given(
    st.integers(0, 2**31),
    st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple),
    st.integers(1, 12),
    st.floats(0, 0.1),
    st.booleans(),
)
def test_a_coarser_reading_is_a_new_run(seed, grid, size, tolerance, keep):
    image = np.random.default_rng(seed).random((1, *grid))
    layout = "C" + "ZYX"[-len(grid) :]  # a thin volume would look like a batch
    fine = explain(image, Bisection(1), DepthFirst(0.0, keep_whole=keep), layout=layout)
    new = explain(image, Bisection(size), DepthFirst(tolerance, keep_whole=keep), layout=layout)
    read = fine.at(min_size=size, tolerance=tolerance)
    assert set(read.leaves) == set(new.leaves)
    assert read.evaluations == new.evaluations
    assert {game.region for game in read.games} == {game.region for game in new.games}
    assert np.array_equal(read.coefficients(), new.coefficients())
    assert read.complete
    assert read.settings == new.settings


@pytest.mark.parametrize("size", [2, 4, 100])
@pytest.mark.parametrize("search", [DepthFirst(0.001), BreadthFirst(40)])
@pytest.mark.parametrize("shift", [0, (3, 5)])
def test_quadtrees_on_even_grids_too(size, search, shift, rng):
    image = rng.random((1, 16, 16))
    read = explain(image, Shifted(Dyadic(1), shift), search).at(min_size=size)
    new = explain(image, Shifted(Dyadic(size), shift), search)
    assert set(read.leaves) == set(new.leaves)
    assert read.evaluations == new.evaluations
    assert np.array_equal(read.attribution(), new.attribution())
    assert read.settings["partition"] == new.settings["partition"]


def test_free_forms_are_read_by_their_box(rng):
    """A region whose box is no longer than the limit on any axis is a leaf, and no other is."""
    partition = hshap.Superpixels(min_area=2, max_area=2)
    found = explain(rng.random((1, 12, 20)), partition, model=lambda b: b.mean(axis=(1, 2, 3)))
    for limit in ((4, 6), (3, 20), (12, 5)):
        read = found.at(min_size=limit)
        fine = set(found.leaves)
        played = {game.region for game in read.games}
        for region in {*read.leaves, *played}:
            places = np.transpose(region.index)
            fits = (np.ptp(places, axis=0) + 1 <= limit).all()
            assert fits or region in fine or region in played
            assert not (fits and region in played)


def test_a_reading_can_be_read_again(rng):
    """And takes no budget: what one cut off stays incomplete."""
    fine = explain(rng.random((1, 16, 16)))
    once = fine.at(min_size=4, tolerance=0.001)
    assert same_explanation(once, fine.at(min_size=2).at(min_size=4).at(tolerance=0.001))
    search = DepthFirst(max_evaluations=100, max_seconds=60.0)
    cut = explain(rng.random((1, 16, 16)), search=search)
    again = cut.at(tolerance=0.0)
    assert set(again.leaves) == set(cut.leaves)
    assert not again.complete
    assert again.settings.search == DepthFirst()
    assert cut.at(min_size=16).complete


def test_percentiles_over_fewer_games_keep_more():
    # Uneven sides: at min_size 2, some of a level are leaves and others go on.
    rng = np.random.default_rng(3)
    for _ in range(30):
        fine = explain(rng.random((1, 7, 10)), Bisection(1), BreadthFirst(60))
        read = fine.at(min_size=2)
        seen = {part for game in fine.games for part in game.children}
        assert set(read.leaves) <= seen | {fine.games[0].region}
        for leaf in read.unfinished:
            assert leaf not in {game.region for game in fine.games}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_size": 1}, "min_size=1 is finer than the 2 of this run"),
        ({"min_size": (4, 4, 4)}, "3 entries, but the image has 2 spatial axes"),
        ({"tolerance": 0.0}, r"tolerance=0.0 is below the 0.01 of this run"),
        ({"tolerance": -1}, "tolerance must be a finite number"),
        ({"percentile": 50}, "percentile=50 does not apply: this run used DepthFirst"),
    ],
)
def test_impossible_readings_are_refused(options, message, rng):
    found = explain(rng.random((1, 8, 8)), Dyadic(2), DepthFirst(0.01))
    with pytest.raises(ArgumentError, match=message):
        found.at(**options)


def test_own_searches_cannot_be_read_again(rng):
    def own(root, draws):
        return (yield from DepthFirst()(root, draws))

    told = "explain with one of DepthFirst, BreadthFirst, GroupTesting"
    with pytest.raises(ArgumentError, match=told):
        explain(rng.random((1, 8, 8)), search=own).at(min_size=4)


# Boxes


@settings(max_examples=50)
@given(st.sets(st.integers(0, 71), max_size=20))
def test_boxes_are_those_of_scipy(points):
    """Leaves that touch along a side are joined; single ones have a box each, the highest first."""
    image = marked((8, 9), points)
    found = explain(image, model=any_marked)
    labels, _ = ndimage.label(image[0])
    theirs = {
        (tuple(s.start for s in box), tuple(s.stop for s in box))
        for box in ndimage.find_objects(labels)
    }
    assert {(box.start, box.stop) for box in found.boxes()} == theirs
    single = found.boxes(merge=False)
    assert {box.start for box in single} == {divmod(point, 9) for point in points}
    assert [box.score for box in single] == sorted((box.score for box in single), reverse=True)


def test_wrapped_leaves_have_boxes_at_borders():
    found = explain(marked((8, 8), [0]), Shifted(Dyadic(4), (2, 2)), model=any_marked)
    assert {(box.start, box.stop) for box in found.boxes()} == {
        ((0, 0), (2, 2)),
        ((6, 0), (8, 2)),
        ((0, 6), (2, 8)),
        ((6, 6), (8, 8)),
    }


# Files


def test_regions_of_any_kind_are_saved_as_pixels(tmp_path):
    class Ring(hshap.protocols.Region):
        """A region of one's own: the border, or the area inside it."""

        def __init__(self, inside=None):
            self.inside = inside

        @property
        def index(self):
            chosen = np.ones((6, 6), bool)
            if self.inside is not None:
                chosen[1:-1, 1:-1] = False
                chosen = ~chosen if self.inside else chosen
            return np.nonzero(chosen)

        @property
        def area(self):
            return len(self.index[0])

        def split(self):
            return (Ring(inside=False), Ring(inside=True)) if self.inside is None else ()

    found = explain(marked((6, 6), [14]), lambda image: Ring(), model=any_marked)
    assert [leaf.inside for leaf in found.leaves] == [True]
    found.save(tmp_path / "ring.npz")
    again = Explanation.load(tmp_path / "ring.npz")
    assert np.array_equal(again.saliency(), found.saliency())
    assert again.boxes() == found.boxes()
    again.save(tmp_path / "again.npz")
    assert same_explanation(again, Explanation.load(tmp_path / "again.npz"))


# Plots and notebooks


@pytest.mark.parametrize(
    ("channels", "grid"),
    [
        (2, (30,)),
        (1, (9, 14)),
        (3, (9, 14)),
        (5, (5, 6, 7)),
        (1, (90, 1)),
    ],
)
@pytest.mark.parametrize("empty", [True, False])
def test_a_plot_is_never_blank(grid, empty, channels, rng, tmp_path):
    image = np.zeros((channels, *grid)) if empty else 3 * rng.random((channels, *grid)) - 1
    found = explain(image, Bisection(1), model=any_marked)
    for number, shown in enumerate((image, None)):
        figure = found.plot(shown)
        figure.savefig(tmp_path / f"{number}.png")
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]
        assert count_colours(pixels) > 20
        assert (tmp_path / f"{number}.png").stat().st_size > 3000


def test_a_plot_shows_where_the_map_is(tmp_path):
    image = marked((20, 20), [0])
    found = explain(image, Dyadic(10), model=any_marked)
    figure = found.plot(np.full((1, 20, 20), 0.5))
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    (x0, y0), (x1, y1) = figure.axes[0].transData.transform([(2, 17), (17, 2)])
    height = pixels.shape[0]
    inside, outside = pixels[height - int(y1), int(x0)], pixels[height - int(y0), int(x1)]
    assert inside[0] > inside[2] + 30
    assert abs(outside[0] - outside[2]) < 5
    assert figure.axes[1].get_ylabel() == "score per 100 pixels\n1 in total"


def test_the_repr_tells_findings_and_cost():
    found = explain(marked((8, 8), [9]), model=any_marked)
    assert re.fullmatch(
        r"<Explanation: target 0, 1 leaf on 1\.56% of 8 x 8, 3 games, 44 evaluations, .* s, "
        r"OR gap 0\.00; 44 inputs in full; batches: independent>",
        repr(found),
    )


def test_outlines_run_between_pixels():
    found = explain(marked((8, 8), [9]), model=any_marked)
    visited, leaf = found.plot(outlines=True).axes[0].collections
    around = {frozenset({(0.5, y), (1.5, y)}) for y in (0.5, 1.5)}
    around |= {frozenset({(x, 0.5), (x, 1.5)}) for x in (0.5, 1.5)}
    assert {frozenset(map(tuple, line.tolist())) for line in leaf.get_segments()} == around
    assert [[-0.5, 3.5], [7.5, 3.5]] in [line.tolist() for line in visited.get_segments()]


@pytest.mark.parametrize("grid", [(30,), (9, 14), (5, 6, 7), (700, 900)])
def test_a_notebook_shows_the_map(grid):
    found = explain(marked(grid, [5]), Bisection(1), model=any_marked)
    html = found._repr_html_()
    (data,) = re.findall(r"data:image/png;base64,([^\"]+)", html)
    raw = base64.b64decode(data)
    assert raw.startswith(b"\x89PNG")
    pixels = np.asarray(Image.open(io.BytesIO(raw))).astype(int)
    # The single relevant pixel is red, however small it is in the image.
    assert (pixels[..., 0] > pixels[..., 2] + 100).any()


def test_names_cannot_inject_markup():
    def target(outputs):
        return outputs[:, 0]

    target.__qualname__ = "<script>alert(1)</script>"
    explainer = Explainer(any_marked, baseline=Constant(0.0), partition=Dyadic(1))
    found = explainer.explain(marked((4, 4), [3]), target=target)
    assert "<script>" not in found._repr_html_()


def test_targets_may_be_callables():
    model = lambda batch: np.stack([any_marked(batch), 3 * any_marked(batch)], axis=1)
    margin = lambda outputs: outputs[:, 1] - outputs[:, 0]
    explainer = Explainer(model, baseline=Constant(0.0), partition=Dyadic(1))
    found = explainer.explain(marked((4, 4), [3]), target=margin)
    assert found.score == 2.0
    both = explainer.explain(marked((4, 4), [3]), target=[1, margin])
    assert [one.score for one in both] == [3.0, 2.0]


def test_callables_see_each_draw(rng):
    references = rng.random((5, 1, 2, 2))
    model = lambda batch: batch.mean(axis=(1, 2, 3))
    square = lambda outputs: outputs[:, 0] ** 2
    explainer = Explainer(model, baseline=References(references), partition=Dyadic(2))
    found = explainer.explain(np.ones((1, 2, 2)), target=square)
    expected = (references.mean(axis=(1, 2, 3)) ** 2).mean()
    assert np.isclose(found.baseline_score, expected)
