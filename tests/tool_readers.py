"""Readers of annotation tools and viewers: `python tool_readers.py TOOL PATH` prints their view.

Run by the interpreter of an environment that has the tool: their pins exclude each other, and ours.
The environments are listed in HSHAP_READERS, as PATH lists folders; see `reader_of`.
"""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

MODULES = {
    "cvat": "datumaro",
    "label-studio": "label_studio_sdk",
    "ome-zarr": "ome_zarr",
    "napari": "napari",
}


def reader_of(tool):
    """Return the first interpreter that can import the library of a tool; None for none."""
    listed = os.environ.get("HSHAP_READERS", "").split(os.pathsep)
    for python in (sys.executable, *filter(None, listed)):
        wanted = f"import importlib.util as u; assert u.find_spec('{MODULES[tool]}')"
        told = subprocess.run([python, "-c", wanted], check=False, capture_output=True)  # noqa: S603
        if told.returncode == 0:
            return python
    return None


def read_by(tool, path):
    """Return the tool's own view of a file: its version, and polygons, boxes or arrays as lists."""
    python = reader_of(tool)
    call = [python, __file__, tool, str(path)]
    told = subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603
    assert told.returncode == 0, told.stderr[-2000:]
    return json.loads(told.stdout.splitlines()[-1])


def _cvat(path):
    from datumaro.components.dataset import Dataset

    (item,) = Dataset.import_from(str(path), "cvat")
    rings = [annotation.points for annotation in item.annotations]
    return {"polygons": [list(zip(r[::2], r[1::2], strict=True)) for r in rings]} | {
        "scores": [float(annotation.attributes["score"]) for annotation in item.annotations]
    }


def _label_studio(path):
    from label_studio_sdk.label_interface import LabelInterface

    view = (
        '<View><Image name="image" value="$image"/><PolygonLabels name="label" toName="image">'
        '<Label value="finding"/></PolygonLabels></View>'
    )
    (task,) = json.loads(Path(path).read_text())
    (prediction,) = task["predictions"]
    errors = LabelInterface(view).validate_prediction(prediction, return_errors=True)
    rings = [
        [
            (x * each["original_width"] / 100, y * each["original_height"] / 100)
            for x, y in each["value"]["points"]
        ]
        for each in prediction["result"]
    ]
    return {
        "errors": errors,
        "polygons": rings,
        "scores": [r["score"] for r in prediction["result"]],
    }


def _ome_zarr(path):
    import numpy as np
    from ome_zarr.io import parse_url
    from ome_zarr.reader import Reader

    # The group of labels is a node, too, without data of its own.
    nodes = [node for node in Reader(parse_url(str(path)))() if node.data]
    out = []
    for node in nodes:
        found = np.argwhere(np.asarray(node.data[0]))
        out.append(
            {
                "shape": list(node.data[0].shape),
                "axes": [axis["name"] for axis in node.metadata["axes"]],
                "moves": node.metadata["coordinateTransformations"][0],
                "start": found.min(axis=0).tolist() if len(found) else [],
                "stop": (found.max(axis=0) + 1).tolist() if len(found) else [],
                "count": len(found),
            }
        )
    return {"nodes": out}


def _napari(path):
    import numpy as np
    from napari.layers import Layer

    out = {}
    stored = np.load(path)
    for layer in json.loads(str(stored["layers"])):
        data = [*stored[layer["data"]]] if layer["kind"] == "shapes" else stored[layer["data"]]
        made = Layer.create(data, layer["options"], layer["kind"])
        low, high = np.asarray(made.extent.world)
        out[made.name] = [type(made).__name__, low.tolist(), high.tolist()]
    return {"layers": out}


if __name__ == "__main__":
    tool, file = sys.argv[1:]
    read = {
        "cvat": _cvat,
        "label-studio": _label_studio,
        "ome-zarr": _ome_zarr,
        "napari": _napari,
    }[tool]
    name = MODULES[tool].replace("_", "-")
    print(json.dumps({"library": name, "version": version(name), **read(file)}))  # noqa: T201
