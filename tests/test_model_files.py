"""Model files on the command line: which are opened, and files made to attack."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")
pytest.importorskip("typer")

import onnx_attacks
from fuzzing import model_files
from fuzzing.model_files import MARKER, Harm
from onnx_attacks import attacks, constant, external, node
from typer.testing import CliRunner

from hshap import models
from hshap.cli.app import app
from hshap.cli.faults import Refusal
from hshap.cli.inputs.formats import Format, given_fields
from hshap.cli.inputs.model_files import onnx_files, onnx_process
from hshap.cli.inputs.model_files.onnx_process import ModelEndedError, OnnxProcess
from hshap.cli.inputs.models import Loaded, config_of, fitted, load, probe
from hshap.cli.options import loaded_model

IMAGE = np.random.default_rng(0).random((3, 8, 8), np.float32)
HERE = [str(Path(__file__).parents[1] / part) for part in ("src", "")]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A current folder inside of another one, each with a file of weights."""
    inner = tmp_path / "folder"
    inner.mkdir()
    monkeypatch.chdir(inner)
    weights = np.random.default_rng(1).random((4, 2), np.float32)
    for name in (onnx_attacks.DATA, f"../{onnx_attacks.DATA}"):
        Path(name).write_bytes(weights.tobytes())
    return inner


def written(name, content):
    Path(name).write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return name


def scores(name, *, trust=False, image=IMAGE):
    loaded, _ = fitted(load(name, trust=trust, device="cpu"), Format())
    return probe(loaded, image)


def refused(name):
    with pytest.raises(Refusal) as caught:
        scores(name)
    assert str(caught.value).isprintable()
    return str(caught.value)


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
@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_runs_code_is_not_opened_without_trust(name):
    written(name, HOSTILE[name]())
    said = refused(name)
    assert said.endswith("pass --trust if you trust its author, or export the model to ONNX")
    assert not Path(MARKER).exists()
    # The attack is real: with trust, the code runs.
    with suppress(Refusal):
        load(name, trust=True, device="cpu")
    assert Path(MARKER).exists()


@pytest.mark.parametrize("name", ["pickle.onnx", "script.onnx"])
def test_a_pickle_with_the_name_of_an_onnx_file_is_not_read_as_one(name):
    written(name, HOSTILE[f"{Path(name).stem}.pt"]())
    assert "is not an ONNX model" in refused(name)
    assert not Path(MARKER).exists()


def test_weights_alone_are_refused_with_the_way_to_a_network():
    assert "pass module:attribute for the network" in refused(written("w.safetensors", b""))


@pytest.mark.parametrize("name", ["pipe.onnx", "pipe.pt", "pipe.pt2", "/dev/zero"])
def test_pipes_and_devices_as_models_are_refused_without_waiting(name):
    if name.startswith("pipe"):
        os.mkfifo(name)
    assert "is a pipe or a device" in refused(name)


@pytest.mark.parametrize("name", ["", ".", "nowhere.onnx", "a" * 300 + ".onnx", "..", "nowhere"])
def test_names_that_are_no_file_are_refused(name):
    assert config_of(name) is None
    assert refused(name).startswith(f"--model {name}")


# Modules of the user


def command(*words, **files):
    """Run hshap as installed: without the current folder on the path of modules."""
    for name, content in files.items():
        Path(f"{name}.py").write_text(content)
    start = f"import sys; sys.path[1:1] = {HERE}; from hshap.__main__ import main; main()"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-P", "-c", start, "cost", *words, "--size", "8", "--min-size", "4"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


RUNS_CODE = f"open({MARKER!r}, 'w').close()"
OWN = "import numpy as np\nimport near\ndef model(batch): return batch.max(axis=(1, 2, 3))\n"


def test_a_file_in_the_folder_cannot_take_the_place_of_a_library():
    libraries = dict.fromkeys(("numpy", "typer", "torch", "json", "subprocess"), RUNS_CODE)
    assert command("-m", "own:model", own=OWN, near="", **libraries) == (0, "")
    assert not Path(MARKER).exists()


