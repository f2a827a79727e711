"""Model files on the command line: which are opened, and files made to attack."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")
import commands
import onnx_attacks
from fuzzing import model_files
from fuzzing.model_files import MARKER, Harm
from onnx_attacks import attacks, constant, external, network, node

import hshap

IMAGE = np.random.default_rng(0).integers(0, 255, (8, 8, 3), np.uint8)
SIZES = ("--size", 8, "--min-size", 4)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A current folder inside of another one, each with a file of weights; an image."""
    inner = tmp_path / "folder"
    inner.mkdir()
    monkeypatch.chdir(inner)
    weights = np.random.default_rng(1).random((4, 2), np.float32)
    for name in (onnx_attacks.DATA, f"../{onnx_attacks.DATA}"):
        Path(name).write_bytes(weights.tobytes())
    commands.Image.fromarray(IMAGE).save("image.png")
    return inner


def written(name, content):
    """Write a model, and return its name."""
    content = content if isinstance(content, bytes) else content.SerializeToString()
    return Path(commands.written(name, content)).name


def told(name, *words):
    """Load a model by a command that refuses it; return the one line that says why."""
    done = commands.run("cost", "-m", name, *SIZES, *words)
    line = commands.refused(done, done.exit_code, "")
    assert done.exit_code in {2, 3, 4}
    assert line.isprintable()
    assert len(line) < 700
    return line


def score(name, *words, target=0):
    """Return the score that a model gives to the image, by a command."""
    options = ("--target", target, "--out", "out", "--force", "--json", *commands.GIVEN)
    done = commands.fine("explain", "image.png", "-m", name, *options, *words)
    (image,) = json.loads(done.stdout)["images"]
    return image["explanations"][0]["score"]


# Files that run code


def program_with(key):
    """Return an exported program with code in the texts of this key."""
    for seed in range(100):
        made = model_files.program_hostile(np.random.default_rng(seed))[1]
        if f'"{key}": "__import__'.encode() in made:
            return made
    raise AssertionError(key)


HOSTILE = {
    "program.pt2": lambda: program_with("expr_str"),
    "script.pt": lambda: model_files.originals()["hostile script"],
    "pickle.pt": lambda: model_files.originals()["harm"],
    "pickle.pth": lambda: pickle.dumps(Harm()),
    "pickle": lambda: pickle.dumps(Harm()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("program.pt2", marks=pytest.mark.exhaustive),
        *[n for n in HOSTILE if n[:2] != "pr"],
    ],
)
def test_a_file_that_runs_code_is_not_opened_without_trust(name):
    content = HOSTILE[name]()
    line = told(written(name, content))
    assert line.endswith("pass --trust if you trust its author, or export the model to ONNX")
    if "." in name:  # renamed, it is not read as what it is
        assert "is not an ONNX model" in told(written("renamed.onnx", content))
    assert not Path(MARKER).exists()
    # The attack is real: with trust, the code runs.
    commands.run("cost", "-m", name, *SIZES, "--trust")
    assert Path(MARKER).exists()


# Files that cannot be models


def pipe(name):
    os.mkfifo(name)
    return name


def announced(*sides, sparse=False):
    """A tensor or an input that is larger than any memory."""
    made = external(onnx_attacks.DATA, "sparse") if sparse else network()
    tensor = made.graph.sparse_initializer[0] if sparse else made.graph.initializer[0]
    tensor.dims[:] = sides
    return written("model.onnx", made)


def large_input():
    made = network()
    made.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 2**40
    return written("model.onnx", made)


def large_data():
    made = external(onnx_attacks.DATA)
    made.graph.initializer[1].dims[:] = [2**30, 4]
    made.graph.initializer[1].external_data[2].value = str(2**34)
    os.truncate(onnx_attacks.DATA, 2**34)  # takes no space on the disk
    return written("model.onnx", made)


def large_file():
    written("model.onnx", b"")
    os.truncate("model.onnx", 2**31 + 1)
    return "model.onnx"


def field(number, content):
    length, out = len(content), bytes([number << 3 | 2])
    while length > 127:
        out, length = out + bytes([length & 127 | 128]), length >> 7
    return out + bytes([length]) + content


