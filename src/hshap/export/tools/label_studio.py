"""Label Studio: findings as predictions, polygons in percent of the image's size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hshap._util.version import __version__
from hshap.export.tools.drawing import drawings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap._util.types import Json
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.tiled import TiledExplanation
    from hshap.export.tools.drawing import Drawing, Drawn

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