def test_the_process_of_a_model_does_not_import_from_the_folder():
    written("model.onnx", onnx_attacks.network())
    libraries = dict.fromkeys(("numpy", "onnxruntime", "json", "threading", "signal"), RUNS_CODE)
    assert command("-m", "model.onnx", **libraries) == (0, "")
    assert not Path(MARKER).exists()


def test_a_module_that_is_also_installed_is_refused():
    code, said = command("-m", "numpy:model", numpy=RUNS_CODE)
    assert code == 4
    assert "module numpy is in the current folder and in " in said
    assert said.count("\n") == 1
    assert not Path(MARKER).exists()


# ONNX: the file


def test_onnx_gives_the_same_scores_with_and_without_trust():
    written("model.onnx", onnx_attacks.network())
    assert scores("model.onnx") == pytest.approx(scores("model.onnx", trust=True))


@pytest.mark.parametrize("place", ["initializer", "attribute", "subgraph", "function"])
def test_external_data_in_the_folder_is_read(place):
    made = external(f"./{onnx_attacks.DATA}", place)
    written("model.onnx", made)
    inside = onnx_attacks.network()
    weights = np.fromfile(onnx_attacks.DATA, np.float32).reshape(4, 2)
    inside.graph.initializer[1].CopyFrom(constant("head", weights))
    wanted = scores(written("inside.onnx", inside))
    assert scores("model.onnx") == pytest.approx(wanted)
    assert onnx_files.check_onnx_file(Path("model.onnx")) == made.ByteSize() + 32


@pytest.mark.parametrize("place", onnx_attacks.PLACES)
@pytest.mark.parametrize(
    "location",
    [
        "../weights.bin",
        "./a/../../weights.bin",
        "{absolute}",
        "/etc/passwd",
        "/dev/zero",
        "link.bin",
        "links/weights.bin",
        "pipe.bin",
        "itself.bin",
        "",
        "nowhere.bin",
        "..\\weights.bin",
        "a\x1b[31m.bin",
        onnx_attacks.MEMORY_ADDRESS,
    ],
)
def test_external_data_elsewhere_is_refused_before_it_is_opened(location, place, monkeypatch):
    Path("link.bin").symlink_to("../weights.bin")
    Path("links").symlink_to("..")
    Path("itself.bin").symlink_to("itself.bin")
    os.mkfifo("pipe.bin")
    memory = Path(onnx_attacks.MEMORY_ADDRESS)
    memory.parent.mkdir(parents=True)
    memory.write_bytes(bytes(32))
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    location = location.replace("{absolute}", str(Path("weights.bin").resolve()))
    said = refused(written("model.onnx", external(location, place)))
    assert "names external data" in said or "cannot be read" in said


def test_the_last_of_two_keys_counts_as_it_does_for_protobuf():
    entry = b"\x0a\x01x\x12\x0e../weights.bin\x0a\x08location"
    tensor = b"\x6a" + bytes([len(entry)]) + entry
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    written("model.onnx", b"\x3a" + bytes([len(graph)]) + graph)
    assert onnx.load("model.onnx", load_external_data=False).graph.initializer[0].external_data
    assert "names external data '../weights.bin'" in refused("model.onnx")


def test_every_way_to_a_tensor_is_walked():
    """The table of fields agrees with the schema of the onnx package."""

    def parts(message):
        return {f.number: f.message_type for f in message.fields if f.message_type is not None}

    def leads_to_tensor(message, seen=()):
        return message.name == "TensorProto" or any(
            leads_to_tensor(part, (*seen, message.name))
            for part in parts(message).values()
            if part.name not in seen
        )

    found, left = {}, [onnx.ModelProto.DESCRIPTOR]
    while left:
        message = left.pop()
        ways = {n: part for n, part in parts(message).items() if leads_to_tensor(part)}
        found[message.name] = {number: part.name for number, part in ways.items()}
        left += [part for part in ways.values() if part.name not in found]
    assert found == onnx_files.PARTS
    fields = onnx.TensorProto.DESCRIPTOR.fields_by_name
    assert fields["external_data"].number == onnx_files.EXTERNAL_DATA
    assert fields["dims"].number == onnx_files.DIMS["TensorProto"]
    sparse = onnx.SparseTensorProto.DESCRIPTOR.fields_by_name
    assert sparse["dims"].number == onnx_files.DIMS["SparseTensorProto"]


