"""Findings of many forms, at many places, and readers of shapes in documents.

The readers follow the rules of the formats: slow, short, and without code of hshap.
"""

from __future__ import annotations

from math import prod
from xml.etree import ElementTree as ET

import numpy as np
from hypothesis import strategies as st
from oracle import any_marked, marked

from hshap import Constant, DepthFirst, Dyadic, Explainer, Explanation, Shifted, Superpixels
from hshap.images import Placement
from hshap.protocols import Game, Pixels


def filled(rings, grid):
    """Return the pixels whose centre lies in rings of (x, y), by the even-odd rule."""
    y, x = np.mgrid[: grid[0], : grid[1]] + 0.5
    out = np.zeros(grid, bool)
    for ring in rings:
        for (ax, ay), (bx, by) in zip(ring, [*ring[1:], ring[0]], strict=True):
            if ay != by:
                out ^= ((ay <= y) != (by <= y)) & (x < ax + (y - ay) * (bx - ax) / (by - ay))
    return out


def rings_of(geometry):
    """Return all rings of a GeoJSON geometry."""
    parts = geometry["coordinates"]
    return [
        ring for part in (parts if geometry["type"] == "MultiPolygon" else [parts]) for ring in part
    ]


def area_of(ring):
    """Return the signed area of a ring: positive if it turns from x to y."""
    x, y = np.array([*ring, ring[0]], float).T
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)


def unpacked(segmentation, grid):
    """Return the pixels of a segmentation of COCO: polygons, or runs from column to column."""
    if isinstance(segmentation, list):
        return filled([list(zip(r[::2], r[1::2], strict=True)) for r in segmentation], grid)
    counts = segmentation["counts"]
    assert segmentation["size"] == list(grid)
    return np.repeat(np.arange(len(counts)) % 2, counts).reshape(grid, order="F") == 1


def _pairs(flat):
    return list(zip(flat[::2], flat[1::2], strict=True))


def _inside_any(rings, grid):
    """Return the pixels in polygons, each of which is cut open to its hole."""
    return np.any([filled([ring], grid) for ring in rings], axis=0)


def in_coco(read, grid):
    inside = [unpacked(each["segmentation"], grid) for each in read["annotations"]]
    return read["images"][0]["file_name"], np.any(inside, axis=0)


def in_geojson(read, grid):
    return None, np.any(
        [filled(rings_of(one["geometry"]), grid) for one in read["features"]], axis=0
    )


def in_cvat(text, grid):
    (image,) = ET.fromstring(text).findall("image")  # noqa: S314, our own
    assert (image.get("height"), image.get("width")) == tuple(map(str, grid))
    rings = [each.get("points").split(";") for each in image.findall("polygon")]
    rings = [[tuple(map(float, point.split(","))) for point in ring] for ring in rings]
    return image.get("name"), _inside_any(rings, grid)


def in_label_studio(read, grid):
    (task,) = read
    found = [each["value"]["points"] for each in task["predictions"][0]["result"]]
    rings = [[(x * grid[1] / 100, y * grid[0] / 100) for x, y in ring] for ring in found]
    return task["data"]["image"], _inside_any(rings, grid)


TOOLS = {  # readers of documents: the name of the image, and the pixels of its findings
    "coco": in_coco,
    "cvat": in_cvat,
    "label-studio": in_label_studio,
}


def with_leaf(place, region):
    """Return an explanation with one leaf: a region, or one that has the pixels of a mask."""
    if isinstance(region, np.ndarray):
        region = Pixels(np.flatnonzero(region), place.grid)
    game = Game(region, (region,), np.array([0.0, 1.0]), np.ones(1), np.zeros(1))
    return Explanation(place.grid, 0, (region,), (game,), 2, 0.0, placement=place)


def mask_of(leaf, grid):
    """Return the pixels of a leaf."""
    out = np.zeros(grid, bool)
    out[leaf.index] = True
    return out


# Findings


def explain(image, partition=None, model=any_marked, baseline=None):
    explainer = Explainer(model, baseline or Constant(0.0), partition or Dyadic(2), DepthFirst())
    return explainer.explain(image, target=0)


def points(grid, count, seed=0):
    return marked(grid, np.random.default_rng(seed).choice(np.prod(grid), count, replace=False))


def ring_and_crumbs():
    """Explain a ring around a hole with a piece in it, and two pieces that touch in a corner.

    The ring's hole reaches its border in a corner, so that outer and inner rings touch.
    """
    labels = np.zeros((9, 12), int)
    labels[1:7, 1:7] = 1
    labels[2:6, 2:6] = 0
    labels[5, 5], labels[6, 6] = 1, 0
    labels[3, 3] = 1
    labels[1, 9], labels[2, 10] = 4, 4
    labels[8, 11] = 7
    return explain((labels[None] % 3 == 1).astype(np.float32), Superpixels.from_labels(labels))


CASES = {
    "boxes": lambda: explain(points((13, 17), 4)),
    "rolled": lambda: explain(marked((13, 17), [0, 110, 220]), Shifted(Dyadic(3), offset=(5, 7))),
    "free": ring_and_crumbs,
    "whole": lambda: explain(points((6, 5), 1), Dyadic(9)),
    "empty": lambda: explain(marked((13, 17), [])),
}


HEIGHT, WIDTH = 40, 60
TRUTH = np.zeros((HEIGHT, WIDTH), bool)
TRUTH[8:24, 12:32] = True
TRUTH[14:18, 20:26] = False  # a ring, so that polygons need a hole, and a bar
TRUTH[30:34, 40:56] = True


# Places


@st.composite
def lines(draw):
    """One axis: sides of grid and image, and where the grid begins and ends in the image."""
    side, shape = draw(st.integers(1, 7)), draw(st.integers(1, 12))
    start = draw(st.integers(-4, shape + 4)) / draw(st.sampled_from([1, 2, 4]))
    stop = draw(st.integers(-4, shape + 4)) / draw(st.sampled_from([1, 2, 4]))
    if start == stop or max(start, stop) <= 0 or min(start, stop) >= shape:
        start, stop = 0, shape
    return side, shape, start, stop


@st.composite
def placements(draw, axes=2):
    grid, shape, start, stop = zip(*(draw(lines()) for _ in range(axes)), strict=True)
    return Placement(grid, shape, start, stop)


def pixels(data, place, values):
    count = prod(place.grid)
    drawn = data.draw(st.lists(values, min_size=count, max_size=count))
    return np.array(drawn).reshape(place.grid)
