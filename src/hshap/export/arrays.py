"""Explanations as tables and arrays of other libraries: pandas, xarray, shap and napari."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError, require
from hshap.export.map_files import as_scan
from hshap.export.placed_findings import as_explanation, labels
from hshap.games.tree import parts
from hshap.partitions.regions import Rolled, blocks

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hshap._util.types import Array, Untyped
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.placement import Placement, Position
    from hshap.formats.scan import Scan
    from hshap.partitions.protocol import Region


AXES = ("z", "y", "x")
NAMES = {"D": "z", "H": "y", "W": "x"}
"""Names of axes whose letter in a layout is another one."""


def table(explanation: Explanation, *, every: bool = False) -> Untyped:
    """Return a pandas table with a row for each leaf, or for `every` visited region.

    `parent` is the row of the region that contains it, -1 for the whole image; `attribution` is its
    share of the score that the image adds to the baseline. A block that continues at the opposite
    border has a `stop` beyond the grid; a free form has the start and stop of the box around it.
    Starts, stops and sizes are in pixels of the original image, by the explanation's `placement`;
    a region in padding is cut to the image, and has a size of 0 beside it.

    >>> from hshap.demo import example
    >>> table(example())[["depth", "size", "coefficient", "y_start", "x_start"]].to_dict("list")
    {'depth': [3], 'size': [1], 'coefficient': [1.0], 'y_start': [2], 'x_start': [5]}
    """
    pandas = require("pandas", needed_by="export.table")
    seen = parts(as_explanation(explanation).games, draws=explanation.draws)
    leaves = set(explanation.leaves)
    wanted = (
        list(seen.values())
        if checks.flag("every", every)
        else [seen[leaf] for leaf in explanation.leaves]
    )
    place = explanation.placement
    kind = np.int64 if place.is_identity else np.float64
    spans = [_span(part.region, place) for part in wanted]
    bounds = np.array(spans, dtype=kind).reshape(-1, 2, len(explanation.grid))
    columns: dict[str, Array] = {
        "parent": np.array([part.parent for part in wanted], dtype=np.int64),
        "depth": np.array([part.depth for part in wanted], dtype=np.int64),
        "leaf": np.array([part.region in leaves for part in wanted], dtype=bool),
        "size": np.array([place.area(part.region) for part in wanted], dtype=kind),
        "coefficient": np.array([part.coefficient for part in wanted], dtype=np.float64),
        "error": np.array([part.error for part in wanted], dtype=np.float64),
        "attribution": np.array([part.share for part in wanted], dtype=np.float64),
    }
    for axis, name in enumerate(_axes(explanation)):
        columns[f"{name}_start"], columns[f"{name}_stop"] = bounds[:, :, axis].T
    numbers = np.array([part.number for part in wanted], dtype=np.int64)
    return pandas.DataFrame(columns, index=pandas.Index(numbers, name="region"))


def dataarray(explanation: Explanation, *, heat: ArrayLike | None = None) -> Untyped:
    """Return a map as an xarray array, with the scores and settings of the run as attributes.

    `heat` is the map, by default `coefficients()`. Axes are named as in the layout of the run,
    such as (t, y, x), and else (z, y, x), (y, x) or (x). Coordinates are the centres of pixels in
    the original image, whose first pixel is at 0.

    >>> from hshap.demo import example
    >>> array = dataarray(example())
    >>> array.dims, array.sizes["x"], float(array.sel(y=2, x=5)), array.attrs["evaluations"]
    (('y', 'x'), 8, 1.0, 44)
    """
    xarray = require("xarray", needed_by="export.dataarray")
    grid = as_explanation(explanation).grid
    values = explanation.coefficients() if heat is None else to_numpy("heat", heat)
    if values.shape != grid:
        message = f"heat has shape {values.shape}; pass a map of shape {grid}"
        raise ArgumentError(message)
    names, place = _axes(explanation), explanation.placement
    return xarray.DataArray(
        values,
        dims=names,
        coords={
            name: np.arange(grid[axis]) if place.is_identity else place.centres(axis)
            for axis, name in enumerate(names)
        },
        name="coefficient" if heat is None else "heat",
        attrs={
            "target": explanation.target,
            "score": explanation.score,
            "baseline_score": explanation.baseline_score,
            "residual": explanation.residual,
            "evaluations": explanation.evaluations,
            "settings": json.dumps(explanation.settings.document),
        },
    )


def shap_values(explanation: Explanation, image: ArrayLike) -> Untyped:
    """Return a `shap.Explanation` of one image, for shap's own plots.

    The values are `attribution()`, spread evenly over the channels; their shape is
    `(1, *grid, channels, 1)`. Values, base value and `residual` add up to the score.

    >>> from hshap.demo import example
    >>> found = example()
    >>> values = shap_values(found, np.zeros((3, 8, 8)))
    >>> values.shape, values.output_names
    ((1, 8, 8, 3, 1), ['0'])
    """
    shap = require("shap", needed_by="export.shap_values")
    grid = as_explanation(explanation).grid
    pixels = to_numpy("image", image)
    if pixels.shape[1:] != grid:
        message = (
            f"image has shape {pixels.shape}, but the explanation has {grid}; "
            "pass the image that was explained, (channels, *grid)"
        )
        raise ArgumentError(message)
    channels = len(pixels)
    values = np.repeat(explanation.attribution()[..., None] / channels, channels, axis=-1)
    return shap.Explanation(
        values=values[None, ..., None],
        base_values=np.array([[explanation.baseline_score]]),
        data=np.moveaxis(pixels, 0, -1)[None],
        output_names=[str(explanation.target)],
        compute_time=explanation.seconds,
    )


def _span(region: Region, place: Placement) -> tuple[Position, Position]:
    """Return the first and the last position of a region in the original image."""
    if not isinstance(region, Rolled):
        return place.box(*blocks(region, place.grid)[0])
    last = tuple(a + n for a, n in zip(region.start, region.shape, strict=True))
    ends = [sorted(pair) for pair in zip(place.point(region.start), place.point(last), strict=True)]
    return tuple(low for low, _ in ends), tuple(high for _, high in ends)


def _axes(explanation: Explanation) -> tuple[str, ...]:
    """Return the names of the axes: those of the layout, else z, y and x."""
    grid, letters = explanation.grid, explanation.settings.axes
    names = tuple(NAMES.get(letter, letter.lower()) for letter in letters)
    if len(names) == len(grid) == len(set(names)):
        return names
    return AXES[-len(grid) :] if len(grid) <= 3 else tuple(f"axis_{i}" for i in range(len(grid)))


def napari_layers(
    explanation: Explanation, scan: Scan | None = None
) -> list[tuple[Array, dict[str, Untyped], str]]:
    """Return the layers of an explanation as tuples that napari takes.

    The layers are the image of `scan`, the attribution, the labels of findings, and boxes around
    them as shapes. Open them by `viewer.add_layer(napari.layers.Layer.create(*layer))`. The scale
    is the spacing of the scan in millimetres.

    >>> from hshap.demo import example
    >>> [(kind, options["name"]) for _, options, kind in napari_layers(example())]
    [('image', 'attribution'), ('labels', 'findings'), ('shapes', 'boxes')]
    """
    made = as_explanation(explanation)
    shape = made.placement.shape
    scale = {"scale": (1.0,) * len(shape)}
    layers: list[tuple[Array, dict[str, Untyped], str]] = []
    if scan is not None:
        found = as_scan(scan)
        if found.grid != shape:
            message = f"scan has the grid {found.grid}, but the explanation is of {shape}"
            raise ArgumentError(f"{message}; pass the scan that was explained")
        sizes = dict(zip(found.spatial, found.spacing or (), strict=False))
        scale = {"scale": tuple(sizes.get(axis, 1.0) for axis in found.axes[1:])}
        channels = {"channel_axis": 0} if len(found.array) > 1 else {}
        pixels = found.array if channels else found.array[0]
        names = [f"image {n}" for n in range(len(found.array))] if channels else "image"
        layers.append((pixels, {"name": names, **scale, **channels}, "image"))
    heat = made.placement.spread(made.attribution())
    shown = {"colormap": "inferno", "blending": "additive", "opacity": 0.7}
    layers.append((heat, {"name": "attribution", **scale, **shown}, "image"))
    numbers = labels(made)
    layers.append((numbers.astype(np.int32), {"name": "findings", **scale}, "labels"))
    boxes = made.boxes()
    corners = [_rectangle(box.start, box.stop) for box in boxes]
    features = {"score": [box.score for box in boxes]}
    options = {"name": "boxes", **scale, "shape_type": "rectangle", "features": features}
    options |= {"edge_color": "#d55e00", "face_color": "transparent", "edge_width": 0.5}
    layers.append((corners, options, "shapes"))  # pyright: ignore[reportArgumentType]
    return layers


def _rectangle(start: tuple[int, ...], stop: tuple[int, ...]) -> Array:
    """Return the corners of a box in its middle plane, around its pixels, whose centres count."""
    middle = [(a + b - 1) / 2 for a, b in zip(start[:-2], stop[:-2], strict=True)]
    (top, left), (bottom, right) = start[-2:], stop[-2:]
    flat = [(top, left), (top, right), (bottom, right), (bottom, left)]
    return np.array([[*middle, y - 0.5, x - 0.5] for y, x in flat])