def nested(levels):
    inner = b""
    for level in range(levels):
        inner = field((6, 5, 1)[level % 3], inner)
    return field(7, inner)


def last_key_counts():
    """Of two keys with one name, protobuf takes the last."""
    entry = b"\x0a\x01x\x12\x0e../weights.bin\x0a\x08location"
    tensor = b"\x6a" + bytes([len(entry)]) + entry
    written("model.onnx", field(7, field(5, tensor)))
    made = onnx.load("model.onnx", load_external_data=False)
    assert made.graph.initializer[0].external_data
    return "model.onnx"


def named(name):
    made = network()
    made.graph.node[0].input[0] = name
    return written("model.onnx", made)


def of_type(kind):
    """A model of the largest pixel of each channel that takes numbers of this type."""
    nodes = [
        node("Cast", ["x"], ["c"], to=onnx.TensorProto.FLOAT),
        node("ReduceMax", ["c"], ["y"], axes=[2, 3], keepdims=0),
    ]
    made = onnx_attacks.model(nodes)
    made.graph.input[0].type.tensor_type.elem_type = getattr(onnx.TensorProto, kind)
    return written(f"{kind}.onnx", made)


def two_outputs():
    made = network()
    made.graph.output.append(onnx.helper.make_tensor_value_info("i", onnx.TensorProto.FLOAT, None))
    return written("two.onnx", made)


