"""From a folder of files to a page: one command, and boxes on the objects in the original files.

The objects are drawn, so their places are known. The exports are read back with pycocotools,
shapely and tifffile.
"""

from __future__ import annotations

import contextlib
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
coco = pytest.importorskip("pycocotools.coco")
geometry = pytest.importorskip("shapely.geometry")
for module in ("typer", "rich", "matplotlib", "higra", "scipy", "onnxruntime"):
    pytest.importorskip(module)

from onnx import helper
from shapely.ops import unary_union

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

SIDE = 240
"""Height and width of the model's input."""
LEAST = 0.7
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
    "large.jpg": ((6000, 6000), (1500, 3000, 3000, 5250)),
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


def hshap(*words, cwd):
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "hshap", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The one command, and the folder in which it ran."""
    folder = tmp_path_factory.mktemp("clinic")
    (folder / "a folder").mkdir()
    fill(folder / "a folder")
    model(folder / "model.onnx")
    words = ("explain", "a folder", "--model", "model.onnx", "--classes", "nothing,object")
    options = ("--target", "object", "--resize", "--background", "black", "--skip-bad")
    done = hshap(*words, *options, "--out", "found", cwd=folder)
    return done, folder


def overlap(one, other):
    return one.intersection(other).area / one.union(other).area


def truth(name):
    top, left, bottom, right = OBJECTS[name][1]
    return geometry.box(left, top, right, bottom)


def test_all_but_the_corrupt_file_are_explained_and_the_exit_code_says_so(run):
    done, folder = run
    assert done.returncode == 7, done.stderr
    summary = json.loads((folder / "found/summary.json").read_text(encoding="utf-8"))
    assert (summary["done"], summary["total"]) == (len(OBJECTS), len(OBJECTS) + 1)
    (skipped,) = summary["skipped"]
    assert CORRUPT in skipped["image"]
    assert (folder / "found/index.html").stat().st_size > 10_000


def test_nothing_but_notes_is_on_standard_error(run):
    done, _ = run
    for word in ("Warning", "Traceback", "Glyph"):
        assert word not in done.stderr
    assert done.stderr.count("turned upright") == 1
    assert done.stderr.count("laid on black") == 1
    assert all(line.startswith("hshap: ") for line in done.stderr.splitlines())


def test_boxes_of_the_summary_lie_on_the_objects(run):
    _, folder = run
    summary = json.loads((folder / "found/summary.json").read_text(encoding="utf-8"))
    for image in summary["images"]:
        name = image["image"].rpartition("/")[2]
        assert tuple(image["size"]) == OBJECTS[name][0]
        (region,) = image["explanations"][0]["regions"]
        (top, left), (bottom, right) = region["start"], region["stop"]
        assert overlap(geometry.box(left, top, right, bottom), truth(name)) >= LEAST, name


def test_coco_boxes_and_masks_lie_on_the_objects(run):
    _, folder = run
    done = hshap("export", "found", "--format", "coco", "--out", "coco.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    with contextlib.redirect_stdout(io.StringIO()):
        read = coco.COCO(str(folder / "coco.json"))
    assert {image["file_name"] for image in read.imgs.values()} == set(OBJECTS)
    for number, image in read.imgs.items():
        name = image["file_name"]
        assert (image["height"], image["width"]) == OBJECTS[name][0]
        found = read.loadAnns(read.getAnnIds(imgIds=number))
        # An object may be found in parts.
        boxes = [(x, y, x + wide, y + high) for x, y, wide, high in (one["bbox"] for one in found)]
        around = unary_union([geometry.box(*box) for box in boxes]).envelope
        assert overlap(around, truth(name)) >= LEAST, name
        mask = np.any([read.annToMask(one) for one in found], axis=0)
        there = np.zeros(OBJECTS[name][0], bool)
        top, left, bottom, right = OBJECTS[name][1]
        there[top:bottom, left:right] = True
        assert (mask & there).sum() / (mask | there).sum() >= LEAST, name


def test_geojson_shapes_lie_on_the_objects(run):
    _, folder = run
    done = hshap("export", "found", "--format", "geojson", "--out", "shapes", cwd=folder)
    assert done.returncode == 0, done.stderr
    summary = json.loads((folder / "found/summary.json").read_text(encoding="utf-8"))
    for image in summary["images"]:
        stem = image["explanations"][0]["explanation"].removesuffix(".npz")
        document = json.loads((folder / f"shapes/{stem}.geojson").read_text(encoding="utf-8"))
        found = unary_union([geometry.shape(one["geometry"]) for one in document["features"]])
        name = image["image"].rpartition("/")[2]
        assert overlap(found, truth(name)) >= LEAST, name


def test_a_map_has_the_size_of_the_original_file(run):
    _, folder = run
    done = hshap("export", "found/large.npz", "-f", "tiff", "-o", "large.tiff", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = tifffile.imread(folder / "large.tiff")
    top, left, bottom, right = OBJECTS["large.jpg"][1]
    there = np.zeros((6000, 6000), bool)
    there[top:bottom, left:right] = True
    assert found.shape == there.shape
    assert found[there].sum() >= LEAST * found.sum()


def test_view_takes_the_original_file_again(run):
    _, folder = run
    done = hshap("view", "found/large.npz", "a folder/large.jpg", "-o", "v.html", cwd=folder)
    assert done.returncode == 0, done.stderr
