"""Regions as COCO and as GeoJSON, exact to the pixel."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from hshap._util import checks
from hshap._util.atomic import replace
from hshap.errors import ArgumentError
from hshap.export.inputs import as_name, by_file, picture_grid
from hshap.games.tree import parts
from hshap.partitions.outlines import polygons
from hshap.partitions.regions import Box, Pixels, Rolled, blocks, mask, runs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike
    from pathlib import Path

    from hshap._util.types import Grid, Json
    from hshap.explanation.explanation import Explanation
    from hshap.games.tree import Part
    from hshap.partitions.outlines import Ring
    from hshap.partitions.protocol import Region

# The colours of Okabe and Ito, distinct for colour-blind readers.
COLOURS = (
    (213, 94, 0),
    (0, 114, 178),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (240, 228, 66),
)


def coco(explanations: Mapping[str, Explanation], *, category: str = "finding") -> dict[str, Json]:
    """Return a COCO document with an image for each file name and an annotation for each leaf.

    The `score` of an annotation is the coefficient of its leaf, `leaf` its position among the
    leaves. A leaf that continues at the opposite border has one annotation for each piece.
    Segmentations are polygons, or runs of pixels for leaves with holes, which COCO's polygons
    cannot have.

    >>> from hshap.demo import example
    >>> document = coco({"cell.png": example()})
    >>> document["images"]
    [{'id': 1, 'file_name': 'cell.png', 'width': 8, 'height': 8}]
    >>> [(each["bbox"], each["score"]) for each in document["annotations"]]
    [([5, 2, 1, 1], 1.0)]
    """
    name = as_name("category", category)
    images: list[Json] = []
    annotations: list[Json] = []
    for number, (file, explanation) in enumerate(by_file(explanations).items(), start=1):
        grid = picture_grid("coco", explanation)
        images.append({"id": number, "file_name": str(file), "width": grid[1], "height": grid[0]})
        for each in _annotations(explanation, grid):
            place = {"id": len(annotations) + 1, "image_id": number, "category_id": 1}
            annotations.append({**place, **each})
    return {
        "info": {"description": "Regions found by hshap"},
        "licenses": [],
        "images": images,
        "categories": [{"id": 1, "name": name, "supercategory": ""}],
        "annotations": annotations,
    }


def geojson(
    explanation: Explanation, *, name: str = "finding", detections: bool = False
) -> dict[str, Json]:
    """Return a GeoJSON document for QuPath, with a feature for each leaf.

    Features are annotations of the class `name`. With `detections` they are detections, which
    QuPath handles faster by the thousands. Their measurements are the leaf's coefficient, its share
    of `attribution()`, and its number of pixels.

    >>> from hshap.demo import example
    >>> (feature,) = geojson(example(), name="cross")["features"]
    >>> feature["geometry"]
    {'type': 'Polygon', 'coordinates': [[[5, 2], [6, 2], [6, 3], [5, 3], [5, 2]]]}
    >>> feature["properties"]["measurements"]
    {'coefficient': 1.0, 'attribution': 1.0, 'pixels': 1}
    """
    grid = picture_grid("geojson", explanation)
    label = as_name("name", name)
    shared = {
        "objectType": "detection" if checks.flag("detections", detections) else "annotation",
        "classification": {
            "name": label,
            "color": list(COLOURS[crc32(label.encode()) % len(COLOURS)]),
        },
    }
    seen = parts(explanation.games, draws=explanation.draws)
    features = [
        {
            "type": "Feature",
            "geometry": _geometry(leaf, grid),
            "properties": {**shared, "measurements": _measurements(seen[leaf])},
        }
        for leaf in explanation.leaves
    ]
    return {"type": "FeatureCollection", "features": features}


def write_json(path: str | PathLike[str], document: Mapping[str, Json]) -> Path:
    """Write a document and return the path; an existing file stays until the new one is complete.

    >>> from hshap.demo import example
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(f"{folder}/cell.geojson", geojson(example())).stat().st_size > 100
    True
    """
    try:
        text = json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        message = (
            f"document cannot be written as JSON ({error}); pass the result of coco() or geojson()"
        )
        raise ArgumentError(message) from error
    return replace(path, lambda file: file.write(text.encode()))


def _annotations(explanation: Explanation, grid: tuple[int, int]) -> list[dict[str, Json]]:
    seen = parts(explanation.games, draws=explanation.draws)
    return [
        {
            "bbox": [left, top, right - left, bottom - top],
            "area": piece.area,
            "segmentation": _segmentation(piece, grid),
            "iscrowd": 0,
            "score": seen[leaf].coefficient,
            "leaf": number,
        }
        for number, leaf in enumerate(explanation.leaves)
        for piece in _pieces(leaf, grid)
        for (top, left), (bottom, right) in blocks(piece, grid)
    ]


def _pieces(region: Region, grid: Grid) -> list[Region]:
    """Return a block that continues at the opposite border as separate boxes."""
    if isinstance(region, Rolled):
        return [Box(start, stop) for start, stop in blocks(region, grid)]
    return [region]


def _segmentation(region: Region, grid: tuple[int, int]) -> Json:
    pieces = polygons(region, grid)
    if not any(piece.holes for piece in pieces):
        return [[number for corner in piece.shell for number in corner] for piece in pieces]
    rows, columns = (
        region.index if isinstance(region, Pixels) else np.nonzero(mask((region,), grid))
    )
    # COCO counts pixels column by column; the first run lies outside the region.
    ends = runs(np.sort(columns * grid[0] + rows))
    counts = np.diff([0, *ends.tolist(), grid[0] * grid[1]]).tolist()
    return {"size": list(grid), "counts": counts if counts[-1] else counts[:-1]}


def _geometry(region: Region, grid: tuple[int, int]) -> Json:
    pieces = [
        [_closed(ring) for ring in (piece.shell, *piece.holes)] for piece in polygons(region, grid)
    ]
    if len(pieces) == 1:
        return {"type": "Polygon", "coordinates": pieces[0]}
    return {"type": "MultiPolygon", "coordinates": pieces}


def _closed(ring: Ring) -> list[list[int]]:
    return [list(corner) for corner in (*ring, ring[0])]


def _measurements(part: Part) -> dict[str, float]:
    figures = {"coefficient": part.coefficient, "attribution": part.share}
    figures["pixels"] = part.region.area
    if part.error and isfinite(part.error):
        figures["standard error"] = part.error
    return figures
