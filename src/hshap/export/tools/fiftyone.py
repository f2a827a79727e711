"""FiftyOne: samples as JSON, with boxes as detections and outlines as polylines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hshap.export.tools.drawing import drawings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap._util.types import Json
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.tiled import TiledExplanation
    from hshap.export.tools.drawing import Drawing


def fiftyone(
    explanations: Mapping[str, Explanation | TiledExplanation | Mapping[str, object]],
    *,
    category: str = "finding",
) -> dict[str, Json]:
    """Return samples for FiftyOne, in the form of its own JSON.

    A sample has the file's path, detections in the field `findings` and their outlines in
    `outlines`; places are parts of the image's sides. In Python, `[fiftyone.Sample.from_dict(each)
    for each in document["samples"]]` gives samples to add to a data set. The `confidence` is the
    score of the finding's box.

    >>> from hshap.demo import example
    >>> (sample,) = fiftyone({"cell.png": example()})["samples"]
    >>> sample["findings"]["detections"][0]["bounding_box"]
    [0.625, 0.25, 0.125, 0.125]
    """
    found, names = drawings("fiftyone", explanations, category)
    samples: list[Json] = [
        {
            "filepath": drawing.file,
            "tags": [],
            "metadata": None,
            "_media_type": "image",
            "findings": {"_cls": "Detections", "detections": _boxes(drawing)},
            "outlines": {"_cls": "Polylines", "polylines": _lines(drawing)},
        }
        for drawing in found
    ]
    return {"name": "hshap", "classes": list(names), "samples": samples}


def _boxes(drawing: Drawing) -> list[Json]:
    out: list[Json] = []
    for number, each in enumerate(drawing.findings, start=1):
        left, top, right, bottom = each.box
        width, height = (right - left) / drawing.width, (bottom - top) / drawing.height
        out.append(
            {
                "_cls": "Detection",
                "label": each.label,
                "bounding_box": [left / drawing.width, top / drawing.height, width, height],
                "confidence": each.score,
                "index": number,
                "attributes": {},
                "tags": [],
            }
        )
    return out


def _lines(drawing: Drawing) -> list[Json]:
    return [
        {
            "_cls": "Polyline",
            "label": each.label,
            "points": [
                [[x / drawing.width, y / drawing.height] for x, y in ring] for ring in each.polygons
            ],
            "confidence": each.score,
            "index": number,
            "closed": True,
            "filled": True,
            "attributes": {},
            "tags": [],
        }
        for number, each in enumerate(drawing.findings, start=1)
    ]
