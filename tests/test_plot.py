"""Figures: on axes of ours or of yours, at every size, and never blank."""

from __future__ import annotations

import base64
import dataclasses
import re
import sys
from itertools import pairwise

import numpy as np
import pytest
from colours import count_colours
from oracle import any_marked, marked
from pages import enlarged, spotted

from hshap import (
    ArgumentError,
    Bisection,
    Constant,
    Dyadic,
    Explainer,
    Superpixels,
    cycle_spin,
    demo,
    plot,
)
from hshap.errors import MissingExtraError
from hshap.metrics import Curve, ablation_curve, deletion
from hshap.plot.overlay import Unit

figures = pytest.importorskip("matplotlib.figure")


def explain(image, partition=None):
    explainer = Explainer(any_marked, baseline=Constant(0.0), partition=partition or Bisection(1))
    return explainer.explain(image, target=0)


def points(grid, count=3, channels=1):
    rng = np.random.default_rng(1)
    image = np.zeros((channels, *grid), np.float32)
    image[0].reshape(-1)[rng.choice(np.prod(grid), count, replace=False)] = 1.0
    return image


def colours(figure, path):
    """Return how many colours a saved figure has, read from its file by another library."""
    pil = pytest.importorskip("PIL.Image")
    figure.savefig(path, dpi=40)
    with pil.open(path) as read:
        pixels = np.asarray(read.convert("RGB"))
    return count_colours(pixels)


SIZES = [((1, 1), 1), ((90, 2), 1), ((3, 70), 1), ((30,), 1), ((5, 6, 7), 1)]
VARIANTS = {
    "overlay": lambda found, image: found.plot(image),
    "tree": lambda found, image: found.plot.tree(),
    "levels": lambda found, image: found.plot.levels(image),
    "levels without image": lambda found, image: found.plot.levels(),
    "compare": lambda found, image: plot.compare(
        {"a": found.saliency(), "b": found.attribution()}, image, truth=image[0] > 0.5
    ),
    "compare without image": lambda found, image: plot.compare({"a": found.saliency()}),
    "curves": lambda found, image: plot.curves(
        {"h-Shap": ablation_curve(any_marked, image, found.saliency(), 0.0)}
    ),
}


