"""Damaged and hostile model files, made from small originals."""

from __future__ import annotations

import io
import json
import pickle
import re
import tempfile
import warnings
import zipfile
from functools import cache
from pathlib import Path

import onnx
import onnx_attacks
import torch

from fuzzing import damaged

MARKER = "a-file-made-this"
"""Code in a hostile file writes this file to the current folder."""
CODE = f'__import__("pathlib").Path("{MARKER}").write_text("run")'
NASTY = [0, 1, -1, 2, 3, 7, 255, 2**15, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]
SUFFIXES = [".onnx", ".onnx", ".onnx", ".pt", ".pth", ".pt2", ".bin", ".safetensors", ""]


class Harm:
    """An object whose pickle writes the marker when it is read."""

    def __reduce__(self):
        return eval, (CODE,)


class WritesOnLoad(torch.nn.Module):
    """TorchScript that writes the marker while it is loaded."""

    @torch.jit.export
    def __getstate__(self):
        # type: () -> Tuple[int, bool]
        return 1, self.training

    @torch.jit.export
    def __setstate__(self, state):
        # type: (Tuple[int, bool]) -> None
        torch.save(torch.zeros(1), "a-file-made-this")
        self.training = state[1]

    def forward(self, x):
        return x.sum((2, 3))


@cache
def originals():
    """Return small files of each kind; none of ours, so that every one could be a stranger's."""
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.AdaptiveMaxPool2d(1))
    module.append(torch.nn.Flatten()).eval()
    example = torch.zeros(2, 3, onnx_attacks.SIDE, onnx_attacks.SIDE)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.pt2"
        sides = ({0: torch.export.Dim("n", min=1, max=64)},)
        torch.export.save(torch.export.export(module, (example,), dynamic_shapes=sides), path)
        return {
            "onnx": onnx_attacks.network().SerializeToString(),
            "script": _saved(torch.jit.save, torch.jit.trace(module, example)),
            "hostile script": _saved(torch.jit.save, torch.jit.script(WritesOnLoad())),
            "program": path.read_bytes(),
            "weights": _saved(torch.save, module.state_dict()),
            "harm": _saved(torch.save, Harm()),
        }


def _saved(save, value):
    file = io.BytesIO()
    save(value, file)
    return file.getvalue()


def onnx_values(rng):
    """Change attributes, shapes, types, names and order in a valid protobuf."""
    made = onnx.ModelProto.FromString(originals()["onnx"])
    graph = made.graph
    for _ in range(rng.integers(1, 4)):
        layer = graph.node[rng.integers(len(graph.node))]
        tensor = graph.initializer[rng.integers(len(graph.initializer))]
        value = NASTY[rng.integers(len(NASTY))]
        match rng.integers(8):
            case 0 | 1 | 2 if layer.attribute:
                one = layer.attribute[rng.integers(len(layer.attribute))]
                one.i = value
                if one.ints:
                    one.ints[rng.integers(len(one.ints))] = value
            case 3:
                tensor.dims[rng.integers(len(tensor.dims))] = value
            case 4:
                tensor.data_type = int(rng.integers(25))
            case 5:
                layer.op_type = graph.node[rng.integers(len(graph.node))].op_type
            case 6:
                name = ["x", "y", "", "\x1b[31mred\x07", "a" * 10_000][rng.integers(5)]
                layer.input[rng.integers(len(layer.input))] = name
                layer.name = name
            case _:
                sides = graph.input[0].type.tensor_type.shape.dim
                sides[rng.integers(len(sides))].dim_value = value
    return ".onnx", made.SerializeToString()


def onnx_spliced(rng):
    """Put whole messages into others: nodes twice, graphs in attributes, graphs merged."""
    made, other = (onnx.ModelProto.FromString(originals()["onnx"]) for _ in range(2))
    match rng.integers(4):
        case 0:
            made.graph.node.extend(other.graph.node[rng.integers(4) :])
        case 1:
            made.graph.node[0].attribute.add(name="inner", type=5).g.CopyFrom(other.graph)
        case 2:
            made.graph.node.insert(0, other.graph.node[rng.integers(1, 9)])
        case _:  # protobuf merges two messages that follow each other
            attacks = list(onnx_attacks.attacks().values())
            return ".onnx", made.SerializeToString() + attacks[rng.integers(len(attacks))]
    return ".onnx", made.SerializeToString()


