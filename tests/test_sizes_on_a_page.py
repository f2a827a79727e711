"""Explanations of one image at different sizes on one page: each is as on a page of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from browsers import drawn, explained, point_at
from oracle import any_marked, marked

import hshap
from hshap import ArgumentError, Placement
from hshap.export.page import View
from hshap.export.page.shared_grid import shared_grid

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

PLACES = {
    "resized": {"shape": (120, 155)},
    "cropped": {"shape": (120, 155), "start": (10, 20), "stop": (110, 130)},
    "padded and flipped": {"shape": (90, 100), "start": (-8, 120), "stop": (90, -3.5)},
}


def at_sizes(name):
    """Return two models' explanations of one image, 24 x 31 and 32 x 20, at a place."""
    made = [
        explained(3, hshap.Dyadic(2), hshap.DepthFirst(0.02))[1],
        explained(5, hshap.Bisection("auto"), hshap.DepthFirst(), grid=(32, 20))[1],
    ]
    return [replace(one, placement=Placement(one.grid, **PLACES[name])) for one in made]


@pytest.mark.parametrize("name", PLACES)
def test_findings_of_each_are_those_of_its_own_page(show, name):
    both = at_sizes(name)
    place = both[0].placement
    image = np.random.default_rng(0).integers(0, 256, place.shape, dtype=np.uint8)
    tab = show([View("x.png", image, {"a": both[0], "b": both[1]})])
    mask_module = pytest.importorskip("pycocotools.mask")
    for asked in ({}, {"tolerance": 0.4}, {"side": 6}):
        tab.evaluate("(asked) => hshap.set(asked)", asked)
        found = tab.evaluate("hshap.findings()")
        document = tab.evaluate("hshap.coco()")
        for klass, one in enumerate(both):
            limits = tab.evaluate("(klass) => hshap.limits(klass)", klass)
            names = {"level": "tolerance", "size": "min_size"}
            again = one.at(**{names[k]: v for k, v in limits.items() if v is not None})
            assert [
                (tuple(box["start"]), tuple(box["stop"]), box["score"])
                for box in found["classes"][klass]["findings"]
            ] == [tuple(box) for box in again.boxes()]
            seen = np.zeros(place.shape, bool)
            for each in document["annotations"]:
                if each["category_id"] == klass + 1:
                    counts = each["segmentation"]
                    runs = mask_module.frPyObjects(counts, *counts["size"])
                    seen |= mask_module.decode(runs).astype(bool)
            truth = np.zeros(one.grid, bool)
            for leaf in again.leaves:
                truth[leaf.index] = True
            assert np.array_equal(seen, again.placement.nearest(truth))
            shares = [box["share"] for box in found["classes"][klass]["findings"]]
            if again.placement.is_inside:  # findings in padding have no place
                assert sum(shares) == pytest.approx(truth.mean(), rel=1e-9)


def test_the_region_under_the_pointer_is_that_of_the_class(show):
    both = at_sizes("resized")
    image = np.full(both[0].placement.shape, 90, np.uint8)
    tab = show([View("x.png", image, {"a": both[0], "b": both[1]})])
    for klass, one in enumerate(both):
        leaf = one.leaves[0]
        ends = zip(*one.placement.box(leaf.start, leaf.stop), strict=True)
        middle = [int(sum(pair) / 2) for pair in ends]
        tab.evaluate("(n) => document.querySelectorAll('.screen')[n].focus()", klass)
        point_at(tab, middle, panel=klass)
        drawn(tab)
        assert tab.locator("#region dd").nth(1).text_content() == "finding"


def test_the_lines_of_a_shared_grid_are_those_of_both():
    made = shared_grid([Placement((4, 3), (12, 12)), Placement((6, 2), (12, 12))])
    assert made.positions == ((0, 2, 3, 4, 6, 8, 9, 10, 12), (0, 4, 6, 8, 12))
    for grid, expected in (
        ((4, 3), [[0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 1, 2]]),
        ((6, 2), [[0, 1, 1, 2, 3, 4, 4, 5], [0, 0, 1, 1]]),
    ):
        assert [axis.tolist() for axis in made.pixels(grid)] == expected


def test_explanations_of_different_sizes_need_the_original_image():
    both = at_sizes("resized")
    named = {"a": both[0], "b": both[1]}
    with pytest.raises(ArgumentError, match="original image of 120 x 155"):
        View("x.png", np.zeros((1, 24, 31)), named)
    image = np.zeros((120, 155))
    with pytest.raises(ArgumentError, match="truth is given"):
        View("x.png", image, named, truth=np.zeros((24, 31), bool))
    elsewhere = replace(both[1], placement=Placement((32, 20), (120, 155), (0, 0), (60, 60)))
    with pytest.raises(ArgumentError, match="another place"):
        View("x.png", image, {"a": both[0], "b": elsewhere})


def test_an_image_that_one_model_saw_in_full_is_the_original(show):
    image = marked((16, 20), [5, 200])
    make = lambda pixels: hshap.Explainer(
        any_marked, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(2)
    ).explain(pixels, 0)
    small = make(image[:, ::2, ::2]).placed((16, 20))
    found = View("x.png", image, {"full": make(image), "half": small})
    assert found.is_original
    tab = show([found])
    for klass, one in enumerate(found.explanations.values()):
        boxes = tab.evaluate("hshap.findings()")["classes"][klass]["findings"]
        assert [(tuple(b["start"]), tuple(b["stop"])) for b in boxes] == [
            (box.start, box.stop) for box in one.boxes()
        ]