def check(variant, grid, count, path):
    image = points(grid, count)
    figure = VARIANTS[variant](explain(image), image)
    assert isinstance(figure, figures.Figure)
    assert colours(figure, path) > 10


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_saved_figure_is_never_blank(variant, tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for grid, count in (((9, 14), 0), ((5, 6, 7), 1))[: 1 + (variant == "overlay")]:
        check(variant, grid, count, tmp_path / "x.png")
    assert pyplot.get_fignums() == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(("grid", "count"), SIZES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_figures_of_any_size_are_not_blank(variant, grid, count, tmp_path):
    check(variant, grid, count, tmp_path / "x.png")


@pytest.mark.parametrize("variant", ["overlay", "levels", "compare"])
def test_large_images_make_figures_of_usual_size(variant):
    image = points((1500, 300), 2)
    figure = VARIANTS[variant](explain(image, Dyadic(200)), image.repeat(3, axis=0))
    assert figure.get_figwidth() <= 10
    assert figure.get_figheight() <= 14
    if variant != "overlay":
        shown = [each.get_array() for axes in figure.axes for each in axes.images]
        assert max(max(each.shape[:2]) for each in shown) <= 1024
        maps = [axes.images[-1].get_array() for axes in figure.axes if axes.get_title()]
        assert sum(bool(heat.any()) for heat in maps) >= 2


@pytest.mark.parametrize("within", ["figure", "subfigure"])
def test_axes_and_figures_of_yours_are_drawn_on(within):
    image = points((8, 8))
    found = explain(image)
    spin = cycle_spin(
        Explainer(any_marked, Constant(0.0), Dyadic(2)), image, target=0, shifts=[0, 1]
    )

    def yours(**options):
        figure = figures.Figure(**options)
        return figure, figure if within == "figure" else figure.subfigures(1, 2)[1]

    for draw in (
        lambda ax: found.plot(image, ax=ax),
        lambda ax: found.plot.tree(ax=ax),
        lambda ax: plot.curves({"x": deletion(any_marked, image, image[0], 0.0)}, ax=ax),
        lambda ax: spin.plot(image, ax=ax),
    ):
        figure, inner = yours()
        left, right = inner.subplots(1, 2)
        assert draw(right) is figure
        assert right.has_data()
        assert not left.has_data()
    for draw in (
        lambda figure: found.plot.levels(image, figure=figure),
        lambda figure: plot.compare({"x": image[0]}, figure=figure),
    ):
        figure, inner = yours(layout="constrained")
        assert draw(inner) is figure
        assert all(axes.has_data() for axes in inner.axes)


def test_a_tree_has_a_box_for_each_region():
    found = explain(points((8, 8), 2), Dyadic(1))
    axes = found.plot.tree().axes[0]
    boxes, frames = ([path.vertices[:4] for path in each.get_paths()] for each in axes.collections)
    seen = 1 + sum(len(game.children) for game in found.games)
    assert len(boxes) == seen
    assert len(frames) == len(found.leaves)
    spans = {}
    for box in boxes:
        (left, top), (right, bottom) = box.min(axis=0), box.max(axis=0)
        assert bottom == top + 1
        spans.setdefault(top, []).append((left, right))
    for level, inner in spans.items():
        inner.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(inner))
        if level:
            above = spans[level - 1]
            assert all(any(a <= left and right <= b for a, b in above) for left, right in inner)
    ends = seen - len(found.games)
    assert spans[0.0] == [(0.0, ends)]


def test_levels_go_from_the_parts_to_the_leaves():
    labels = np.repeat([[0, 0, 1, 2]], 4, axis=0)  # a leaf stays on the levels below it
    uneven = np.repeat([[[1.0, 1.0, 0.0, 1.0]]], 4, axis=1)
    for found in (
        explain(points((16, 16), 2), Dyadic(1)),
        explain(uneven, Superpixels.from_labels(labels)),
    ):
        panels = [axes for axes in found.plot.levels().axes if axes.get_title()]
        titles = [f"level {i + 1}" for i in range(len(panels))]
        assert [axes.get_title() for axes in panels] == titles
        first, last = (np.asarray(panels[i].images[-1].get_array()) for i in (0, -1))
        root = found.games[0]
        for part, phi in zip(root.children, root.coefficients, strict=True):
            assert (first[part.index] == phi).all()
        for leaf in found.leaves:
            assert (last[leaf.index] == found.coefficients()[leaf.index]).all()
        few = [axes.get_title() for axes in found.plot.levels(most=2).axes]
        assert few[:2] == [titles[0], titles[-1]]


def test_maps_of_other_units_are_shares_of_their_largest_value():
    truth = np.zeros((6, 8), bool)
    truth[1:3, 2:5] = True
    image = np.full((3, 6, 8), 0.5)
    small, large = truth * 0.001, truth * -100.0
    figure = plot.compare({"small": small, "large": large}, image, truth=truth)
    *panels, bar = figure.axes
    assert [axes.get_title() for axes in panels] == ["image", "small", "large"]
    assert bar.get_ylabel() == "share of the largest value of each map"
    for axes, sign in zip(panels[1:], (1.0, -1.0), strict=True):
        assert axes.images[-1].get_clim() == (-1.0, 1.0)
        assert np.array_equal(axes.images[-1].get_array(), sign * truth)
    assert np.array_equal(panels[0].images[0].get_array(), np.moveaxis(image, 0, -1))
    for axes in panels:
        corners = np.concatenate(axes.collections[0].get_segments())
        assert (corners.min(axis=0) == (1.5, 0.5)).all()
        assert (corners.max(axis=0) == (4.5, 2.5)).all()


def test_explanations_are_compared_on_the_scale_of_their_scores():
    image = points((6, 8))
    strong, weak = explain(image), explain(image, Dyadic(4))
    *panels, bar = plot.compare([strong, weak], image).axes
    titles = ["image", "score, 95 %: 3 findings", "score, 95 %: 1 finding"]
    assert [axes.get_title().split(":")[-1] for axes in panels] == [
        title.split(":")[-1] for title in titles
    ]
    largest = max(one.attribution().max() for one in (strong, weak))
    assert {axes.images[-1].get_clim() for axes in panels[1:]} == {(0.0, largest)}
    assert bar.get_ylabel().startswith("score per pixel")


def test_a_sheet_has_a_picture_for_each_explanation():
    images = [points(grid) for grid in ((6, 8), (20, 7), (5, 9), (30,), (4, 5, 6))]
    found = [explain(image) for image in images]
    figure = plot.sheet(found, images, title="all")
    titles = [axes.get_title() for axes in figure.axes]  # a signal has a second axis
    assert list(filter(None, titles)) == [one.title for one in found]
    for one, axes in zip(found[:3], figure.axes, strict=False):
        assert np.array_equal(axes.images[-1].get_array(), one.attribution())
    assert len(plot.sheet(found[:1] * 5, columns=2).axes) == 5
    with pytest.raises(ArgumentError, match="images has 1 entries for 5 explanations"):
        plot.sheet(found, images[:1])
    for wrong in ([], [image[0] for image in images]):
        with pytest.raises(ArgumentError, match="pass a list of explanations"):
            plot.sheet(wrong)


def test_colour_bars_are_read_without_powers_of_ten():
    found = demo.example()
    figure = plot.draw(
        None, found.attribution() / 3e6, unit=Unit.of_shares(found.attribution() / 3e6)
    )
    figure.draw_without_rendering()
    bar = figure.axes[1]
    assert bar.get_ylabel().startswith("score per 10,000,000 pixels")
    texts = [text.get_text() for text in bar.get_yticklabels()]
    assert max(float(text) for text in texts) > 1


def test_faint_values_leave_the_image_as_it_is():
    heat = np.array([[0.0, 0.04, 0.06, 1.0]])
    mapped = plot.draw(np.ones((1, 1, 4)), heat).axes[0].images[1]
    opacity = mapped.cmap(mapped.norm(heat))[0, :, 3]
    assert opacity[:2].tolist() == [0.0, 0.0]
    assert 0 < opacity[2] < 0.2
    assert opacity[3] == pytest.approx(0.85)


def test_curves_with_log_steps_have_a_log_scale():
    even = Curve(np.array([0, 2, 4]), np.array([1.0, 0.5, 0.0]))
    uneven = Curve(np.array([0, 1, 100]), np.array([1.0, 0.5, 0.0]))
    assert plot.curves({"even": even}).axes[0].get_xscale() == "linear"
    axes = plot.curves({"even": even, "uneven": uneven}).axes[0]
    assert axes.get_xscale() == "symlog"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["even", "uneven"]
    assert np.array_equal(axes.lines[1].get_xdata(), uneven.counts)


MISTAKES = {
    "maps is {}; pass explanations, or a dictionary of names and maps": lambda: plot.compare({}),
    r"maps is ndarray of shape \(3, 3\); pass explanations": lambda: plot.compare(np.eye(3)),
    r"maps\['b'\] is ndarray of shape \(4, 4\) of type float64; .* first, \(3, 3\)": (
        lambda: plot.compare({"a": np.eye(3), "b": np.eye(4)})
    ),
    r"truth has shape \(2, 2\)": lambda: plot.compare({"a": np.eye(3)}, truth=np.eye(2)),
    r"image has shape \(1, 2, 2\)": lambda: plot.compare({"a": np.eye(3)}, np.zeros((1, 2, 2))),
    r"found is \[1, 2\]; pass a dictionary of names and curves": lambda: plot.curves([1, 2]),
    r"found\['a'\] is 3, which is no curve": lambda: plot.curves({"a": 3}),
    r"found\['a'\] is .*, which is no curve": lambda: plot.curves({"a": ([1, 2], [1])}),
    "most must be at least 1, got 0": lambda: demo.example().plot.levels(most=0),
    "ax is <Figure .*; pass matplotlib axes": (lambda: demo.example().plot(ax=figures.Figure())),
    "figure is 3; pass a matplotlib figure or subfigure": (
        lambda: demo.example().plot.levels(figure=3)
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message):
    with pytest.raises(ArgumentError, match=message):
        MISTAKES[message]()


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    image = points((4, 4))
    found = explain(image)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in VARIANTS.values():
        with pytest.raises(MissingExtraError, match="needs matplotlib: pip install matplotlib"):
            draw(found, image)


def test_a_notebook_shows_settings_and_no_markup():
    made = explain(points((4, 4)))
    hostile = {"<b>": {"type": "<script>", "x": "\"'<img onerror=alert(1)>" + "y" * 5000}}
    found = dataclasses.replace(made, settings=made.settings.updated(**hostile))
    html = found._repr_html_()
    assert "Bisection(min_size=1)" in html
    assert re.findall(r"<(\w+)", html) == [
        *("figure", "img", "figcaption", "details", "summary", "table"),
        *["tr", "th", "td"] * len(found.settings),
    ]
    assert len(html) < 10_000


def test_a_notebook_shows_large_explanations_in_little_space():
    assert len(enlarged(spotted(200), 10)._repr_html_()) < 100_000


def test_a_notebook_needs_no_library(monkeypatch):
    for module in ("matplotlib", "PIL"):
        monkeypatch.setitem(sys.modules, module, None)
    (data,) = re.findall(r"base64,([^\"]+)", demo.example()._repr_html_())
    assert base64.b64decode(data).startswith(b"\x89PNG")
    explainer = Explainer(any_marked, Constant(0.0), Dyadic(2))
    spun = cycle_spin(explainer, marked((8, 8), [9]), target=0, shifts=[0, 1])
    assert re.findall(r"<(\w+)", spun._repr_html_()) == ["figure", "img", "figcaption"]
    assert "Spin of 2 explanations" in spun._repr_html_()


@pytest.mark.parametrize(
    "title", ["細胞 中文.png", "клетка", "a\U000f1234b", '\N{MICROSCOPE} a\'b "c"']
)
def test_titles_in_any_script_are_drawn(title, tmp_path):
    # Warnings are errors here, also those of matplotlib about missing letters.
    demo.example().plot(title=title).savefig(tmp_path / "a.png")
    figure = plot.compare({title: np.eye(4)}, title=title)
    figure.savefig(tmp_path / "b.png")
    if title[0] in "aк":  # letters of the fonts that matplotlib brings, and one that no font has
        shown = title.replace("\U000f1234", "\N{WHITE SQUARE}")
        assert figure.axes[0].get_title() == shown


def test_pictures_of_volumes_name_their_slice():
    heat, other = np.zeros((5, 4, 4)), np.zeros((5, 4, 4))
    heat[3, 1, 1], other[3, 2, 2], other[0] = 1.0, 1.0, 0.2
    image = np.zeros((1, 5, 4, 4))
    assert plot.draw(image, heat).axes[0].get_xlabel() == "slice 3 of 0 to 4"
    assert plot.draw(None, heat).axes[0].get_xlabel() == "largest values of slices 0 to 4"
    assert plot.draw(None, heat[3]).axes[0].get_xlabel() == ""
    both = plot.compare({"a": heat, "b": other}, image).axes
    assert both[0].get_xlabel() == "slice 3 of 0 to 4"
    for axes, one in zip(both[1:3], (heat, other), strict=True):
        assert np.array_equal(axes.images[-1].get_array(), one[3])
