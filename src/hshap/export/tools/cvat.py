"""CVAT for images 1.1: an XML document with polygons."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, tostring

from hshap._util.atomic import replace
from hshap._util.visible import as_text
from hshap.errors import ArgumentError
from hshap.export.tools.drawing import drawings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike
    from pathlib import Path

    from hshap.explanation.explanation import Explanation
    from hshap.explanation.tiled import TiledExplanation

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