NO_MODEL = "is not an ONNX model that can be loaded"
REFUSED = {
    "weights": (lambda: written("w.safetensors", b""), "pass module:attribute for the network"),
    **{
        name: (lambda name=name: pipe(name) if name[0] != "/" else name, "is a pipe or a device")
        for name in ("pipe.onnx", "pipe.pt", "pipe.pt2", "/dev/zero")
    },
    **{
        repr(name[:9]): (lambda name=name: name, f"--model {name}")
        for name in ("", ".", "nowhere.onnx", "a" * 300 + ".onnx", "..", "nowhere")
    },
    **{
        name: (lambda content=content: written("m.onnx", content), NO_MODEL)
        for name, content in {
            "empty": b"",
            "zero": b"\x00",
            "no field": b"\x0f",
            "cut short": b"\x0a\x7f",
            "endless": b"\x08" + b"\xff" * 20,
            "deep": nested(900),
            "text": b"text",
        }.items()
    },
    "two keys": (last_key_counts, NO_MODEL),
    "large file": (large_file, NO_MODEL),
    "large tensor": (lambda: announced(2**40, 3), NO_MODEL),
    "large sparse tensor": (lambda: announced(2**40, 3, sparse=True), NO_MODEL),
    "large data": (large_data, "model.onnx"),
    "large input": (large_input, "takes inputs of 1 x 3 x 1099511627776 x 8"),
    "coloured name": (lambda: named("\x1b[31mred"), "is not an ONNX model"),
    "lines": (lambda: named("two\nlines"), "is not an ONNX model"),
    "bell": (lambda: named("\x07"), "is not an ONNX model"),
    "integers": (lambda: of_type("INT64"), "model takes tensor(int64)"),
    "two outputs": (two_outputs, "1 inputs and 2 outputs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_is_no_model_is_refused_in_one_line(case):
    make, said = REFUSED[case]
    assert said in told(make())


LOCATIONS = (
    *("../weights.bin", "./a/../../weights.bin", "{absolute}", "/etc/passwd", "/dev/zero"),
    *("link.bin", "links/weights.bin", "pipe.bin", "itself.bin", "", "nowhere.bin"),
    *("..\\weights.bin", "a\x1b[31m.bin", onnx_attacks.MEMORY_ADDRESS),
)
BOTH = list(itertools.product(LOCATIONS, onnx_attacks.PLACES))


@pytest.mark.parametrize(
    "cases",
    [
        [(location, onnx_attacks.PLACES[n % 5]) for n, location in enumerate(LOCATIONS)],
        pytest.param(BOTH, marks=pytest.mark.exhaustive),
    ],
    ids=["some", "all"],
)
def test_external_data_elsewhere_is_refused(cases):
    Path("link.bin").symlink_to("../weights.bin")
    Path("links").symlink_to("..")
    Path("itself.bin").symlink_to("itself.bin")
    os.mkfifo("pipe.bin")
    memory = Path(onnx_attacks.MEMORY_ADDRESS)
    memory.parent.mkdir(parents=True)
    memory.write_bytes(bytes(32))
    for location, place in cases:
        location = location.replace("{absolute}", str(Path("weights.bin").resolve()))  # noqa: PLW2901
        line = told(written("model.onnx", external(location, place)))
        assert NO_MODEL in line, (location, place)


def test_external_data_in_the_folder_is_read():
    inside = network()
    weights = np.fromfile(onnx_attacks.DATA, np.float32).reshape(4, 2)
    inside.graph.initializer[1].CopyFrom(constant("head", weights))
    wanted = score(written("inside.onnx", inside))
    assert score("inside.onnx", "--trust") == pytest.approx(wanted)
    for place in ("initializer", "attribute", "subgraph", "function"):
        written("model.onnx", external(f"./{onnx_attacks.DATA}", place))
        assert score("model.onnx") == pytest.approx(wanted)


# The process of the model


ATTACKS = {
    "smallest integer / -1": "its process ended by SIGFPE",
    "no groups": "its process ended by SIGFPE",
    "endless loop": "and was stopped",
    "functions that double": "and was stopped",
    "much memory": "failed on an image of shape (3, 8, 8)",
    "memory that is filled": "model.onnx",
    "large output": "its output has shape (1, 3145728, 8, 8)",
    "operation of a library": "PyOp(-1) is not a registered function",
}
SLOW = {"functions that double", "memory that is filled", "large output"}


@pytest.mark.usefixtures("usual_limits")
@pytest.mark.parametrize(
    "attack", [pytest.param(a, marks=[pytest.mark.exhaustive] * (a in SLOW)) for a in ATTACKS]
)
def test_a_model_that_crashes_hangs_or_fills_memory_is_refused(attack):
    line = told(written("model.onnx", attacks()[attack]))
    seconds = re.search(r"took over (\d+) s to load and score one image, and was stopped", line)
    assert (seconds and int(seconds[1]) <= 5) or ATTACKS[attack] in line


def crashes_below_zero():
    """A model that crashes if the first pixel is -1."""
    nodes = [
        node("ReduceMin", ["x"], ["m"], keepdims=0),
        node("Cast", ["m"], ["i"], to=onnx.TensorProto.INT32),
        node("Div", ["a", "i"], ["d"]),
        node("Cast", ["d"], ["e"], to=onnx.TensorProto.FLOAT),
        node("GlobalMaxPool", ["x"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Add", ["f", "e"], ["y"]),
    ]
    return onnx_attacks.model(nodes, [constant("a", np.int32(-(2**31)))])


def test_a_crash_during_a_run_ends_the_command_in_one_line():
    commands.Image.new("RGB", (8, 8), (200, 200, 200)).save("grey.png")
    written("model.onnx", crashes_below_zero())
    # Only the hidden pixels are -1.
    words = ("-m", "model.onnx", "--range=-1,10", "--baseline", "constant:0", "--target", 0)
    done = commands.run("explain", "grey.png", *words)
    commands.refused(done, 4, "ProcessEndedError: its process ended by SIGFPE")
    assert not Path("hshap-output").exists()


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")
def test_an_interrupt_ends_the_process_of_the_model():
    def interrupt(*_):
        raise KeyboardInterrupt

    written("model.onnx", attacks()["endless loop"])
    earlier, before = children(), signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.5)
        done = commands.run("cost", "-m", "model.onnx", *SIZES)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert done.exit_code == 130
    assert set(children()) <= set(earlier)


@pytest.mark.kills
@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")
def test_the_process_of_a_model_ends_with_a_command_that_is_killed():
    written("model.onnx", attacks()["endless loop"])
    command = [sys.executable, "-m", "hshap", "cost", "-m", "model.onnx", *map(str, SIZES)]
    running = subprocess.Popen(command, env=commands.environment())  # noqa: S603
    listed = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while not (found := listed.read_text().split()):
        time.sleep(0.05)
    running.kill()
    running.wait()
    process = Path("/proc") / found[0] / "stat"
    for _ in range(1000):
        # A process that ended may wait there as a zombie, Z, until somebody asks for its code.
        if not process.exists() or process.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the process still runs")


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "FLOAT16"])
def test_models_of_every_kind_of_float_answer(kind):
    assert score(of_type(kind), target=1) == pytest.approx(IMAGE[..., 1].max() / 255, rel=1e-3)


# Modules of the user, in the folder from which the command is started

RUNS_CODE = f"open({MARKER!r}, 'w').close()"
OWN = "import numpy as np\nimport near\ndef model(batch): return batch.max(axis=(1, 2, 3))\n"


def installed(*words, **files):
    """Run hshap as installed: without the current folder on the path of modules."""
    for name, content in files.items():
        Path(f"{name}.py").write_text(content)
    paths = [os.path.abspath(path) for path in sys.path if path]  # noqa: PTH100
    start = f"import sys; sys.path[1:1] = {paths}; from hshap.__main__ import main; main()"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-P", "-c", start, "cost", *words, *map(str, SIZES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not Path(MARKER).exists()
    return done.returncode, done.stderr


def test_a_file_in_the_folder_cannot_take_the_place_of_a_library():
    libraries = dict.fromkeys(("numpy", "typer", "torch", "json", "subprocess"), RUNS_CODE)
    assert installed("-m", "own:model", own=OWN, near="", **libraries) == (0, "")
    code, said = installed("-m", "numpy:model")
    assert (code, said.count("\n")) == (4, 1)
    assert "module numpy is in the current folder and in " in said


@pytest.mark.exhaustive
def test_the_process_of_a_model_does_not_import_from_the_folder():
    written("model.onnx", network())
    libraries = dict.fromkeys(("numpy", "onnxruntime", "json", "threading", "signal"), RUNS_CODE)
    assert installed("-m", "model.onnx", **libraries) == (0, "")


# The TOML next to a model

ODD_VALUES = [
    *("size = [true, true]", "size = [1e400, 2]", "size = [99999999999, 5]", "size = 1979-05-27"),
    *("size = [[8], [8]]", "size.a.b = 1", "mean = " + "1" * 5000, "mean = 1" + "0" * 400),
    *("mean = 0x" + "f" * 6000, "mean = [nan]", "mean = true", "std = 1e-320", "std = inf"),
    *("std = []", "white = '255'", "classes = [1, 2]", "classes = {a = 1}", "range = [1, 1]"),
    *('"\\u001b[31mred" = 1', "output = ['raw']", "layout = {}", "x = " + "[" * 100_000),
    *("x" + ".x" * 100_000 + " = 1", "a = 1\na = 2", "\x1b[31m", "#" * 2**19),
]


def test_a_toml_with_odd_values_is_refused_in_one_line():
    written("model.onnx", network())
    for text in ODD_VALUES:
        Path("model.toml").write_text(text)
        assert "model.toml" in told("model.onnx"), text[:80]
    Path("model.toml").unlink()
    os.mkfifo("model.toml")  # refused without waiting
    assert "is a named pipe" in told("model.onnx")
    assert "is a device" in told("model.onnx", "--config", "/dev/zero")


# Metadata in a file


def with_metadata(channels=3, **entries):
    """A file that returns the mean of each channel, with metadata."""
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("image", ["n", channels, 8, 8]), ("scores", ["n", channels, 1, 1]))
    ]
    node_ = onnx.helper.make_node("GlobalAveragePool", ["image"], ["scores"])
    graph = onnx.helper.make_graph([node_], "means", ends[:1], ends[1:])
    made = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.helper.set_model_props(made, entries)
    return written("model.onnx", made)


