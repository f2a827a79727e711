"""Findings reach annotation tools at their place, to half a pixel, as the tools' own libraries see.

Without the libraries, documents are still checked against independent geometry (shapely).
"""

from __future__ import annotations

import json
import uuid
from xml.etree import ElementTree as ET

import format_files as made
import numpy as np
import pytest
import tool_readers

import hshap
from hshap import export

shapely = pytest.importorskip("shapely")

HEIGHT, WIDTH = 40, 60


def truth():
    """Return the object at full resolution: a ring, so that polygons need a hole, and a bar."""
    out = np.zeros((HEIGHT, WIDTH), bool)
    out[8:24, 12:32] = True
    out[14:18, 20:26] = False
    out[30:34, 40:56] = True
    return out


@pytest.fixture(scope="module")
def explanation():
    """Explain a picture that the model saw at half its size."""
    small = truth()[::2, ::2].astype(np.float32)[None]
    explainer = hshap.Explainer(
        lambda batch: batch.sum(axis=(1, 2, 3)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Dyadic(min_size=1),
    )
    return explainer.explain(small, target=0).placed((HEIGHT, WIDTH))


def covered(polygons):
    """Return the pixels whose centre lies in a polygon, by the even-odd rule of shapely."""
    y, x = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    out = np.zeros((HEIGHT, WIDTH), bool)
    for ring in polygons:
        # The cut to a hole touches itself; make_valid keeps the rule of odd crossings.
        shape = shapely.make_valid(shapely.Polygon(ring))
        out |= shapely.contains_xy(shape, x, y)
    return out


def document(tool, explanation, folder):
    """Write the document of a tool, and return its path."""
    given = {"cell.png": explanation}
    if tool == "datumaro":
        return export.write_json(folder / "default.json", export.datumaro(given))
    if tool == "cvat":
        return export.write_xml(folder / "cells.xml", export.cvat(given))
    if tool == "label-studio":
        return export.write_json(folder / "tasks.json", export.label_studio(given))
    if tool == "fiftyone":
        return export.write_json(folder / "samples.json", export.fiftyone(given))
    return export.write_json(folder / "cell.geojson", export.geojson(explanation))


def polygons_in(tool, path):
    """Read the polygons of a document by the definition of its format."""
    text = path.read_text()
    if tool == "cvat":
        root = ET.fromstring(text)  # noqa: S314, our own
        (image,) = root.findall("image")
        assert (image.get("width"), image.get("height")) == (str(WIDTH), str(HEIGHT))
        rings = [each.get("points").split(";") for each in image.findall("polygon")]
        return [[tuple(map(float, p.split(","))) for p in ring] for ring in rings]
    read = json.loads(text)
    if tool == "datumaro":
        flat = [each["points"] for each in read["items"][0]["annotations"]]
        return [list(zip(ring[::2], ring[1::2], strict=True)) for ring in flat]
    if tool == "label-studio":
        results = read[0]["predictions"][0]["result"]
        return [
            [(x * WIDTH / 100, y * HEIGHT / 100) for x, y in each["value"]["points"]]
            for each in results
        ]
    if tool == "fiftyone":
        lines = read["samples"][0]["outlines"]["polylines"]
        return [[(x * WIDTH, y * HEIGHT) for x, y in r] for line in lines for r in line["points"]]
    return [each["geometry"]["coordinates"][0] for each in read["features"]]


@pytest.mark.parametrize("tool", ["datumaro", "cvat", "label-studio", "fiftyone"])
def test_polygons_cover_the_object_and_leave_its_hole_open(tool, explanation, tmp_path):
    rings = polygons_in(tool, document(tool, explanation, tmp_path))
    assert len(rings) == 2
    np.testing.assert_array_equal(covered(rings), truth())


@pytest.mark.parametrize("tool", ["datumaro", "cvat", "label-studio", "fiftyone"])
def test_the_tool_s_own_library_reads_the_findings_at_their_place(tool, explanation, tmp_path):
    if tool_readers.reader_of(tool) is None:
        pytest.skip(f"{tool_readers.MODULES[tool]} is in no environment of HSHAP_READERS")
    folder = tmp_path / "set"
    if tool == "datumaro":
        (folder / "annotations").mkdir(parents=True)
        document(tool, explanation, folder / "annotations")
    elif tool == "cvat":
        image = pytest.importorskip("PIL.Image")
        (folder / "images").mkdir(parents=True)
        image.fromarray(np.zeros((HEIGHT, WIDTH), np.uint8)).save(folder / "images" / "cell.png")
        document(tool, explanation, folder)
    else:
        folder.mkdir()
        folder = document(tool, explanation, folder)
    told = tool_readers.read_by(tool, folder)
    assert not told.get("errors")
    scale = (WIDTH, HEIGHT) if tool == "fiftyone" else (1, 1)
    rings = [[(x * scale[0], y * scale[1]) for x, y in ring] for ring in told["polygons"]]
    np.testing.assert_array_equal(covered(rings), truth())
    np.testing.assert_allclose(max(told["scores"]), explanation.boxes()[0].score)


def test_objects_of_qupath_have_its_schema_and_full_resolution(explanation, tmp_path):
    path = document("qupath", explanation, tmp_path)
    read = json.loads(path.read_text())
    assert read["type"] == "FeatureCollection"
    out = np.zeros((HEIGHT, WIDTH), bool)
    for feature in read["features"]:
        uuid.UUID(feature["id"])
        facts = feature["properties"]
        assert facts["objectType"] == "annotation"
        assert facts["classification"]["name"] == "finding"
        assert all(0 <= c <= 255 and isinstance(c, int) for c in facts["classification"]["color"])
        assert all(isinstance(v, (int, float)) for v in facts["measurements"].values())
        y, x = np.mgrid[:HEIGHT, :WIDTH] + 0.5
        out |= shapely.contains_xy(shapely.geometry.shape(feature["geometry"]), x, y)
    np.testing.assert_array_equal(out, truth())
    assert len({feature["id"] for feature in read["features"]}) == len(read["features"])


def test_ome_zarr_s_own_library_finds_image_and_labels(tmp_path):
    if tool_readers.reader_of("ome-zarr") is None:
        pytest.skip("ome_zarr is in no environment of HSHAP_READERS")
    pytest.importorskip("zarr")
    scan = hshap.read_image(made.ome_zarr(tmp_path / "scan.zarr"))
    labels = made.mask().astype(np.uint8)
    path = export.write_ome_zarr(tmp_path / "o.zarr", labels, scan)
    told = tool_readers.read_by("ome-zarr", path)
    image, found = (
        next(node for node in told["nodes"] if node["axes"] == axes)
        for axes in (["c", "z", "y", "x"], ["z", "y", "x"])
    )
    assert image["shape"] == [1, 8, 32, 24]
    assert (found["start"], found["stop"]) == ([3, 10, 12], [6, 18, 18])
    assert found["count"] == labels.sum()
    assert found["moves"][0]["scale"] == [2.5, 0.8, 0.7]


def test_napari_takes_every_layer_at_its_place(tmp_path):
    if tool_readers.reader_of("napari") is None:
        pytest.skip("napari is in no environment of HSHAP_READERS")
    image = np.zeros((1, 8, 16, 16), np.float32)
    image[0, 2:4, 4:8, 6:10] = 1.0
    scan = hshap.Scan(image, axes="CZYX", spacing=(2.0, 0.5, 0.5))
    explainer = hshap.Explainer(
        lambda batch: batch.sum(axis=(1, 2, 3, 4)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(min_size=1),
    )
    layers = export.napari_layers(explainer.explain(image, target=0), scan)
    arrays = {f"a{n}": np.asarray(data) for n, (data, _, _) in enumerate(layers)}
    listed = [
        {"data": f"a{n}", "options": options, "kind": kind}
        for n, (_, options, kind) in enumerate(layers)
    ]
    path = tmp_path / "layers.npz"
    np.savez(path, layers=json.dumps(listed), **arrays)
    told = tool_readers.read_by("napari", path)["layers"]
    assert [told[name][0] for name in ("image", "findings", "boxes")] == [
        "Image",
        "Labels",
        "Shapes",
    ]
    low, high = told["boxes"][1:]
    np.testing.assert_allclose(low[1:], (1.75, 2.75), atol=0.3)
    np.testing.assert_allclose(high[1:], (3.75, 4.75), atol=0.3)


@pytest.mark.parametrize("tool", ["datumaro", "cvat", "label-studio", "fiftyone"])
def test_names_stay_text_in_every_document(tool, explanation, tmp_path):
    name = 'a "<b>&\u0007.png'
    function = {"label-studio": export.label_studio}.get(tool) or getattr(export, tool)
    found = function({name: explanation}, category="<i>")
    if tool == "cvat":
        root = ET.fromstring(found)  # noqa: S314, our own
        assert root.find("image").get("name") == name.replace("\u0007", " ")
        assert root.find("image/polygon").get("label") == "<i>"
    else:
        assert name in json.dumps(found, ensure_ascii=False).replace('\\"', '"').replace(
            "\\u0007", "\u0007"
        )


@pytest.mark.parametrize("tool", ["datumaro", "cvat", "label_studio", "fiftyone"])
def test_a_volume_is_refused_with_another_export(tool):
    image = np.ones((1, 2, 2, 2), np.float32)
    explainer = hshap.Explainer(
        lambda batch: batch.sum(axis=(1, 2, 3, 4)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(min_size=1),
    )
    with pytest.raises(hshap.ArgumentError, match="holds pictures"):
        getattr(export, tool)({"a.png": explainer.explain(image, target=0)})