def announced(*sides, sparse=False):
    made = onnx_attacks.network()
    if sparse:
        made = external(onnx_attacks.DATA, "sparse")
        made.graph.sparse_initializer[0].dims[:] = sides
    else:
        made.graph.initializer[0].dims[:] = sides
    return made


@pytest.mark.parametrize("sparse", [False, True])
def test_a_tensor_larger_than_memory_is_refused_by_its_shape(sparse):
    said = refused(written("model.onnx", announced(2**40, 3, sparse=sparse)))
    assert "announces a tensor of 1099511627776 x 3 numbers, more than the memory" in said


def test_an_input_larger_than_memory_is_refused_by_its_shape():
    made = onnx_attacks.network()
    made.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 2**40
    assert "takes inputs of 1 x 3 x 1099511627776 x 8" in refused(written("model.onnx", made))


def test_a_file_of_data_that_is_larger_than_memory_is_refused():
    made = external(onnx_attacks.DATA)
    tensor = made.graph.initializer[1]
    tensor.dims[:] = [2**30, 4]
    tensor.external_data[2].value = str(2**34)
    with Path(onnx_attacks.DATA).open("r+b") as file:
        file.truncate(2**34)  # takes no space on the disk
    assert "model.onnx" in refused(written("model.onnx", made))


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


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot mmap an empty file"),
        (b"\x00", "does not end"),
        (b"\x0f", "no field of a protobuf message"),
        (b"\x0a\x7f", "is cut short"),
        (b"\x08" + b"\xff" * 20, "does not end"),
        (nested(900), "more than 100 levels"),
        (b"text", "is no field of a protobuf message"),
    ],
)
def test_a_damaged_protobuf_is_refused_before_onnxruntime_sees_it(content, said, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    written("model.onnx", content)
    assert said in refused("model.onnx")


def test_a_message_of_very_many_fields_is_refused():
    fields = onnx_files.Fields(b"\x08\x01" * 11, most=10)
    with pytest.raises(onnx_files.DamagedError, match="more than 10 fields"):
        list(fields.of(0, 22))


def test_a_file_larger_than_a_protobuf_is_refused():
    written("model.onnx", b"")
    os.truncate("model.onnx", 2**31 + 1)
    assert "more than an ONNX file can have" in refused("model.onnx")


# ONNX: the process of the model


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("smallest integer / -1", "its process ended by SIGFPE"),
        ("no groups", "its process ended by SIGFPE"),
        ("endless loop", "and was stopped"),
        ("functions that double", "and was stopped"),
        ("much memory", "failed on an image of shape (3, 8, 8)"),
        ("memory that is filled", "model.onnx"),
        ("large output", "its output has shape (1, 3145728, 8, 8)"),
        ("operation of a library", "PyOp(-1) is not a registered function"),
    ],
)
def test_a_model_that_crashes_hangs_or_fills_memory_is_refused(attack, said):
    path = Path(written("model.onnx", attacks()[attack]))
    seconds = 1.0 if "stopped" in said else 60.0
    with pytest.raises(Refusal) as caught:
        probe(Loaded(OnnxProcess(path, "cpu", seconds), "model.onnx"), IMAGE)
    assert str(caught.value).isprintable()
    assert said in str(caught.value)


@pytest.mark.usefixtures("usual_limits")
def test_a_model_that_hangs_is_stopped_within_five_seconds():
    assert onnx_process.SECONDS <= 5
    told = refused(written("model.onnx", attacks()["endless loop"]))
    assert f"it took over {onnx_process.SECONDS:.0f} s to load and score one image" in told
    assert "and was stopped" in told


def crashes_below_zero():
    """Return a model that crashes if the first pixel is -1."""
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


