"""Model files of torch: TorchScript, exported programs and pickles. Loading any of them runs code.

A pickle calls any function. An exported program (.pt2) holds pickles, and texts that SymPy
evaluates as Python. TorchScript cannot import modules, but it can read and write files, also while
it is loaded. Therefore `load_trusted` is for files whose author the user trusts.
"""

from __future__ import annotations

import importlib
import sys
import warnings
import zipfile
from typing import TYPE_CHECKING

from hshap.cli.faults import Code, Refusal, brief
from hshap.errors import require
from hshap.evaluators.runners import is_torch_module

if TYPE_CHECKING:
    from pathlib import Path

    from hshap._util.types import Model, Untyped

    Shape = tuple[int | None, ...] | None

ADVICE = "pass --trust if you trust its author, or export the model to ONNX"


def refusal(path: Path) -> Refusal:
    """Return the refusal of a file that is not trusted, by its name alone: it is not opened."""
    if path.suffix.lower() == ".pt2":
        reason = "an exported program: texts in it are evaluated as Python, which can run any code"
    else:
        reason = "TorchScript, a pickle or of unknown type: loading it can run code"
    return Refusal(Code.MODEL, f"{path} is {reason}; {ADVICE}")


def load_trusted(path: Path) -> tuple[Model, Shape]:
    """Load a model, and the shape of its input if the file tells. This can run any code."""
    require("torch", extra="torch", needed_by=f"the model {path}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own plans
        if path.suffix.lower() == ".pt2":
            return _exported(path)
        return (_script(path) if _is_script(path) else _pickled(path)), None


def placed(model: Model, name: str, device: str) -> tuple[Model, str, str]:
    """Move a torch module to a device, in eval mode; return it, its device and a note."""
    if not is_torch_module(model):
        if device not in ("auto", "cpu"):
            message = f"--device {device} is for torch and ONNX, but {name} is neither"
            raise Refusal(Code.USAGE, message)
        return model, "cpu", ""
    torch = sys.modules["torch"]
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        model = model.to(device)
    except Exception as error:
        message = f"--device {device} cannot be used ({brief(error)}); pass --device cpu"
        raise Refusal(Code.USAGE, message) from error
    if isinstance(model, torch.fx.GraphModule):  # has no eval mode
        return model, device, ""
    trains = getattr(model, "training", False)
    return model.eval(), device, "switched from training to eval mode" if trains else ""


def _is_script(path: Path) -> bool:
    """Tell TorchScript from a pickle."""
    try:
        with zipfile.ZipFile(path) as archive:
            inside = [name.partition("/")[2] for name in archive.namelist()]
    except (OSError, ValueError, zipfile.BadZipFile):
        return False
    return "constants.pkl" in inside and any(name.startswith("code/") for name in inside)


def _script(path: Path) -> Model:
    torch = importlib.import_module("torch")
    try:
        return torch.jit.load(path, map_location="cpu")
    except Exception as error:
        message = f"{path} is not TorchScript that can be loaded ({brief(error)}); export it again"
        raise Refusal(Code.MODEL, message) from error


def _exported(path: Path) -> tuple[Model, Shape]:
    export = importlib.import_module("torch.export")
    try:
        program = export.load(path)
        return program.module(), _own_shape(program)
    except Exception as error:
        message = f"{path} is not an exported program that can be loaded ({brief(error)})"
        raise Refusal(Code.MODEL, f"{message}; export it again") from error


def _pickled(path: Path) -> Model:
    torch = importlib.import_module("torch")
    try:
        found = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:
        message = f"{path} cannot be loaded ({brief(error)}); export the model to ONNX"
        raise Refusal(Code.MODEL, message) from error
    if isinstance(found, type) or not callable(found):
        message = (
            f"{path} holds a {type(found).__name__} and no network, perhaps its weights alone; "
            "pass module:attribute for the network"
        )
        raise Refusal(Code.MODEL, message)
    return found


def _own_shape(program: Untyped) -> tuple[int | None, ...] | None:
    """Return the input shape of an exported program; None for an axis of any length."""
    (name,) = program.graph_signature.user_inputs
    (node,) = [node for node in program.graph.nodes if node.name == name]
    value = node.meta.get("val")
    if value is None:
        return None
    return tuple(side if isinstance(side, int) else None for side in value.shape)
