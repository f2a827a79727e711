"""The command line: what it makes, what it refuses and how it says so."""

from __future__ import annotations

import inspect
import io
import json
import os
import pickle
import re
import shlex
import shutil
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")
Image = pytest.importorskip("PIL.Image")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
safetensors = pytest.importorskip("safetensors.numpy")

from typer.testing import CliRunner

import hshap
from hshap import Share
from hshap.cli.app import app
from hshap.cli.commands.compare import agreement, rank_correlation
from hshap.cli.commands.cost import cost
from hshap.cli.commands.doctor import conflicts, report, self_test, slower
from hshap.cli.commands.explain import explain
from hshap.cli.costs.formulas import predicted
from hshap.cli.costs.machine import Gain, gains
from hshap.cli.costs.sample import SEED
from hshap.cli.costs.timing import measured
from hshap.cli.faults import Code
from hshap.cli.inputs.models import Loaded
from hshap.demo import bundled

ROOT = Path(__file__).parents[1]


def network(path, *, channels_last=False, batch="n"):
    """Write the bundled demo network as ONNX, without torch."""
    from onnx import helper, numpy_helper

    raw = files("hshap.demo").joinpath("weights.safetensors").read_bytes()
    weights = safetensors.load(raw)
    at = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["x", "conv_1.weight", "conv_1.bias"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], **at),
        helper.make_node("Conv", ["c", "conv_2.weight", "conv_2.bias"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("MaxPool", ["e"], ["f"], kernel_shape=[5, 5], strides=[5, 5]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("Gemm", ["g", "fc_1.weight", "fc_1.bias"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["i"]),
        helper.make_node("Gemm", ["i", "fc_2.weight", "fc_2.bias"], ["j"], transB=1),
        helper.make_node("Relu", ["j"], ["k"]),
        helper.make_node("Gemm", ["k", "fc_3.weight", "fc_3.bias"], ["logits"], transB=1),
    ]
    shape = [batch, 3, 100, 120]
    if channels_last:
        shape = [batch, 100, 120, 3]
        nodes.insert(0, helper.make_node("Transpose", ["images"], ["x"], perm=[0, 3, 1, 2]))
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "demo",
        [helper.make_tensor_value_info("images" if channels_last else "x", floats, shape)],
        [helper.make_tensor_value_info("logits", floats, [batch, 2])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)


MODELS = """
import sys
import numpy as np
calls = []
def brightest(batch):
    print("the model speaks")
    return batch.max(axis=(1, 2, 3))
def remembers(batch):
    calls.append(np.array(batch))
    return batch.mean(axis=(2, 3))
def breaks_later(batch):
    calls.append(len(batch))
    if len(calls) > 3:
        raise OSError(28, "first line\\nsecond line")
    return batch.max(axis=(1, 2, 3))
def nothing_usable(batch):
    return batch
def waits(batch):
    import pathlib, time
    pathlib.Path("waiting").write_text("")
    time.sleep(600)
def make():
    return brightest
class Module: ...
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The files of a user's folder: a model, images of its size and some of other kinds."""
    folder, samples = tmp_path_factory.mktemp("user"), bundled()
    network(folder / "model.onnx")
    (folder / "images").mkdir()
    for number, name in ((0, "blot"), (3, "cell")):
        pixels = np.moveaxis(samples["images"][number], 0, -1)
        Image.fromarray(pixels).save(folder / "images" / f"{name}.png")
    mean = np.rint(np.moveaxis(samples["mean"], 0, -1) * 255).astype(np.uint8)
    Image.fromarray(mean).save(folder / "mean.png")
    return folder


@pytest.fixture
def work(kept, tmp_path, monkeypatch):
    """A user's folder of its own for each test, and the name of a module with models in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    name = f"models_{abs(hash(str(tmp_path)))}"
    Path(f"{name}.py").write_text(MODELS)
    yield Path(), name
    sys.modules.pop(name, None)


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def fine(*words):
    done = run(*words)
    assert done.exit_code == 0, done.stderr
    return done


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image)


def small(value=0, size=(16, 16), name="small.png", **options):
    array = np.zeros((*size, 3), np.uint8)
    array[4:8, 4:8] = value
    Image.fromarray(array).save(name, **options)
    return name


# What it makes


def test_images_and_a_model_become_a_page_pictures_and_explanations(work):
    done = fine(
        *("explain", "images", "--model", "model.onnx", "--target", 1, "--baseline", "mean.png"),
        *("--min-size", 8, "--out", "found"),
    )
    assert "found/index.html" in done.stdout
    assert {file.name for file in Path("found").iterdir()} == {
        *("blot.npz", "blot.png", "cell.npz", "cell.png", "index.html", "summary.json")
    }
    found = hshap.Explanation.load("found/cell.npz")
    assert found.target == 1
    assert found.leaves
    assert found.settings["source"]["image"] == "cell.png"
    assert pixels("found/cell.png").shape[1] > 200
    page = Path("found/index.html").read_text()
    assert "cell.png" in page
    assert "blot.png" in page
    truth = bundled()["truths"][3]
    hit = [truth[tuple(map(slice, box.start, box.stop))].any() for box in found.boxes()]
    assert np.mean(hit) > 0.8


def test_without_options_every_cross_of_the_demo_is_found_and_nothing_else(work):
    pytest.importorskip("higra")
    pytest.importorskip("scipy")
    samples = bundled()
    for number, image in enumerate(samples["images"]):
        Image.fromarray(np.moveaxis(image, 0, -1)).save(f"images/{number}.png")
    fine("explain", *(f"images/{n}.png" for n in range(4)), "-m", "model.onnx", "-t", 1)
    for number, (truth, crosses) in enumerate(
        zip(samples["truths"], samples["crosses"], strict=True)
    ):
        found = hshap.Explanation.load(f"hshap-output/{number}.npz")
        assert hshap.metrics.f1(found.saliency(), truth) > 0.99
        assert len(found.boxes()) == crosses


def test_json_is_one_document_and_nothing_else(work):
    _, name = work
    small(255)
    done = fine("explain", "small.png", "--model", f"{name}:brightest", "--json")
    told = json.loads(done.stdout)
    assert "the model speaks" in done.stderr
    (image,) = told["images"]
    (one,) = image["explanations"]
    assert one["score"] == 1
    assert one["complete"]
    assert told["page"] == "index.html"
    assert told["evaluations"] >= one["evaluations"] - 1
    assert json.loads(Path("hshap-output/summary.json").read_text())["images"] == told["images"]


def test_the_result_can_be_read_again_at_a_higher_tolerance(work):
    _, name = work
    small(255)
    given = ("--baseline", "constant:0", "--tolerance", "5%")
    fine("explain", "small.png", "-m", f"{name}:brightest", *given)
    found = hshap.Explanation.load("hshap-output/small.npz")
    assert found.settings["search"]["type"] == "DepthFirst"
    assert found.settings["search"]["tolerance"] == pytest.approx(0.05)
    assert found.at(tolerance=0.9).leaves in ((), found.leaves)


@pytest.mark.parametrize(("tolerance", "expected"), [("auto", 0.2), ("5%", 0.05), ("0.3", 0.3)])
def test_a_search_by_groups_is_certified(work, tolerance, expected):
    _, name = work
    small(255)
    given = ("--baseline", "constant:0", "--tolerance", tolerance, "--partition", "bisection")
    sizes = ("--search", "group", "--min-size", "4")
    fine("explain", "small.png", "-m", f"{name}:brightest", *given, *sizes)
    found = hshap.Explanation.load("hshap-output/small.npz")
    assert found.settings["search"]["type"] == "GroupTesting"
    assert found.settings["search"]["tolerance"] == pytest.approx(expected)
    assert found.certificate.questions > 2


def test_the_predicted_cost_of_groups_is_what_a_run_takes(rng):
    for findings in (1, 4, 12):
        cost = predicted((64, 64), "bisection", 2, findings, "group")
        explainer = hshap.Explainer(
            lambda batch: (batch > 0.5).any(axis=(1, 2, 3)).astype(float),
            hshap.Constant(0.0),
            hshap.Bisection(2),
            hshap.GroupTesting(),
        )
        taken = []
        for _ in range(6):
            image = np.zeros((1, 32, 32))
            image.reshape(-1)[rng.choice(1024, findings, replace=False)] = 1.0
            whole = image.repeat(2, axis=1).repeat(2, axis=2)
            taken.append(explainer.explain(whole, 0).evaluations)
        assert abs(np.mean(taken) / cost.expected - 1) < 0.12
        assert max(taken) <= cost.most


def test_a_share_is_depth_first_at_that_tolerance(rng):
    image = rng.random((1, 16, 16))
    options = {"baseline": hshap.Constant(0.0), "partition": hshap.Bisection(2)}
    model = lambda batch: 7 * batch.mean(axis=(1, 2, 3)) - 1
    share = hshap.Explainer(model, search=Share(0.01), **options).explain(image, 0)
    total = share.score - share.baseline_score
    search = hshap.DepthFirst(tolerance=0.01 * total)
    absolute = hshap.Explainer(model, search=search, **options).explain(image, 0)
    assert share.leaves == absolute.leaves
    assert share.evaluations == absolute.evaluations


def test_several_classes_by_name_share_a_view(work):
    Path("model.toml").write_text('classes = ["no cross", "a cross"]\noutput = "softmax"\n')
    done = fine(
        *("explain", "images/cell.png", "-m", "model.onnx", "-t", "a cross", "-t", "0"),
        *("--baseline", "mean.png", "--min-size", 25, "--json"),
    )
    (image,) = json.loads(done.stdout)["images"]
    first, second = image["explanations"]
    assert (first["class"], first["target"], second["class"]) == ("a cross", 1, "no cross")
    assert first["explanation"] == "cell-a_cross.npz"
    assert first["score"] + second["score"] == pytest.approx(1)


def test_options_win_over_the_toml(work):
    Path("model.toml").write_text('classes = ["x", "y"]\noutput = "softmax"\n')
    done = fine(
        *("explain", "images/cell.png", "-m", "model.onnx", "-t", "b", "--classes", "a,b"),
        *("--output", "raw", "--budget", 20, "--json"),
    )
    told = json.loads(done.stdout)
    assert told["output"] == "raw"
    assert told["images"][0]["explanations"][0]["class"] == "b"
    assert told["images"][0]["explanations"][0]["evaluations"] <= 20


def test_without_a_target_the_class_with_the_highest_score_is_explained(work):
    _, name = work
    small(255)
    Image.fromarray(np.full((16, 16, 3), (0, 0, 200), np.uint8)).save("blue.png")
    Image.fromarray(np.full((16, 16, 3), (90, 0, 0), np.uint8)).save("red.png")
    told = fine("explain", "blue.png", "red.png", "-m", f"{name}:remembers", "--json").stdout
    told = json.loads(told[told.index("{") :])
    assert [image["explanations"][0]["target"] for image in told["images"]] == [2, 0]


def test_pixels_reach_the_model_in_its_order_and_scale(work):
    _, name = work
    Image.fromarray(np.full((8, 8, 3), (255, 51, 0), np.uint8)).save("orange.png")
    fine(
        *("explain", "orange.png", "-m", f"{name}:remembers", "--channels", "bgr"),
        *("--range", "0,10", "--mean", "1,2,3", "--std", "2"),
    )
    first = sys.modules[name].calls[0]
    assert first.dtype == np.float32
    assert first[0, :, 3, 3].tolist() == pytest.approx([-0.5, 0.0, 3.5])


@pytest.mark.parametrize("kind", ["png", "tif"])
def test_sixteen_bits_keep_their_values(work, kind):
    _, name = work
    values = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    Image.fromarray(values).save(f"deep.{kind}")
    fine("explain", f"deep.{kind}", "-m", f"{name}:remembers")
    assert sys.modules[name].calls[0][0, 1] == pytest.approx(values / 65535)
    sys.modules[name].calls.clear()
    fine("explain", f"deep.{kind}", "-m", f"{name}:remembers", "--white", 64000, "--force")
    assert sys.modules[name].calls[0][0, 0].max() == pytest.approx(63 / 64)


def test_sixteen_bit_colour_keeps_its_values(work):
    _, name = work
    values = range(0, 24000, 1000)
    rows = b"".join(b"\0" + struct.pack(">24H", *values) for _ in range(8))
    Path("deep.png").write_bytes(png(8, 8, rows, depth=16, colour=2))
    fine("explain", "deep.png", "-m", f"{name}:remembers")
    first = sys.modules[name].calls[0][0]
    assert np.rint(first[:, 0].T.ravel() * 65535).tolist() == list(values)


@pytest.mark.usefixtures("work")
def test_changes_of_images_are_said_once_for_a_run():
    exif = Image.Exif()
    exif[0x0112] = 3
    Path("many").mkdir()
    for number in range(3):
        Image.new("RGB", (120, 100)).save(f"many/turned {number}.jpg", exif=exif)
        Image.new("RGBA", (120, 100), (9, 9, 9, 9)).save(f"many/clear {number}.png")
    done = fine("explain", "many", *M, "--min-size", 50, "--background", "black")
    assert done.stderr.count("turned upright") == 1
    assert done.stderr.count("laid on black") == 1
    assert "turned 0.jpg and 2 more" in done.stderr


def test_a_frame_of_several_can_be_taken(work):
    _, name = work
    frames = [Image.new("L", (8, 8), value) for value in (0, 255)]
    frames[0].save("two.tif", save_all=True, append_images=frames[1:])
    fine("explain", "two.tif", "-m", f"{name}:remembers", "--frame", 1)
    assert sys.modules[name].calls[0].min() == 1


def test_images_of_another_size_are_explained_at_the_model_s(work):
    small(255, (50, 60))
    done = fine("explain", "small.png", "-m", "model.onnx", "--resize", "--min-size", 50, "--json")
    (image,) = json.loads(done.stdout)["images"]
    assert (image["size"], image["resized_from"]) == ([50, 60], [50, 60])
    assert hshap.Explanation.load("hshap-output/small.npz").grid == (100, 120)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"channels_last": True}, ["--layout", "nhwc"]),
        ({"batch": 3}, []),
        ({"channels_last": True, "batch": 3}, ["--layout", "nhwc"]),
    ],
)
def test_other_layouts_and_batches_give_the_same(work, options, words):
    network("other.onnx", **options)
    common = ("--target", 1, "--baseline", "mean.png", "--min-size", 25)
    fine("explain", "images/cell.png", "-m", "model.onnx", *common, "--out", "a")
    fine("explain", "images/cell.png", "-m", "other.onnx", *common, *words, "--out", "b")
    one, other = (hshap.Explanation.load(f"{folder}/cell.npz") for folder in "ab")
    assert one.leaves == other.leaves
    assert one.score == pytest.approx(other.score, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("constant", [0.5, 0.5, 0.5]),
        ("constant:0.2", [0.2, 0.2, 0.2]),
        ("constant:0,0.5,1", [0, 0.5, 1]),
        ("blur:1", None),
        ("mean:references", [0.4, 0.4, 0.4]),
        ("grey.npy", [0.25, 0.25, 0.25]),
    ],
)
def test_hidden_pixels_show_the_baseline(work, text, value):
    _, name = work
    small(255)
    Path("references").mkdir()
    for number in (0, 204):
        Image.new("RGB", (16, 16), (number,) * 3).save(f"references/{number}.png")
    np.save("grey.npy", np.full((3, 16, 16), 0.25, np.float32))
    fine("explain", "small.png", "-m", f"{name}:remembers", "--baseline", text)
    calls = np.concatenate(sys.modules[name].calls[1:])
    corner = calls[:, :, 15, 15]
    wanted = [0, 0, 0] if value is None else value
    assert any(np.allclose(row, wanted, atol=1e-6) for row in corner)


def test_a_mean_in_the_scaling_makes_the_constant_baseline(work):
    _, name = work
    small(255)
    done = fine(
        *("explain", "small.png", "-m", f"{name}:remembers", "--mean", "0.5,0.4,0.3", "--json"),
        *("--baseline", "constant"),
    )
    assert json.loads(done.stdout)["baseline"]["value"] == 0


def test_a_second_run_needs_force_which_keeps_what_is_not_ours(work):
    _, name = work
    small(255)
    small(255, name="other.png")
    words = ("-m", f"{name}:brightest", "--out", "found")
    fine("explain", "small.png", *words)
    Path("found/notes.txt").write_text("mine")
    before = Path("found/small.npz").read_bytes()
    assert run("explain", "other.png", *words).exit_code == Code.OUTPUT
    assert Path("found/small.npz").read_bytes() == before
    fine("explain", "other.png", *words, "--force")
    names = {file.name for file in Path("found").iterdir()}
    assert names == {"notes.txt", "index.html", "summary.json", "other.npz", "other.png"}


def test_images_of_one_name_do_not_overwrite_each_other(work):
    _, name = work
    Path("other").mkdir()
    small(255)
    small(255, name="other/small.png")
    fine("explain", "small.png", "other", "-m", f"{name}:brightest")
    assert Path("hshap-output/small.npz").exists()
    assert Path("hshap-output/small-2.npz").exists()


def test_an_attribute_with_brackets_is_called(work):
    _, name = work
    small(255)
    fine("explain", "small.png", "-m", f"{name}:make()")


# What it refuses


def png(width, height, rows, *, depth=8, colour=2):
    def chunk(kind, data):
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(*parts)
        for parts in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    )


def truncated(name, kind):
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (100, 120, 3), np.uint8)
    Image.fromarray(noise).save(buffer, kind)
    Path(name).write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    return name


def written(name, data):
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(data)
    return name


def saved(image, name, **options):
    image.save(name, **options)
    return name


def frames(name):
    first, *others = [Image.new("L", (120, 100), value) for value in (0, 9)]
    return saved(first, name, save_all=True, append_images=others)


CELL, M = "images/cell.png", ("-m", "model.onnx")
REFUSED = {
    # what: (words, exit code, what the line says)
    "missing file": (lambda: ("nowhere.png", *M), 3, "nowhere.png cannot be opened (No such file"),
    "not an image": (lambda: (written("a.png", b"text"), *M), 3, "a.png is not an image"),
    "empty file": (lambda: (written("a.png", b""), *M), 3, "a.png is empty; get a whole copy"),
    "truncated png": (lambda: (truncated("a.png", "png"), *M), 3, "damaged or cut short"),
    "truncated jpeg": (lambda: (truncated("a.jpg", "jpeg"), *M), 3, "damaged or cut short"),
    "truncated second image": (lambda: (CELL, truncated("a.png", "png"), *M), 3, "cut short"),
    "empty folder": (lambda: (Path("e").mkdir() or "e", *M), 3, "e holds no images"),
    "another size": (lambda: (small(), *M), 4, "16 x 16 (height x width), but the model takes 100"),
    "another size of torch": (
        lambda: (small(), "-m", "hshap.demo:load()"),
        4,
        "if it takes another size, pass --size",
    ),
    "size against the model": (lambda: (CELL, *M, "--size", "50"), 4, "takes 100 x 120, but"),
    "channels against the model": (lambda: (CELL, *M, "--channels", "grey"), 4, "3 channels"),
    "layout against the model": (lambda: (CELL, *M, "--layout", "nhwc"), 4, "--layout nchw"),
    "unknown class": (
        lambda: (CELL, *M, "--classes", "none,cross", "-t", "crss"),
        2,
        "--target crss is not a class; did you mean cross?",
    ),
    "class without names": (lambda: (CELL, *M, "-t", "cross"), 2, "pass a number, or --classes"),
    "class out of range": (lambda: (CELL, *M, "-t", "2"), 2, "the model has 2 outputs; pass 0 to"),
    "too many names": (lambda: (CELL, *M, "--classes", "a,b,c"), 2, "3 class names for 2 outputs"),
    "out below a file": (lambda: (CELL, *M, "--out", "model.onnx/x"), 5, "cannot be written"),
    "out is a file": (lambda: (CELL, *M, "--out", "mean.png"), 5, "mean.png is a file"),
    "out filled": (lambda: (CELL, *M, "--out", filled("full")), 5, "full exists already"),
    "out has an input": (lambda: (CELL, *M, "--out", "images"), 5, f"images has the input {CELL}"),
    "out not writable": (lambda: (CELL, *M, "--out", "/proc/hshap/x"), 5, "cannot be written"),
    "pickle": (
        lambda: (CELL, "-m", written("m.pt", pickle.dumps(print))),
        4,
        "m.pt is TorchScript, a pickle or of unknown type: loading it can run code; pass --trust",
    ),
    "zipped pickle": (
        lambda: (CELL, "-m", written("m.pth", zipped({"a/data.pkl": pickle.dumps(print)}))),
        4,
        "pass --trust",
    ),
    "weights alone": (lambda: (CELL, "-m", written("w.safetensors", b"")), 4, "holds weights"),
    "no model": (lambda: (CELL, "-m", "nowhere.onnx"), 4, "nowhere.onnx does not exist"),
    "not onnx": (lambda: (CELL, "-m", written("m.onnx", b"text")), 4, "m.onnx is not an ONNX"),
    "no module": (lambda: (CELL, "-m", "no_such_module:x"), 4, "cannot be imported"),
    "no attribute": (lambda: (CELL, "-m", "math:x"), 4, "module math has no x"),
    "a maker": (lambda: (CELL, "-m", "hshap.demo:load"), 4, "--model 'hshap.demo:load()'"),
    "a class": (lambda: (CELL, "-m", "torch:nn.ReLU"), 4, "--model 'torch:nn.ReLU()'"),
    "not callable": (lambda: (CELL, "-m", "math:pi"), 4, "which cannot be called"),
    "bomb": (
        lambda: (written("a.png", png(40_000, 40_000, bytes(1000))), *M),
        3,
        "1600000000 pixels, more than 100000000; if you trust it, pass --max-pixels 1600000000",
    ),
    "text bomb": (lambda: (written("a.png", text_bomb()), *M), 3, "a.png is damaged"),
    "over the limit": (lambda: (CELL, *M, "--max-pixels", "11999"), 3, "more than 11999"),
    "frames": (lambda: (frames("a.gif"), *M), 3, "a.gif has 2 frames; pass --frame 0 to 1"),
    "no such frame": (lambda: (frames("a.tif"), *M, "--frame", "2"), 3, "has no frame 2"),
    "background": (lambda: (CELL, *M, "--background", "blu"), 2, "--background blu is not a col"),
    "floats": (lambda: (saved(Image.new("F", (120, 100)), "a.tif"), *M), 3, "pass --white"),
    "whiter than white": (lambda: (CELL, *M, "--white", "100"), 3, "beyond 0 to 100"),
    "two thresholds": (
        lambda: (CELL, *M, "--tolerance", "1", "--percentile", "70"),
        2,
        "exclude each other",
    ),
    "tolerance": (lambda: (CELL, *M, "--tolerance", "much"), 2, "--tolerance much is not"),
    "search": (lambda: (CELL, *M, "--search", "best"), 2, "--search best is not known; pass one"),
    "percentile of groups": (
        lambda: (CELL, *M, "--search", "group", "--percentile", "70"),
        2,
        "--percentile does not apply to --search group",
    ),
    "more than the score": (
        lambda: (CELL, *M, "--search", "group", "--tolerance", "120%"),
        2,
        "--tolerance 120% is more than the whole score",
    ),
    "percentile": (lambda: (CELL, *M, "--percentile", "101"), 2, "percentile must be"),
    "partition": (lambda: (CELL, *M, "--partition", "hex"), 2, "--partition hex is not known"),
    "size of leaves": (lambda: (CELL, *M, "--min-size", "0"), 2, "--min-size 0 is not"),
    "baseline": (lambda: (CELL, *M, "--baseline", "grey"), 2, "--baseline grey is neither"),
    "baseline without images": (
        lambda: (CELL, *M, "--baseline", "mean:.git"),
        3,
        ".git cannot be opened",
    ),
    "baseline of another size": (lambda: (CELL, *M, "--baseline", small()), 4, "16 x 16"),
    "unknown key": (lambda: (CELL, *M, "--config", written("c.toml", b"sise = 3")), 2, "c.toml: s"),
    "bad value": (lambda: (CELL, *M, "--config", written("c.toml", b"std = 0")), 2, "std is 0"),
    "not toml": (lambda: (CELL, *M, "--config", written("c.toml", b"x")), 3, "is not TOML"),
    "no text": (lambda: (CELL, *M, "--config", written("c.toml", b"\xff=")), 3, "is not text"),
    "device": (lambda: (CELL, *M, "--device", "cuda:7"), 2, "--device cuda:7 is not one"),
    "no model option": (lambda: (CELL,), 2, "--model"),
    "unknown option": (lambda: (CELL, *M, "--nope"), 2, "--nope"),
}


def filled(name):
    Path(name).mkdir()
    Path(name, "notes.txt").write_text("mine")
    return name


def zipped(entries):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def text_bomb():
    data = b"a\0\0" + zlib.compress(bytes(4 * 2**20), 9)
    check = struct.pack(">I", zlib.crc32(b"zTXt" + data))
    whole = png(120, 100, bytes(361 * 100))
    return whole[:33] + struct.pack(">I", len(data)) + b"zTXt" + data + check + whole[33:]


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_take_one_line_and_leave_nothing_behind(work, what):
    words, code, said = REFUSED[what]
    if what == "another size of torch":
        pytest.importorskip("torch")
    words = words()
    before = sorted(Path().rglob("*"))
    done = run("explain", *words)
    (line,) = done.stderr.splitlines()
    assert line.startswith("hshap: ")
    assert said in line
    assert "Traceback" not in done.output
    assert (done.exit_code, done.stdout) == (code, "")
    assert [path for path in sorted(Path().rglob("*")) if "__pycache__" not in str(path)] == before


@pytest.mark.parametrize(
    ("model", "said"),
    [("breaks_later", "the model failed: OSError: [Errno 28]"), ("nothing_usable", "shape")],
)
def test_a_model_that_fails_leaves_nothing_behind(work, model, said):
    _, name = work
    small(255)
    done = run("explain", "small.png", "-m", f"{name}:{model}", "--out", "a/b/found")
    assert done.exit_code == Code.MODEL
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not Path("a").exists()


def test_debug_shows_the_traceback(work):
    for words in (("--debug", "explain"), ("explain", "--debug")):
        done = run(*words, "nowhere.png", "-m", "model.onnx")
        assert isinstance(done.exception, hshap.HshapError)


def test_the_real_command_refuses_in_one_line(work):
    done = real("explain", "nowhere.png", "--model", "model.onnx")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_run_that_is_told_to_stop_leaves_nothing_behind(work):
    _, name = work
    small(255)
    words = ["explain", "small.png", "-m", f"{name}:waits", "--out", "found"]
    with subprocess.Popen([sys.executable, "-m", "hshap", *words], env=environment()) as process:  # noqa: S603
        while not Path("waiting").exists() and process.poll() is None:
            time.sleep(0.05)
        assert Path("found/.hshap-run").exists()
        process.terminate()
        assert process.wait() == 143
    assert not any("found" in path.name for path in Path().iterdir())


def test_names_that_are_no_text_or_look_like_markup_are_fine(work):
    _, name = work
    for file in ("we$ir\\d$ <b>[red].png", os.fsdecode(b"not\xfftext.png")):
        small(255, name=file)
        fine("explain", file, "-m", f"{name}:brightest", "--force", "--json")
        assert len(list(Path("hshap-output").glob("*.npz"))) == 1


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


def real(*words, **more):
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "hshap", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment() | more,
    )


# Models of torch


@pytest.mark.filterwarnings("ignore")
def test_torch_scripts_programs_and_pickles_need_trust(work):
    torch = pytest.importorskip("torch")
    small(255)
    module = torch.nn.Sequential(torch.nn.AdaptiveMaxPool2d(1), torch.nn.Flatten())
    example = torch.zeros(2, 3, 16, 16)
    torch.jit.save(torch.jit.trace(module.eval(), example), "script.pt")
    torch.save(module.train(), "whole.pt")
    program = torch.export.export(module.eval(), (example,))
    torch.export.save(program, "fixed.pt2")
    common = ("--target", 1, "--baseline", "constant:0", "--min-size", 4, "--json")
    found = {}
    for name in ("script.pt", "fixed.pt2", "whole.pt"):
        words = ("explain", "small.png", "-m", name, *common, "--out", f"out-{name}")
        done = run(*words)
        assert done.exit_code == Code.MODEL
        assert "pass --trust if you trust its author, or export the model to ONNX" in done.stderr
        done = fine(*words, "--trust")
        found[name] = json.loads(done.stdout)["images"][0]["explanations"][0]["regions"]
        if name == "whole.pt":
            assert "switched from training to eval mode" in done.stderr
    assert found["script.pt"] == found["fixed.pt2"] == found["whole.pt"]
    assert found["script.pt"] == [{"start": [4, 4], "stop": [8, 8], "score": 1.0}]


# The other commands


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """Two explanations of one image by the command, which many tests start from."""
    folder = tmp_path_factory.mktemp("explained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        small(255)
        Path("models_of_explained.py").write_text(MODELS)
        for out, size in (("a", 4), ("b", 8)):
            words = ("-m", "models_of_explained:brightest", "--baseline", "constant:0")
            more = ("--min-size", size, "--partition", "bisection", "--out", out)
            fine("explain", "small.png", *words, *more)
    return folder


@pytest.fixture
def found(work, explained):
    shutil.copytree(explained, Path(), dirs_exist_ok=True)
    return "a/small.npz", "b/small.npz"


def test_view_makes_a_page_once(found):
    done = fine("view", found[0], "small.png")
    assert "a/small.html" in done.stdout
    assert "small.png" in Path("a/small.html").read_text()
    assert run("view", found[0]).exit_code == Code.OUTPUT
    fine("view", found[0], "--force")
    small(255, (8, 8), "tiny.png")
    done = run("view", found[0], "tiny.png", "--out", "x.html")
    assert (done.exit_code, "the explanation is of 16 x 16" in done.stderr) == (Code.MODEL, True)
    fine("view", found[0], "tiny.png", "--out", "x.html", "--resize")


def test_view_opens_the_browser_if_asked(found, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    fine("view", found[0], "small.png", "--open")
    assert opened[0].startswith("file://")


@pytest.mark.parametrize("kind", ["coco", "geojson", "png", "tiff", "csv"])
def test_export_writes_what_other_tools_read(found, kind):
    if kind in ("tiff", "csv"):
        pytest.importorskip({"tiff": "tifffile", "csv": "pandas"}[kind])
    done = fine("export", found[0], "--format", kind, "--json")
    file = Path(json.loads(done.stdout)["file"])
    heat = hshap.Explanation.load(found[0]).coefficients()
    if kind == "coco":
        document = json.loads(file.read_text())
        assert document["images"][0]["file_name"] == "small.png"
        assert [one["bbox"] for one in document["annotations"]] == [[4, 4, 4, 4]]
    elif kind == "geojson":
        assert json.loads(file.read_text())["type"] == "FeatureCollection"
    elif kind == "csv":
        assert len(file.read_text().splitlines()) == 2
    else:
        values = pixels(file)
        assert np.array_equal(values > 0, heat > 0)
    assert run("export", found[0], "--format", kind).exit_code == Code.OUTPUT
    assert Path("a/small.png").stat().st_size > 1000  # explain's own picture is still there


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("view", "nowhere.npz"), 3, "nowhere.npz cannot be opened"),
        (("view", "small.png"), 3, "small.png is not an hshap explanation"),
        (("view", "bomb.npz"), 3, "more than"),
        (("export", "a/small.npz", "--format", "dicom"), 2, "--format dicom is not known"),
        (("export", "a/small.npz", "b/small.npz", "-f", "coco"), 2, "several files explain"),
        (("export", "empty", "-f", "coco"), 3, "empty holds no explanations (.npz)"),
        (("compare", "a/small.npz", "other.npz"), 3, "the same image and size"),
        (("compare", "a/small.npz", "b/small.npz", "--out", "no/x.png"), 5, "cannot be written"),
        (("cost",), 2, "pass --size"),
        (("cost", "images"), 2, "pass --model"),
        (("cost", "--size", "64", "--batch-size", "0"), 2, "pass 1 or more, or auto"),
    ],
)
def test_other_commands_refuse_in_one_line(found, words, code, said):
    bomb("bomb.npz")
    Path("empty").mkdir()
    model = lambda batch: batch.max(axis=(1, 2, 3))
    explainer = hshap.Explainer(model, hshap.Constant(0.0), hshap.Dyadic(2))
    explainer.explain(np.ones((1, 4, 4)), 0).save("other.npz")
    before = sorted(Path().rglob("*"))
    done = run(*words)
    (line,) = done.stderr.splitlines()
    assert (done.exit_code, said in line) == (code, True), line
    assert sorted(Path().rglob("*")) == before


def bomb(name):
    """Write a small file whose one entry says that it unpacks to 9 GiB."""
    with zipfile.ZipFile(name, "w") as archive:
        archive.writestr("header.npy", b"")
        archive.infolist()[0].file_size = 9 * 2**30


def test_compare_tells_what_agrees_and_draws_it(found):
    done = fine("compare", *found, "--json")
    told = json.loads(done.stdout)
    # A leaf of 4 x 4 pixels in the one, and of 8 x 8 around it in the other.
    assert told["agreement"]["iou"] == pytest.approx(16 / 64)
    assert told["agreement"]["same_leaves"] == 0
    assert 0 < told["agreement"]["rank_correlation"] < 1
    assert pixels("compare.png").shape[1] > 500
    done = fine("compare", found[0], found[0], "--out", "same.png")
    assert "rank correlation" in done.stdout


def test_rank_correlation_is_spearman_s(rng):
    stats = pytest.importorskip("scipy.stats")
    one, other = rng.integers(0, 5, (2, 50))
    assert rank_correlation(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
    assert rank_correlation(one, np.zeros(50)) is None


def test_two_empty_explanations_agree():
    model = lambda batch: np.zeros(len(batch))
    explainer = hshap.Explainer(model, hshap.Constant(0.0), hshap.Dyadic(2))
    empty = explainer.explain(np.ones((1, 4, 4)), 0)
    assert agreement(empty, empty)["iou"] == 1


@pytest.mark.parametrize(
    ("name", "partition", "gamma"),
    [("quadtree", hshap.Dyadic, 4), ("bisection", hshap.Bisection, 2)],
)
def test_the_predicted_cost_is_what_a_run_takes(rng, name, partition, gamma):
    findings, taken = 3, []
    cost = predicted((32, 32), name, 2, findings)
    assert cost.leaves == 256
    explainer = hshap.Explainer(
        lambda batch: (batch > 0.5).any(axis=(1, 2, 3)).astype(float),
        hshap.Constant(0.0),
        partition(2),
    )
    for _ in range(60):
        image = np.zeros((1, 32, 32))
        # Each leaf matters with the chance that gives as many findings on average.
        image[0, ::2, ::2] = rng.random((16, 16)) < findings / 256
        taken.append(explainer.explain(image, 0).evaluations)
    spread = np.std(taken) / np.sqrt(len(taken))
    assert abs(np.mean(taken) - cost.expected) < 3.5 * spread
    corners = np.zeros((1, 32, 32))
    corners[0, [0, 0, 31], [0, 31, 0]] = 1
    assert explainer.explain(corners, 0).evaluations <= cost.most <= cost.bound + 2


def test_cost_times_channels_last_of_a_torch_module():
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.AdaptiveAvgPool2d(1)).eval()
    timing = measured(Loaded(net, "net"), (3, 20, 30), None)
    assert [other[:2] for other in timing.alternatives] == [(1, False), (8, False), (32, True)]
    assert all(other.seconds > 0 for other in timing.alternatives)


@pytest.mark.parametrize("channels", [1, 3])
def test_cost_leaves_out_a_layout_that_the_model_fails_on_or_lacks(channels):
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def forward(self, batch):
            return batch.view(len(batch), -1).mean(dim=1, keepdim=True)

    timing = measured(Loaded(Net().eval(), "net"), (channels, 20, 30), None)
    assert [other[:2] for other in timing.alternatives] == [(1, False), (8, False)]


def test_cost_measures_the_model(work):
    told = json.loads(fine("cost", "-m", "model.onnx", "-k", 6, "--images", 5, "--json").stdout)
    assert told["size"] == [100, 120]
    assert told["seconds"]["expected"] > 0
    assert [other["batch_size"] for other in told["alternatives"]] == [1, 8]
    assert all(other["seconds"] > 0 for other in told["alternatives"])
    assert told["evaluations"]["expected"] <= told["evaluations"]["most"]
    assert "evaluations" in fine("cost", "--size", "64").stdout
    nothing = json.loads(fine("cost", "--size", "64", "-k", 0, "--json").stdout)
    assert nothing["evaluations"]["most"] == 4  # the image, the baseline and both halves


def test_cost_of_images_is_what_explaining_them_takes(work):
    options = ("-m", "model.onnx", "-t", 1, "--partition", "bisection", "--min-size", 10)
    options = (*options, "--baseline", "mean.png", "--tolerance", "0.1")
    told = json.loads(fine("cost", "images", *options, "--json").stdout)
    fine("explain", "images", *options)
    record = json.loads(Path("hshap-output/summary.json").read_text())
    assert told["images"] == told["sampled"] == 2
    # The images of a run share the score of a given baseline; those of a sample do in part.
    expected = pytest.approx(record["evaluations"], rel=0.02)
    assert told["evaluations"]["expected"] == expected
    assert told["evaluations"]["low"] <= told["evaluations"]["expected"]
    assert told["seconds"]["expected"] > 0
    assert told["seconds_per_evaluation"] > 0
    tenfold = json.loads(fine("cost", "images", *options, "--images", 20, "--json").stdout)
    assert tenfold["evaluations"]["expected"] == 10 * told["evaluations"]["expected"]
    assert "by a sample of 2" in fine("cost", "images", *options).stdout


COST = ("-t", 0, "--partition", "quadtree", "--min-size", 50)


def test_cost_reads_no_image_outside_of_the_sample(work):
    order = np.random.default_rng(SEED).permutation(3)
    assert 0 not in order[:1]
    Path("images/a.png").write_text("no image")  # the first by name
    told = json.loads(
        fine("cost", "images", "-m", "model.onnx", *COST, "--sample", 1, "--json").stdout
    )
    assert told["size"] == [100, 120]
    assert told["images"] == 3


def test_cost_of_one_image_has_no_range(work):
    words = ("cost", "images", "-m", "model.onnx", *COST, "--sample", 1)
    told = json.loads(fine(*words, "--json").stdout)
    assert told["evaluations"] == {
        "expected": 2 * told["sampled_evaluations"][0],
        "low": None,
        "high": None,
    }
    assert told["seconds"]["low"] is told["seconds"]["high"] is None
    assert "range" not in fine(*words).stdout


def test_cost_says_which_image_the_model_fails_on(work):
    bad = ("blot.png", "cell.png")[np.random.default_rng(SEED).permutation(2)[1]]
    mark = pixels(f"images/{bad}").astype(float).sum() / 255
    Path("picky.py").write_text(
        "def picky(batch):\n"
        f"    if abs(batch[0].sum(dtype=float) - {mark}) < 1e-2:\n"
        "        raise ValueError('not this one')\n"
        "    return batch.max(axis=(2, 3))\n"
    )
    options = ("-m", "picky:picky", "--partition", "quadtree", "--min-size", 50)
    done = fine("cost", "images", *options)
    sys.modules.pop("picky")
    assert f"left out of the sample: images/{bad}" in done.stderr
    assert "not this one" in done.stderr
    assert "by a sample of 1" in done.stdout


def test_cost_skips_bad_images_only_when_asked(work):
    Path("images/a.png").write_text("no image")
    words = ("cost", "images", "empty", "-m", "model.onnx", *COST)
    Path("empty").mkdir()
    done = run(*words)
    assert done.exit_code == Code.INPUT
    assert "empty" in done.stderr
    assert "pass --skip-bad" in done.stderr
    done = run(*words, "--skip-bad", "--json")
    assert done.exit_code == Code.SKIPPED
    assert "left out of the sample: images/a.png" in done.stderr
    told = json.loads(done.stdout)
    assert told["images"] == told["sampled"] == 2


def test_cost_takes_templates(work):
    Path("templates").mkdir()
    for name in ("blot", "cell"):
        shutil.copy("mean.png", f"templates/{name}.png")
    options = ("-m", "model.onnx", "-t", 1, "--template", "templates")
    told = json.loads(fine("cost", "images", *options, "--json").stdout)
    fine("explain", "images", *options)
    record = json.loads(Path("hshap-output/summary.json").read_text())
    assert told["evaluations"]["expected"] == record["evaluations"]


def test_cost_takes_all_options_of_explain_but_those_of_results():
    names = [set(inspect.signature(one).parameters) for one in (explain, cost)]
    missing = {f"--{name.replace('_', '-')}" for name in names[0] - names[1]}
    guide = (ROOT / "docs/command-line.md").read_text().split("## Cost")[1]
    sentence = re.search(r"It takes the options of `hshap explain` but ([^.]*)\.", guide)
    assert sentence is not None
    assert set(re.findall(r"`(--[a-z-]+)`", sentence[1])) == missing


def test_cost_and_explain_take_a_module_of_one_image_at_a_time(work):
    pytest.importorskip("torch")
    Path("single.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, batch):\n"
        "        assert len(batch) == 1\n"
        "        return batch.view(1, -1)[:, ::500].amax(dim=1, keepdim=True)\n"
        "net = Net().eval()\n"
    )
    for number in range(4):
        shutil.copy("mean.png", f"images/{number}.png")
    options = ("-m", "single:net", *COST, "--batch-size", 1)
    fine("explain", "images", *options)
    assert "by a sample of" in fine("cost", "images", *options).stdout
    sys.modules.pop("single")


def test_the_layout_of_a_run_is_kept_by_its_record(work):
    torch = pytest.importorskip("torch")
    Path("layouts.py").write_text(
        "import torch\n"
        "seen = set()\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, batch):\n"
        "        seen.add((batch.stride(1) == 1, len(batch) > 1))\n"
        "        return batch.amax(dim=(2, 3))\n"
        "net = Net().eval()\n"
    )
    del torch
    options = ("-m", "layouts:net", "-t", 0, "--partition", "quadtree", "--min-size", 25)
    fine("explain", "images", *options, "--channels-last")
    assert json.loads(Path("hshap-output/summary.json").read_text())["channels_last"] is True
    Path("images/new.png").write_bytes(Path("mean.png").read_bytes())
    sys.modules["layouts"].seen.clear()
    fine("explain", "images", *options, "--resume", "--channels-last")
    assert {last for last, several in sys.modules["layouts"].seen if several} == {True}
    done = run("explain", "images", *options, "--resume")
    assert done.exit_code == Code.USAGE
    assert "channels_last" in done.stderr
    sys.modules.pop("layouts")


def test_doctor_is_well_or_says_so_with_its_exit_code(capsys):
    told = json.loads(fine("doctor", "--json").stdout)
    assert told["healthy"]
    assert told["packages"]["numpy"] == np.__version__
    assert len(told["speed"]) >= 4
    assert all(gain["how"] and (gain["times"] or 1) > 0 for gain in told["speed"])
    assert "passed" in fine("doctor").stdout
    wrong = self_test(lambda game: np.zeros(len(game).bit_length() - 1))
    assert report(wrong, json=True) == Code.UNEXPECTED == 1
    told = json.loads(capsys.readouterr().out)
    assert [check["passed"] for check in told["self_test"]] == [False, True]


def test_doctor_tells_settings_that_slow_this_machine_down_and_only_those():
    speed = [Gain("threads", 0.4, "a"), Gain("memory", 1.7, "b"), Gain("layout", None, "c")]
    (line,) = slower(speed)
    assert "threads: 0.40 times as fast" in line
    assert "(a)" in line


def test_doctor_leaves_the_threads_of_torch_as_they_were():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    settings = [gain.setting for gain in gains()]
    assert torch.get_num_threads() == before
    assert any("channels last" in setting for setting in settings)


def test_doctor_names_the_package_that_has_our_import_name():
    assert conflicts(lambda name: None) == []
    (line,) = conflicts({"h-shap": "0.1.6"}.get)
    assert "h-shap 0.1.6" in line
    assert "pip uninstall h-shap" in line
    assert json.loads(fine("doctor", "--json").stdout)["conflicts"] == []


@pytest.mark.usefixtures("work")
def test_two_classes_of_a_folder_are_two_categories_of_one_coco_file():
    targets = ("--target", 0, "--target", 1)
    fine("explain", CELL, small(255, (100, 120)), *M, *targets, "--min-size", 50, "--out", "both")
    fine("export", "both", "--format", "coco")
    document = json.loads(Path("both/coco.json").read_text())
    assert len(document["images"]) == 2
    assert len(document["categories"]) == 2
    used = {(each["image_id"], each["category_id"]) for each in document["annotations"]}
    assert used <= {(image, category) for image in (1, 2) for category in (1, 2)}
    fine("export", "both", "--format", "geojson", "--out", "shapes")
    fine("export", "both", "--format", "csv")
    names = {file.stem for file in Path("both").glob("*.npz")}
    assert {file.stem for file in Path("shapes").glob("*.geojson")} == names
    assert {file.stem for file in Path("both").glob("*.csv")} == names
    named = run("export", "both", "--format", "coco", "--name", "x", "--out", "y.json")
    assert (named.exit_code, "leave out --name" in named.stderr) == (2, True)


@pytest.mark.usefixtures("work")
def test_images_of_one_name_in_two_folders_stay_apart_in_coco():
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Image.new("L", (120, 100), 255).save(f"{folder}/cell.png")
    fine("explain", "a", "b", *M, "--min-size", 50, "--out", "both")
    fine("export", "both", "--format", "coco")
    images = json.loads(Path("both/coco.json").read_text())["images"]
    assert {Path(each["file_name"]) for each in images} == {Path("a/cell.png"), Path("b/cell.png")}


@pytest.mark.parametrize("shape", [(300, 40), (40, 300), (64, 64)])
def test_pictures_have_no_wide_margins(work, shape):
    _, name = work
    small(255, shape)
    fine("explain", "small.png", "-m", f"{name}:brightest", "--min-size", 4)
    found = pixels("hshap-output/small.png")[..., :3]
    rows, columns = (np.flatnonzero((found < 250).any(axis=(1 - a, 2))) for a in (0, 1))
    for inside, side in ((rows, found.shape[0]), (columns, found.shape[1])):
        assert max(inside[0], side - 1 - inside[-1]) <= 12


def test_the_version_is_a_command_and_an_option():
    assert fine("--version").stdout == fine("version").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("explain",), "IMAGES is missing (Images, and folders of images)"),
        (("explain", "x.png"), "--model is missing (ONNX file"),
        (("export", "x.npz"), "--format is missing (One of coco, geojson"),
        (("compare", "a.npz"), "B.npz is missing (Another of the same image)"),
        (("--nope",), "No such option: --nope; see "),
        (("nope",), "No such command 'nope'; see "),
    ],
)
def test_a_missing_or_unknown_word_is_told_in_one_line(words, said):
    done = run(*words)
    (line,) = done.stderr.splitlines()
    assert (done.exit_code, said in line) == (2, True), line


def test_the_shell_completes_commands(tmp_path):
    done = real(_HSHAP_COMPLETE="complete_bash", COMP_WORDS="hshap ex", COMP_CWORD="1")
    assert done.stdout.split() == ["explain", "exam", "export"]
    # By way of a shell: typer looks for the one that it was called from.
    done = subprocess.run(  # noqa: S603
        ["bash", "-c", f"{sys.executable} -m hshap --install-completion; exit $?"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
        env=environment() | {"HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "hshap" in (tmp_path / ".bash_completions" / "hshap.sh").read_text()


# What is written about it


def commands():
    """Return the commands of the README's section on the command line."""
    text = (ROOT / "README.md").read_text()
    section = text.split("## From the command line")[1].split("\n## ")[0]
    block = re.findall(r"```\n(.*?)```", section, re.DOTALL)[0]
    return [shlex.split(line, comments=True) for line in block.splitlines() if line.strip()]


def test_a_new_user_gets_from_a_model_and_a_folder_to_a_page_with_the_readme_s_commands(work):
    first, *others = commands()
    assert len(others) < 6
    # The test runs in what this made; that its extras exist is all that is left to see.
    assert first[:2] == ["pip", "install"]
    extras = re.fullmatch(r"\.\[(.*)\]", first[2])[1].split(",")
    project = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras)
    for words in others:
        assert words[0] == "hshap"
        done = real(*words[1:])
        assert done.returncode == 0, done.stderr
    (page,) = Path("found").glob("*.html")
    assert "cell.png" in page.read_text()
    assert hshap.Explanation.load("found/cell.npz").leaves
    assert json.loads(Path("found/cell.json").read_text())["annotations"]


def test_the_how_to_tells_every_command_option_and_exit_code():
    import typer.main

    text = (ROOT / "docs" / "command-line.md").read_text()
    for name, command in typer.main.get_command(app).commands.items():
        assert f"`hshap {name}" in text, name
        for option in command.params:
            longest = max(option.opts, key=len)
            assert not longest.startswith("--") or re.search(rf"{longest}\b", text), longest
    for code in Code:
        assert f"| {int(code)} |" in text