def test_a_crash_on_a_later_image_is_an_error_and_so_are_all_calls_after_it():
    model = OnnxProcess(Path(written("model.onnx", crashes_below_zero())), "cpu")
    assert model(np.ones((2, 3, 8, 8))).shape == (2, 3)
    for value in (-1.0, 1.0):
        with pytest.raises(ModelEndedError, match="its process ended by SIGFPE"):
            model(np.full((1, 3, 8, 8), value))


def test_a_crash_during_a_run_ends_the_command_in_one_line():
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (8, 8), (200, 200, 200)).save("grey.png")
    written("model.onnx", crashes_below_zero())
    # Only the hidden pixels are -1.
    words = ("-m", "model.onnx", "--range=-1,10", "--baseline", "constant:0", "--target", "0")
    done = CliRunner().invoke(app, ["explain", "grey.png", *words])
    assert done.exit_code == 4
    assert "the model failed: ModelEndedError: its process ended by SIGFPE" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path("hshap-output").exists()


def test_an_error_of_the_model_leaves_it_usable():
    model = OnnxProcess(Path(written("model.onnx", onnx_attacks.network())), "cpu")
    with pytest.raises(RuntimeError, match="invalid dimensions"):
        model(np.ones((1, 3, 9, 9)))
    assert model(np.ones((5, 3, 8, 8), np.float64)).shape == (5, 2)


def test_an_interrupt_ends_the_process_of_the_model(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    model = OnnxProcess(Path(written("model.onnx", attacks()["endless loop"])), "cpu")
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            model(IMAGE[None])
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(ModelEndedError, match="SIGKILL"):
        model(IMAGE[None])


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")
def test_the_process_of_a_model_ends_with_a_command_that_is_killed():
    written("model.onnx", attacks()["endless loop"])
    code = (
        f"import sys; sys.path[:0] = {HERE}\n"
        "import os, threading, time, signal\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from hshap.cli.inputs.model_files.onnx_process import OnnxProcess\n"
        "model = OnnxProcess(Path('model.onnx'), 'cpu', 600.0)\n"
        "print(Path(f'/proc/self/task/{os.getpid()}/children').read_text(), flush=True)\n"
        "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()\n"
        "model(np.ones((1, 3, 8, 8)))\n"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    process = Path("/proc") / done.stdout.split()[0] / "stat"
    for _ in range(1000):
        # A process that ended may wait there as a zombie, Z, until somebody asks for its code.
        if not process.exists() or process.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the process still runs")


@pytest.mark.parametrize("name", ["\x1b[31mred", "two\nlines", "\x07"])
def test_names_in_a_file_reach_no_terminal_as_commands(name):
    made = onnx_attacks.network()
    made.graph.node[0].input[0] = name
    assert "is not an ONNX model" in refused(written("model.onnx", made))


def of_type(kind):
    """Return a model of the largest pixel of each channel that takes numbers of this type."""
    nodes = [
        node("Cast", ["x"], ["c"], to=onnx.TensorProto.FLOAT),
        node("ReduceMax", ["c"], ["y"], axes=[2, 3], keepdims=0),
    ]
    made = onnx_attacks.model(nodes)
    made.graph.input[0].type.tensor_type.elem_type = kind
    return made


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "FLOAT16"])
def test_models_of_every_kind_of_float_answer(kind):
    made = of_type(getattr(onnx.TensorProto, kind))
    found = scores(written("model.onnx", made))
    assert found == pytest.approx(IMAGE.max(axis=(1, 2)), rel=1e-3)


def test_models_that_hshap_cannot_call_are_refused():
    whole = of_type(onnx.TensorProto.INT64)
    assert "model takes tensor(int64)" in refused(written("whole.onnx", whole))
    two = onnx_attacks.network()
    two.graph.output.append(onnx.helper.make_tensor_value_info("i", onnx.TensorProto.FLOAT, None))
    assert "1 inputs and 2 outputs" in refused(written("two.onnx", two))


# The TOML next to a model