SCALED = {"mean": "[0.5, 0.4, 0.3]", "std": "[0.5, 0.2, 0.1]"}
MEANS = IMAGE.mean((0, 1)) / 255


@pytest.mark.parametrize(
    ("entries", "scale", "mean", "std"),
    [
        (SCALED, 1, [0.5, 0.4, 0.3], [0.5, 0.2, 0.1]),
        ({"image_mean": "[127.5]", "image_std": "127.5"}, 255, [127.5] * 3, [127.5] * 3),
        ({"rescale_factor": "1.0"}, 255, [0] * 3, [1] * 3),
        ({"Image.NominalPixelRange": "NominalRange_0_255"}, 255, [0] * 3, [1] * 3),
        ({"author": "someone"}, 1, [0] * 3, [1] * 3),
    ],
)
def test_pixels_are_scaled_as_the_metadata_tells(entries, scale, mean, std):
    file = with_metadata(names='{0: "red", 1: "green", 2: "blue"}', **entries)
    expected = ((MEANS * scale - mean) / std)[1]
    assert score(file, target="green") == pytest.approx(expected, rel=1e-4)
    assert score(file, "--trust", target="green") == pytest.approx(expected, rel=1e-4)


def test_options_and_the_toml_win_over_the_metadata():
    file = with_metadata(names="a,b,c", **SCALED)
    Path("model.toml").write_text('classes = ["x", "y", "z"]\nstd = [1.0]\n')
    assert score(file, "--mean", "0.1", target="y") == pytest.approx(MEANS[1] - 0.1, rel=1e-4)


