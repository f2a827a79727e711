"""Regions as COCO and as GeoJSON, exact to the pixel, in pixels of the original image."""

from __future__ import annotations

import json
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias, cast
from uuid import UUID
from zlib import crc32

from hshap._util import checks
from hshap._util.atomic import replace
from hshap.errors import ArgumentError
from hshap.explanation.explanation import Explanation
from hshap.explanation.findings import finding_score
from hshap.export.placed_findings import (
    as_name,
    as_result,
    bounds,
    by_category,
    column_runs,
    image_size,
    leaves_of,
    outlines,
    picture_size,
    pieces,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from hshap._util.types import Json, Untyped
    from hshap.explanation.placement import Placement
    from hshap.explanation.tiled import Leaf, TiledExplanation
    from hshap.export.placed_findings import Line
    from hshap.partitions.protocol import Region

Result: TypeAlias = "Explanation | TiledExplanation"
"""An explanation of an image, or of a large image by tiles."""

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


def coco(
    explanations: Mapping[str, Result | Mapping[str, Result]],
    *,
    category: str = "finding",
) -> dict[str, Json]:
    """Return a COCO document with an image for each file name and an annotation for each leaf.

    An image has one explanation, of the category `category`, or one for each of several categories:
    `{"cell.png": {"ring": ..., "spot": ...}}`. A large image has the result of `explain_tiles`, and
    an annotation for each leaf inside its tiles. The `score` of an annotation is the coefficient of
    its leaf, or after `BestFirst` its share; `leaf` is its position among the leaves. A leaf that
    continues at the opposite border has one annotation for each piece. Segmentations are polygons,
    or runs of pixels for leaves with holes, which COCO's polygons cannot have. All places and areas
    are in pixels of the original image, by the explanation's `placement`. A photograph that
    `hshap explain` turned upright has those of the upright image, and a `note` that says so.

    >>> from hshap.demo import example
    >>> document = coco({"cell.png": example()})
    >>> document["images"]
    [{'id': 1, 'file_name': 'cell.png', 'width': 8, 'height': 8}]
    >>> [(each["bbox"], each["score"]) for each in document["annotations"]]
    [([5, 2, 1, 1], 1.0)]
    >>> two = coco({"cell.png": {"ring": example(), "spot": example()}})
    >>> [each["name"] for each in two["categories"]]
    ['ring', 'spot']
    """
    name = as_name("category", category)
    given = by_category(explanations, name)
    names = dict.fromkeys(label for classes in given.values() for label in classes)
    numbers = {label: number for number, label in enumerate(names or (name,), start=1)}
    images: list[Json] = []
    annotations: list[Json] = []
    for number, (file, classes) in enumerate(given.items(), start=1):
        height, width = image_size("coco", file, classes)
        image: dict[str, Json] = {"id": number, "file_name": file, "width": width, "height": height}
        notes = dict.fromkeys(map(turned, classes.values()))
        images.append(image | dict.fromkeys(["note"] if any(notes) else [], ", ".join(notes)))
        for label, explanation in classes.items():
            for each in _annotations(explanation):
                place = {"id": len(annotations) + 1, "image_id": number}
                annotations.append({**place, "category_id": numbers[label], **each})
    return {
        "info": {"description": "Regions found by hshap"},
        "licenses": [],
        "images": images,
        "categories": [
            {"id": number, "name": label, "supercategory": ""} for label, number in numbers.items()
        ],
        "annotations": annotations,
    }


def coco_results(
    explanations: Mapping[str, Result | Mapping[str, Result]],
    *,
    dataset: Mapping[str, Json] | None = None,
    category: str = "finding",
) -> list[dict[str, Json]]:
    """Return a list of results that `COCO.loadRes` of pycocotools takes: an entry for each leaf.

    `dataset` is the COCO document of the images, such as that of the truth. Its images are found by
    their file names and its categories by their names, so that results have its numbers. Without
    it, numbers are those of `coco(explanations)`.

    >>> from hshap.demo import example
    >>> truth = {"images": [{"id": 7, "file_name": "cell.png"}], "categories": [
    ...     {"id": 3, "name": "finding"}]}
    >>> (found,) = coco_results({"cell.png": example()}, dataset=truth)
    >>> found["image_id"], found["category_id"], found["bbox"], found["score"]
    (7, 3, [5, 2, 1, 1], 1.0)
    """
    document = coco(explanations, category=category)
    images = _numbers(document, dataset, "images", "file_name")
    categories = _numbers(document, dataset, "categories", "name")
    return [
        {
            "image_id": images[one["image_id"]],
            "category_id": categories[one["category_id"]],
            **{key: one[key] for key in ("bbox", "segmentation", "score")},
        }
        for one in cast("list[dict[str, Untyped]]", document["annotations"])
    ]


def _numbers(
    document: Mapping[str, Untyped],
    dataset: Mapping[str, Untyped] | None,
    kind: str,
    name: str,
) -> dict[int, int]:
    """Return the numbers that a data set has for the images or categories of a document."""
    own = {entry[name]: entry["id"] for entry in document[kind]}
    if dataset is None:
        return {number: number for number in own.values()}
    known = {entry[name]: entry["id"] for entry in dataset.get(kind, ())}
    missing = [text for text in own if text not in known]
    if missing:
        message = (
            f"dataset has no {kind} named {checks.shown(missing[0])}; pass the COCO document whose "
            f"{kind} have these names"
        )
        raise ArgumentError(message)
    return {number: known[text] for text, number in own.items()}


def geojson(
    explanation: Result, *, name: str = "finding", detections: bool = False
) -> dict[str, Json]:
    """Return a GeoJSON document for QuPath, with a feature for each leaf.

    The explanation may be that of a large image by tiles; then a leaf is one inside a tile.
    Features are annotations of the class `name`. With `detections` they are detections, which
    QuPath handles faster by the thousands. Their measurements are the leaf's coefficient, its share
    of `attribution()`, and its area. Places and areas are in pixels of the original image, by the
    explanation's `placement`. Those of a photograph that `hshap explain` turned upright are of the
    upright image, and a `note` of the document says so.

    >>> from hshap.demo import example
    >>> (feature,) = geojson(example(), name="cross")["features"]
    >>> feature["geometry"]
    {'type': 'Polygon', 'coordinates': [[[5, 2], [6, 2], [6, 3], [5, 3], [5, 2]]]}
    >>> feature["properties"]["measurements"]
    {'coefficient': 1.0, 'attribution': 1.0, 'pixels': 1}
    """
    result = as_result(explanation)
    picture_size("geojson", result)
    label = as_name("name", name)
    shared = {
        "objectType": "detection" if checks.flag("detections", detections) else "annotation",
        "classification": {
            "name": label,
            "color": list(COLOURS[crc32(label.encode()) % len(COLOURS)]),
        },
    }
    features = [
        {
            "type": "Feature",
            "id": _identity(label, number, leaf),
            "geometry": _geometry(leaf.region, leaf.explanation.placement),
            "properties": {**shared, "measurements": _measurements(leaf)},
        }
        for number, leaf in enumerate(leaves_of(result))
        # In padding, there is nothing of the original image.
        if pieces(leaf.region, leaf.explanation.placement)
    ]
    note = turned(result)
    return {"type": "FeatureCollection", **({"note": note} if note else {}), "features": features}


def turned(result: Result) -> str:
    """Return a note about an image that was turned upright for the model; empty if none was."""
    source = result.settings.source if isinstance(result, Explanation) else {}
    if "orientation" not in source:
        return ""
    return (
        "coordinates are pixels of the upright image: the EXIF orientation "
        f"{source['orientation']} of the file is applied"
    )


def write_json(path: str | PathLike[str], document: Mapping[str, Json] | Sequence[Json]) -> Path:
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


def _annotations(explanation: Result) -> list[dict[str, Json]]:
    return [
        {
            **_outline(piece, leaf.explanation.placement),
            "iscrowd": 0,
            "score": finding_score(leaf.explanation, [leaf.region]),
            "leaf": number,
        }
        for number, leaf in enumerate(leaves_of(explanation))
        for piece in pieces(leaf.region, leaf.explanation.placement)
    ]


def _outline(piece: Region, placement: Placement) -> dict[str, Json]:
    """Return the box, the area and the segmentation of a piece."""
    (top, left), (bottom, right) = bounds(piece, placement)
    found = outlines(piece, placement)
    box = [left, top, right - left, bottom - top]
    if all(len(rings) == 1 for rings in found):
        flat = [[number for corner in shell for number in corner] for (shell,) in found]
        return {"bbox": box, "area": placement.area(piece), "segmentation": flat}
    counts = column_runs(piece, placement)
    runs = {"size": list(placement.shape), "counts": counts}
    return {"bbox": box, "area": sum(counts[1::2]), "segmentation": runs}


def _geometry(region: Region, placement: Placement) -> Json:
    found = [[_closed(ring) for ring in rings] for rings in outlines(region, placement)]
    if len(found) == 1:
        return {"type": "Polygon", "coordinates": found[0]}
    return {"type": "MultiPolygon", "coordinates": found}


def _closed(ring: Line) -> list[list[float]]:
    return [list(corner) for corner in (*ring, ring[0])]


def _identity(label: str, number: int, leaf: Leaf) -> str:
    """Return a UUID, by which QuPath knows an object; the same result has the same ones."""
    facts = (label, number, leaf.region, leaf.share, leaf.explanation.placement)
    return str(UUID(bytes=sha256(repr(facts).encode()).digest()[:16], version=4))


def _measurements(leaf: Leaf) -> dict[str, float]:
    part = leaf.explanation.parts[leaf.region]
    figures = {"coefficient": part.coefficient, "attribution": leaf.share}
    figures["pixels"] = leaf.explanation.placement.area(part.region)
    if part.error and isfinite(part.error):
        figures["standard error"] = part.error
    return figures
