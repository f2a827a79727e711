"""Findings for annotation tools: tasks of Label Studio and documents of CVAT.

Other tools, such as FiftyOne and Datumaro, read the COCO document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

from hshap._util.atomic import replace
from hshap._util.version import __version__
from hshap._util.visible import as_text
from hshap.errors import ArgumentError
from hshap.export.placed_findings import (
    as_name,
    bounds,
    by_category,
    found_in,
    image_size,
    outlines,
    pieces,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike
    from pathlib import Path

    from hshap._util.types import Json
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.placement import Placement
    from hshap.explanation.tiled import TiledExplanation
    from hshap.export.placed_findings import Line
    from hshap.partitions.protocol import Region


class Drawn(NamedTuple):
    """A finding on an image: polygons without holes, and the box around them, in pixels."""

    label: str
    score: float
    share: float
    polygons: list[Line]
    box: tuple[float, float, float, float]
    """Left, top, right and bottom."""


class Drawing(NamedTuple):
    """The findings on one image."""

    file: str
    height: int
    width: int
    findings: list[Drawn]


def drawings(
    function: str,
    explanations: Mapping[str, Explanation | TiledExplanation | Mapping[str, object]],
    category: str,
) -> tuple[list[Drawing], list[str]]:
    """Return a drawing for each image, and the names of all categories."""
    name = as_name("category", category)
    given = by_category(explanations, name)
    names = dict.fromkeys(label for classes in given.values() for label in classes) or {name: None}
    out: list[Drawing] = []
    for file, classes in given.items():
        height, width = image_size(function, file, classes)
        found = [
            drawn
            for label, each in classes.items()
            for one in found_in(each)
            if (drawn := _drawn(label, one.region, one.placement, one.score, one.share)) is not None
        ]
        out.append(Drawing(file, height, width, found))
    return out, list(names)


def keyhole(rings: list[Line]) -> Line:
    """Return one ring for a polygon with holes: a cut of no width leads to each hole and back.

    Tools that know no holes fill it right, since each hole runs the other way round.

    >>> keyhole([[(0, 0), (9, 0), (9, 9), (0, 9)], [(3, 3), (3, 6), (6, 6), (6, 3)]])
    [(0, 0), (3, 3), (3, 6), (6, 6), (6, 3), (3, 3), (0, 0), (9, 0), (9, 9), (0, 9)]
    """
    out = [*rings[0]]
    for hole in rings[1:]:
        _, at, start = min(
            ((x - a) ** 2 + (y - b) ** 2, i, j)
            for i, (x, y) in enumerate(out)
            for j, (a, b) in enumerate(hole)
        )
        turned = [*hole[start:], *hole[:start], hole[start]]
        out = [*out[: at + 1], *turned, *out[at:]]
    return out


def _drawn(
    label: str, region: Region, placement: Placement, score: float, share: float
) -> Drawn | None:
    shown = pieces(region, placement)
    if not shown:  # in padding, there is nothing of the original image
        return None
    corners = [bounds(piece, placement) for piece in shown]
    (tops, lefts), (bottoms, rights) = (
        tuple(zip(*ends, strict=True)) for ends in zip(*corners, strict=True)
    )
    rings = [keyhole(each) for each in outlines(region, placement)]
    box = (min(lefts), min(tops), max(rights), max(bottoms))
    return Drawn(label, float(score), float(share), rings, box)


FROM, TO = "label", "image"


def label_studio(
    explanations: Mapping[str, Explanation | TiledExplanation | Mapping[str, object]],
    *,
    category: str = "finding",
) -> list[Json]:
    """Return tasks for Label Studio, with a prediction of polygons for each image.

    Import them into a project whose labelling interface has `<Image name="image"
    value="$image"/>` and `<PolygonLabels name="label" toName="image">` with the categories. File
    names become the task's `image`: give them as the addresses under which Label Studio finds the
    images. A finding's `score` is that of its box.

    >>> from hshap.demo import example
    >>> (task,) = label_studio({"cell.png": example()})
    >>> task["predictions"][0]["result"][0]["value"]["points"]
    [[62.5, 25.0], [75.0, 25.0], [75.0, 37.5], [62.5, 37.5]]
    """
    found, _ = drawings("label_studio", explanations, category)
    return [
        {
            "data": {TO: drawing.file},
            "predictions": [
                {
                    "model_version": f"hshap {__version__}",
                    "score": max((each.score for each in drawing.findings), default=0.0),
                    "result": _results(drawing),
                }
            ],
        }
        for drawing in found
    ]


def _results(drawing: Drawing) -> list[Json]:
    return [
        {
            "id": f"hshap-{number}-{part}",
            "type": "polygonlabels",
            "from_name": FROM,
            "to_name": TO,
            "original_width": drawing.width,
            "original_height": drawing.height,
            "image_rotation": 0,
            "score": each.score,
            "value": {
                "points": [
                    [100 * x / drawing.width, 100 * y / drawing.height]
                    for x, y in each.polygons[part]
                ],
                "polygonlabels": [each.label],
                "closed": True,
            },
        }
        for number, each in enumerate(drawing.findings, start=1)
        for part in _parts(each)
    ]


def _parts(each: Drawn) -> range:
    return range(len(each.polygons))


# Characters that XML cannot hold, not even escaped.
FORBIDDEN = {n: " " for n in (*range(32), 0xFFFE, 0xFFFF) if chr(n) not in "\t\n\r"}


def cvat(
    explanations: Mapping[str, Explanation | TiledExplanation | Mapping[str, object]],
    *,
    category: str = "finding",
) -> str:
    """Return an XML document of the format "CVAT for images 1.1", with a polygon for each finding.

    Upload it to a task that has the images under the same file names and the categories as labels.
    Polygons have the attribute `score`, which is that of the finding's box; those of one finding
    have one group.

    >>> from hshap.demo import example
    >>> document = cvat({"cell.png": example()})
    >>> document[document.index("points="):][:62]
    'points="5.00,2.00;6.00,2.00;6.00,3.00;5.00,3.00" z_order="0" g'
    """
    found, names = drawings("cvat", explanations, category)
    root = Element("annotations")
    SubElement(root, "version").text = "1.1"
    labels = SubElement(SubElement(SubElement(root, "meta"), "task"), "labels")
    for name in names:
        label = SubElement(labels, "label")
        SubElement(label, "name").text = _text(name)
        attribute = SubElement(SubElement(label, "attributes"), "attribute")
        for key, value in (("name", "score"), ("mutable", "False"), ("input_type", "text")):
            SubElement(attribute, key).text = value
    group = 0
    for number, drawing in enumerate(found):
        sides = {"width": str(drawing.width), "height": str(drawing.height)}
        image = SubElement(root, "image", {"id": str(number), "name": _text(drawing.file), **sides})
        for each in drawing.findings:
            group += 1
            for ring in each.polygons:
                points = ";".join(f"{x:.2f},{y:.2f}" for x, y in ring)
                shape = {"label": _text(each.label), "source": "auto", "occluded": "0"}
                shape |= {"points": points, "z_order": "0", "group_id": str(group)}
                polygon = SubElement(image, "polygon", shape)
                SubElement(polygon, "attribute", {"name": "score"}).text = repr(each.score)
    return tostring(root, encoding="unicode", xml_declaration=True)


def write_xml(path: str | PathLike[str], document: str) -> Path:
    """Write a document of `cvat` and return the path; an existing file stays until it is complete.

    >>> from hshap.demo import example
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_xml(f"{folder}/cells.xml", cvat({"cell.png": example()})).stat().st_size > 100
    True
    """
    if not document.startswith("<?xml"):
        raise ArgumentError("document is no XML; pass the result of cvat()")
    return replace(path, lambda file: file.write(document.encode("utf-8")))


def _text(text: str) -> str:
    return as_text(text).translate(FORBIDDEN)