def onnx_hostile(rng):
    attacks = list(onnx_attacks.attacks().values())
    return ".onnx", attacks[rng.integers(len(attacks))]


def onnx_data_outside(rng):
    above = f"../{onnx_attacks.DATA}"
    names = [above, f"./x/../../{onnx_attacks.DATA}", "/etc/passwd", "link.bin", "", "/dev/zero"]
    names += [onnx_attacks.MEMORY_ADDRESS, "pipe.bin", "no-such-file.bin", "..\\weights.bin"]
    place = onnx_attacks.PLACES[rng.integers(len(onnx_attacks.PLACES))]
    made = onnx_attacks.external(names[rng.integers(len(names))], place)
    return ".onnx", made.SerializeToString()


def onnx_data_inside(rng):
    made = onnx_attacks.external(onnx_attacks.DATA)
    entry = made.graph.initializer[1].external_data[rng.integers(1, 3)]
    entry.value = [entry.value, entry.value, "8", "-1", str(2**40), "x"][rng.integers(6)]
    return ".onnx", made.SerializeToString()


def torch_damaged(rng):
    kind, suffix = [("script", ".pt"), ("program", ".pt2"), ("weights", ".pth")][rng.integers(3)]
    return suffix, damaged(rng, originals()[kind])


def script_hostile(rng):
    content = originals()["hostile script"]
    return ".pt", content if rng.integers(2) else damaged(rng, content)


def program_hostile(rng):
    """Change texts of the JSON of an exported program into code, or put a pickle into it."""
    with zipfile.ZipFile(io.BytesIO(originals()["program"])) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name, content in members.items():
        if name.endswith("models/model.json"):
            key = ["expr_str", "expr_str", "target", "name"][rng.integers(4)]
            code = json.dumps(CODE).encode()
            members[name] = re.sub(
                rb'("%s": )"(?:[^"\\]|\\.)*"' % key.encode(),
                lambda match: match[1] + code,  # noqa: B023, called at once
                content,
            )
        elif name.endswith(".pt") and rng.integers(2):
            members[name] = originals()["harm"]
    return ".pt2", zipped(members)


def pickled(rng):
    """Return a pickle that runs code, alone or in a zip, under any name."""
    plain = pickle.dumps(Harm(), protocol=int(rng.integers(6)))
    with zipfile.ZipFile(io.BytesIO(originals()["script"])) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    inside = {name: plain if name.endswith(".pkl") else one for name, one in members.items()}
    contents = [plain, originals()["harm"], zipped(inside), zipped({"data.pkl": plain})]
    return SUFFIXES[rng.integers(len(SUFFIXES))], contents[rng.integers(len(contents))]


def other_names(rng):
    content = list(originals().values())[rng.integers(len(originals()))]
    return SUFFIXES[rng.integers(len(SUFFIXES))], content


def zipped(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


KINDS = {
    "ONNX as it is": lambda _: (".onnx", originals()["onnx"]),
    "ONNX bytes": lambda rng: (".onnx", damaged(rng, originals()["onnx"])),
    "ONNX values": onnx_values,
    "ONNX values, again": onnx_values,
    "ONNX messages spliced": onnx_spliced,
    "ONNX made to do harm": onnx_hostile,
    "ONNX with data outside": onnx_data_outside,
    "ONNX with data inside": onnx_data_inside,
    "files of torch, damaged": torch_damaged,
    "TorchScript that writes": script_hostile,
    "program with code": program_hostile,
    "pickle with code": pickled,
    "other names": other_names,
}
NEVER_LOADED = {
    "ONNX with data outside",
    "TorchScript that writes",
    "program with code",
    "pickle with code",
}