def test_blue_comes_first_where_the_metadata_tells_it():
    file = with_metadata(**SCALED | {"Image.BitmapPixelFormat": "Bgr8"})
    expected = ((MEANS[::-1] - [0.5, 0.4, 0.3]) / [0.5, 0.2, 0.1])[0]
    assert score(file) == pytest.approx(expected, rel=1e-4)
    session = pytest.importorskip("onnxruntime").InferenceSession(file)
    pixels = np.moveaxis(IMAGE, -1, 0)[None] / np.float32(255)
    assert hshap.models.onnx(session)(pixels)[0].ravel()[0] == pytest.approx(expected, rel=1e-4)


def test_names_that_come_twice_have_their_numbers():
    file = with_metadata(names='["crane", "owl", "crane"]')
    assert score(file, target="crane (2)") == pytest.approx(MEANS[2], rel=1e-4)
    options = ("-t", "crane", "--classes", "crane,owl,crane", "--out", "found")
    done = commands.run("explain", "image.png", "-m", file, *options)
    commands.refused(done, 2, "did you mean crane (0) or crane (2)?")


UNREADABLE = [
    ({"mean": "[0.5]"}, "has metadata without std"),
    ({"mean": "often", "std": "1"}, "has the metadata mean='often', which cannot be read"),
    ({"mean": "[1e999]", "std": "[1]"}, "which cannot be read"),
    ({"mean": "[0.5]", "std": "[0]"}, "std must be above 0"),
    ({"mean": "[0.5, 0.5]", "std": "[1, 1]"}, "has 2 numbers, but images have 3 channels"),
    ({"names": "{1: 'a', 2: 'b'}"}, "which cannot be read"),
    ({"names": "[" * 10**5}, "which cannot be read"),
    ({"names": "['a', 'b'"}, "which cannot be read"),
    ({"names": ""}, "has the metadata names='', which cannot be read"),
    ({"names": "5"}, "has the metadata names='5', which cannot be read"),
    ({"names": "a," * 2**20}, "its metadata names has 2097152 characters"),
    ({"mean": "\x1b]0;x\x07", "std": "1"}, "which cannot be read"),
]


def test_metadata_that_cannot_be_used_is_refused_in_one_line():
    for entries, said in UNREADABLE:
        assert said in told(with_metadata(**entries))


PROCESSOR = {
    "do_resize": True,
    "size": {"shortest_edge": 16},
    "do_center_crop": True,
    "crop_size": {"height": 8, "width": 8},
    "do_normalize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.5, 0.2, 0.1],
    "rescale_factor": 1 / 255,
}


def test_a_processor_beside_the_model_tells_its_preparation():
    with_metadata(names="a,b,c", mean="[9]", std="[9]")
    Path("preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    expected = ((MEANS - [0.5, 0.4, 0.3]) / [0.5, 0.2, 0.1])[1]
    assert score("model.onnx", target="b") == pytest.approx(expected, rel=1e-4)
    assert score("model.onnx", "--mean", "0.1", target="b") == pytest.approx(MEANS[1] - 0.1, 1e-4)
    for text in ("[", "[1]", "{}" * 9, '{"do_normalize": true}', '{"size": 3, "do_resize": true}'):
        Path("preprocessor_config.json").write_text(text)
        assert "preprocessor_config.json is no config of an image processor" in told("model.onnx")