@pytest.mark.parametrize(
    "text",
    [
        "size = [true, true]",
        "size = [1e400, 2]",
        "size = [99999999999, 5]",
        "size = 1979-05-27",
        "size = [[8], [8]]",
        "size.a.b = 1",
        "mean = " + "1" * 5000,
        "mean = 1" + "0" * 400,
        "mean = 0x" + "f" * 6000,
        "mean = [nan]",
        "mean = true",
        "std = 1e-320",
        "std = inf",
        "std = []",
        "white = '255'",
        "classes = [1, 2]",
        "classes = {a = 1}",
        '"\\u001b[31mred" = 1',
        "range = [1, 1]",
        "output = ['raw']",
        "layout = {}",
        "x = " + "[" * 100_000,
        "x" + ".x" * 100_000 + " = 1",
        "a = 1\na = 2",
        "\x1b[31m",
        "#" * 2**19,
    ],
)
def test_a_toml_with_odd_values_is_refused_in_one_line(text):
    Path("model.toml").write_text(text)
    with pytest.raises(Refusal) as caught:
        given_fields(config_of("model.onnx"), {})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_a_pipe_as_toml_is_refused_without_waiting():
    os.mkfifo("model.toml")
    for path in (config_of("model.onnx"), Path("/dev/zero")):
        with pytest.raises(Refusal, match=r"is a (named pipe|device)"):
            given_fields(path, {})


# ONNX: its metadata


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
    return made


SCALED = {"mean": "[0.5, 0.4, 0.3]", "std": "[0.5, 0.2, 0.1]"}


@pytest.mark.parametrize("trust", [False, True])
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
def test_the_command_line_scales_pixels_as_the_metadata_tells(entries, scale, mean, std, trust):
    written("model.onnx", with_metadata(names='{0: "red", 1: "green", 2: "blue"}', **entries))
    loaded, wanted = loaded_model("model.onnx", {}, trust=trust, device="cpu", config=None)
    assert wanted.classes == ("red", "green", "blue")
    expected = (IMAGE.mean((1, 2)) * scale - mean) / std
    assert probe(loaded, wanted.scale(IMAGE)) == pytest.approx(expected, rel=1e-4)


def test_options_and_the_toml_win_over_the_metadata():
    written("model.onnx", with_metadata(names="a,b,c", **SCALED))
    Path("model.toml").write_text('classes = ["x", "y", "z"]\n')
    _, wanted = loaded_model("model.onnx", {"mean": [0.1]}, trust=False, device="cpu", config=None)
    assert (wanted.classes, wanted.mean, wanted.std) == (("x", "y", "z"), (0.1,), (1.0,))


def test_blue_comes_first_where_the_metadata_tells_it():
    file = written("model.onnx", with_metadata(**SCALED | {"Image.BitmapPixelFormat": "Bgr8"}))
    expected = (IMAGE[::-1].mean((1, 2)) - [0.5, 0.4, 0.3]) / [0.5, 0.2, 0.1]
    loaded, wanted = loaded_model(file, {}, trust=False, device="cpu", config=None)
    assert probe(loaded, wanted.scale(IMAGE)) == pytest.approx(expected, rel=1e-4)
    session = pytest.importorskip("onnxruntime").InferenceSession(file)
    assert models.onnx(session)(IMAGE[None])[0].ravel() == pytest.approx(expected, rel=1e-4)


def test_names_that_come_twice_have_their_numbers():
    written("model.onnx", with_metadata(names='["crane", "owl", "crane"]'))
    _, wanted = loaded_model("model.onnx", {}, trust=False, device="cpu", config=None)
    assert wanted.classes == ("crane (0)", "owl", "crane (2)")


@pytest.mark.parametrize(
    ("entries", "said"),
    [
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
    ],
)
def test_metadata_that_cannot_be_used_is_refused_in_one_line(entries, said):
    file = written("model.onnx", with_metadata(**entries))
    with pytest.raises(Refusal) as caught:
        loaded_model(file, {}, trust=False, device="cpu", config=None)
    assert said in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
