"""Layers of napari: the image, a map, and findings as labels and boxes, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import ArgumentError
from hshap.export.findings import labels
from hshap.export.inputs import as_explanation
from hshap.export.scans.places import as_scan

if TYPE_CHECKING:
    from hshap._util.types import Array, Untyped
    from hshap.explanation.explanation import Explanation
    from hshap.formats.scan import Scan


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
