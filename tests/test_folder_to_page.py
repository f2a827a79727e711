"""From a folder of files to a page: one command, and boxes on the objects in the original files.

The objects are drawn, so their places are known.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
Image = pytest.importorskip("PIL.Image")
imagecodecs = pytest.importorskip("imagecodecs")
tifffile = pytest.importorskip("tifffile")
for module in ("typer", "rich", "matplotlib", "higra", "scipy", "onnxruntime"):
    pytest.importorskip(module)

from onnx import helper
from shapes import filled, rings_of, unpacked
from typer.testing import CliRunner

from hshap.cli.app import app

SIDE = 240
"""Height and width of the model's input."""
LEAST = 0.9
"""Overlap of boxes and objects: the outline of an object is drawn by what the model needs of it."""

# Name of the file: upright height and width, and top, left, bottom and right of its object.
OBJECTS = {
    "grey.png": ((480, 360), (100, 60, 220, 150)),
    "sixteen bits.tif": ((240, 480), (40, 300, 120, 420)),
    "deep colour.tiff": ((480, 480), (300, 40, 420, 200)),
    "deep.png": ((240, 240), (30, 30, 90, 120)),
    "clear glass.png": ((360, 480), (60, 240, 180, 400)),
    'patient\'s "left" $x$ hand.jpg': ((480, 240), (300, 20, 440, 100)),
    "細胞 中文.png": ((300, 300), (50, 150, 150, 275)),
    "large.jpg": ((1200, 1200), (240, 500, 780, 1100)),
}
CORRUPT = "corrupt.jpg"


