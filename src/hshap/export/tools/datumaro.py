"""Datumaro: a JSON document with polygons, as `annotations/default.json` of a data set."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from hshap.export.tools.drawing import drawings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap._util.types import Json
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.tiled import TiledExplanation


def datumaro(
    explanations: Mapping[str, Explanation | TiledExplanation | Mapping[str, object]],
    *,
    category: str = "finding",
) -> dict[str, Json]:
    """Return a document of Datumaro with a polygon for each finding.

    Write it by `write_json` to `annotations/default.json` of a folder whose `images/default` has
    the images. Polygons of one finding have one group; `score` is that of its box.

    >>> from hshap.demo import example
    >>> (item,) = datumaro({"cell.png": example()})["items"]
    >>> item["annotations"][0]["points"]
    [5, 2, 6, 2, 6, 3, 5, 3]
    """
    found, names = drawings("datumaro", explanations, category)
    labels: list[Json] = [{"name": name, "parent": "", "attributes": []} for name in names]
    items: list[Json] = []
    group = 0
    for drawing in found:
        annotations: list[Json] = []
        for each in drawing.findings:
            group += 1
            for ring in each.polygons:
                annotations.append(
                    {
                        "id": len(annotations),
                        "type": "polygon",
                        "attributes": {"score": each.score},
                        "group": group,
                        "label_id": names.index(each.label),
                        "points": [number for corner in ring for number in corner],
                        "z_order": 0,
                    }
                )
        items.append(
            {
                "id": str(PurePosixPath(drawing.file).with_suffix("")),
                "annotations": annotations,
                "attr": {"frame": len(items)},
                "image": {"path": drawing.file, "size": [drawing.height, drawing.width]},
            }
        )
    return {
        "dm_format_version": "1.0",
        "media_type": 2,
        "infos": {},
        "categories": {"label": {"label_groups": [], "labels": labels, "attributes": []}},
        "items": items,
    }