def model(path):
    """A detector of brightness: its second output is the brightest patch of 5 x 5 pixels."""
    floats = onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["grey"], axes=[1], keepdims=1),
        helper.make_node("AveragePool", ["grey"], ["smooth"], kernel_shape=[5, 5]),
        helper.make_node("GlobalMaxPool", ["smooth"], ["most"]),
        helper.make_node("Flatten", ["most"], ["bright"]),
        helper.make_node("Neg", ["bright"], ["dark"]),
        helper.make_node("Concat", ["dark", "bright"], ["scores"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "brightness",
        [helper.make_tensor_value_info("x", floats, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("scores", floats, ["n", 2])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(made, path)


def drawn(name):
    """The upright image in bytes: dark and uneven, with a bright object."""
    (height, width), (top, left, bottom, right) = OBJECTS[name]
    shade = np.linspace(20, 40, width, dtype=np.float32)
    grey = np.broadcast_to(shade, (height, width)).astype(np.uint8).copy()
    grey[top:bottom, left:right] = 220
    return grey


def fill(folder):
    """Write the images of a user's folder, each in a way of its own."""
    colour = lambda name: np.repeat(drawn(name)[..., None], 3, axis=2)
    Image.fromarray(drawn("grey.png")).save(folder / "grey.png")
    deep = drawn("sixteen bits.tif").astype(np.uint16) * 257
    Image.fromarray(deep).save(folder / "sixteen bits.tif")
    deep = colour("deep colour.tiff").astype(np.uint16) * 257
    tifffile.imwrite(folder / "deep colour.tiff", deep, photometric="rgb", compression="zlib")
    deep = colour("deep.png").astype(np.uint16) * 257
    (folder / "deep.png").write_bytes(imagecodecs.png_encode(deep))
    glass = np.full((360, 480, 4), 255, np.uint8)  # white, but for the object seen through it
    top, left, bottom, right = OBJECTS["clear glass.png"][1]
    glass[..., 3] = 0
    glass[top:bottom, left:right] = (220, 220, 220, 255)
    Image.fromarray(glass).save(folder / "clear glass.png")
    name = 'patient\'s "left" $x$ hand.jpg'
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying on its left side
    Image.fromarray(np.rot90(colour(name))).save(folder / name, exif=exif, quality=95)
    Image.fromarray(colour("細胞 中文.png")).save(folder / "細胞 中文.png")
    Image.fromarray(colour("large.jpg")).save(folder / "large.jpg", quality=90)
    whole = io.BytesIO()
    Image.fromarray(colour("grey.png")).save(whole, "jpeg")
    (folder / CORRUPT).write_bytes(whole.getvalue()[:-600])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The one command, and the folder in which it ran."""
    folder = tmp_path_factory.mktemp("clinic")
    (folder / "a folder").mkdir()
    fill(folder / "a folder")
    model(folder / "model.onnx")
    words = ("explain", "a folder", "--model", "model.onnx", "--classes", "nothing,object")
    options = ("--target", "object", "--resize", "--background", "black")
    done = subprocess.run(  # noqa: S603, libraries write to standard error by themselves
        [sys.executable, "-m", "hshap", *words, *options, "--out", "found"],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    return done, folder


def export(*words):
    done = CliRunner().invoke(app, ["export", *map(str, words)])
    assert done.exit_code == 0, done.output


def truth(name):
    out = np.zeros(OBJECTS[name][0], bool)
    top, left, bottom, right = OBJECTS[name][1]
    out[top:bottom, left:right] = True
    return out


def box_mask(name, start, stop):
    out = np.zeros(OBJECTS[name][0], bool)
    out[start[0] : stop[0], start[1] : stop[1]] = True
    return out


def overlap(name, inside):
    return (inside & truth(name)).sum() / (inside | truth(name)).sum()


def test_all_but_the_corrupt_file_are_explained(run):
    done, folder = run
    assert done.returncode == 7, done.stderr
    summary = json.loads((folder / "found/summary.json").read_text(encoding="utf-8"))
    assert (summary["done"], summary["total"]) == (len(OBJECTS), len(OBJECTS) + 1)
    (skipped,) = summary["skipped"]
    assert CORRUPT in skipped["image"]
    assert (folder / "found/index.html").stat().st_size > 10_000
    # Nothing but notes is on standard error.
    for word in ("Warning", "Traceback", "Glyph"):
        assert word not in done.stderr
    assert done.stderr.count("turned upright") == 1
    assert done.stderr.count("laid on black") == 1
    assert all(line.startswith("hshap: ") for line in done.stderr.splitlines())


def test_boxes_and_shapes_lie_on_the_objects(run):
    _, folder = run
    export(folder / "found", "--format", "geojson", "--out", folder / "shapes")
    summary = json.loads((folder / "found/summary.json").read_text(encoding="utf-8"))
    for image in summary["images"]:
        name = image["image"].rpartition("/")[2]
        assert tuple(image["size"]) == OBJECTS[name][0]
        (region,) = image["explanations"][0]["regions"]
        assert overlap(name, box_mask(name, region["start"], region["stop"])) >= LEAST, name
        stem = image["explanations"][0]["explanation"].removesuffix(".npz")
        document = json.loads((folder / f"shapes/{stem}.geojson").read_text(encoding="utf-8"))
        shapes = [
            filled(rings_of(one["geometry"]), OBJECTS[name][0]) for one in document["features"]
        ]
        assert overlap(name, np.any(shapes, axis=0)) >= LEAST, name


def test_coco_masks_and_a_map_lie_on_the_objects(run):
    _, folder = run
    export(folder / "found", "--format", "coco", "--out", folder / "coco.json")
    document = json.loads((folder / "coco.json").read_text())
    names = {image["id"]: image["file_name"] for image in document["images"]}
    assert set(names.values()) == set(OBJECTS)
    for number, name in names.items():
        found = [one for one in document["annotations"] if one["image_id"] == number]
        masks = [unpacked(one["segmentation"], OBJECTS[name][0]) for one in found]
        assert overlap(name, np.any(masks, axis=0)) >= LEAST, name
    export(folder / "found/large.npz", "-f", "tiff", "-o", folder / "large.tiff")
    heat = tifffile.imread(folder / "large.tiff")
    assert heat.shape == OBJECTS["large.jpg"][0]
    assert heat[truth("large.jpg")].sum() >= 0.8 * heat.sum()  # larger regions count as well
