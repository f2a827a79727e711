"""Models from files and modules. Loading a pickle can run any code, so it needs --trust."""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hshap.cli.faults import Code, Refusal, brief
from hshap.cli.inputs.layouts import Rearranged, own_shape
from hshap.errors import HshapError, require
from hshap.evaluators.runners import runner

if TYPE_CHECKING:
    from collections.abc import Generator

    from hshap._util.types import Array, Heat, Model, Untyped
    from hshap.cli.inputs.formats import Format

IN_MODULE = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)(?P<call>\(\))?")
KINDS = "an ONNX file, module:attribute, TorchScript (.pt) or an exported program (.pt2)"


@dataclass(frozen=True)
class Loaded:
    """A model, and the shape of its input `(batch, ...)` if it is known; None for any length."""

    model: Model
    name: str
    device: str = "cpu"
    shape: tuple[int | None, ...] | None = None
    note: str = ""


def config_of(name: str) -> Path | None:
    """Return the TOML next to a model; None without one.

    >>> config_of("no-such-folder/model.onnx")
    """
    beside = Path(name).with_suffix(".toml")
    return beside if Path(name).suffix and beside.is_file() else None


def load(name: str, *, trust: bool, device: str) -> Loaded:
    """Load a model by its file or module; a refusal gives the reason and the fix."""
    path = Path(name)
    match = IN_MODULE.fullmatch(name)
    if match and not path.exists():
        return _on_device(Loaded(_from_module(match), name), device)
    if not path.is_file():
        reason = "is a folder" if path.is_dir() else "does not exist"
        raise Refusal(Code.MODEL, f"--model {name} {reason}; pass {KINDS}")
    if path.suffix.lower() == ".onnx":
        return _onnx(path, device)
    if path.suffix.lower() == ".safetensors":
        message = f"{path} holds weights without a network; pass module:attribute for the network"
        raise Refusal(Code.MODEL, message)
    if path.suffix.lower() == ".pt2":
        return _on_device(_exported(path, trust=trust), device)
    if _is_script(path):
        return _on_device(_script(path), device)
    if not trust:
        message = (
            f"{path} is a pickle, or of unknown type: loading it can run any code; "
            f"pass --trust if you trust its author, or {KINDS}"
        )
        raise Refusal(Code.MODEL, message)
    return _on_device(Loaded(_pickled(path), name), device)


def fitted(loaded: Loaded, wanted: Format) -> tuple[Loaded, Format]:
    """Return the model as a callable on `(n, channels, height, width)`, and its full format.

    Size and channels that no option gave come from the shape of the model's own input.
    """
    last = wanted.layout == "nhwc"
    shape = loaded.shape
    if shape is not None:
        if len(shape) != 4:
            message = f"{loaded.name} takes inputs {_shown(shape)}; pass a model of images"
            raise Refusal(Code.MODEL, message)
        count, *size = (shape[3], *shape[1:3]) if last else shape[1:]
        if wanted.channels is None and count == 1:
            wanted = replace(wanted, channels="grey")
        if count not in (None, wanted.count):
            message = (
                f"{loaded.name} takes {_shown(shape)}, so {count} channels in layout "
                f"{wanted.layout}, but images have {wanted.count} ({wanted.channels or 'rgb'}); "
                "pass --channels, or --layout " + ("nchw" if last else "nhwc")
            )
            raise Refusal(Code.MODEL, message)
        own = tuple(
            given or side for given, side in zip(size, wanted.size or (None, None), strict=True)
        )
        if wanted.size is not None and own != wanted.size:
            message = (
                f"{loaded.name} takes {own[0]} x {own[1]}, but the size asked for is "
                f"{wanted.size[0]} x {wanted.size[1]}; leave --size out"
            )
            raise Refusal(Code.MODEL, message)
        if None not in own:
            wanted = replace(wanted, size=own)
    batch = shape[0] if shape else None
    if last or (batch is not None and not _is_session(loaded.model)):
        model = Rearranged(loaded.model, last=last, batch=batch, device=loaded.device)
        loaded = replace(loaded, model=model)
    return loaded, wanted


def probe(loaded: Loaded, pixels: Array) -> Heat:
    """Return the model's outputs for one image; a model that fails is refused."""
    try:
        run = runner(loaded.model, autocast=None, channels_last=False)
        room = run.inputs(1, pixels.shape, pixels.dtype)
        room[0] = run.put(pixels)
        return run.run(room, 1)[0][0]
    except HshapError as error:
        raise Refusal(Code.MODEL, f"{loaded.name}: {error}") from error
    except Exception as error:
        message = (
            f"{loaded.name} failed on an image of shape {pixels.shape} ({brief(error)}); if it "
            "takes another size, pass --size HEIGHTxWIDTH --resize"
        )
        raise Refusal(Code.MODEL, message) from error


def _from_module(match: re.Match[str]) -> Model:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    name, attribute = match["module"], match["name"]
    try:
        found: Untyped = importlib.import_module(name)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        message = f"--model {match[0]}: module {name} cannot be imported ({brief(error)})"
        raise Refusal(Code.MODEL, message) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            message = f"--model {match[0]}: module {name} has no {attribute}"
            raise Refusal(Code.MODEL, message)
        found = getattr(found, part)
    if not match["call"]:
        return found
    try:
        return found()
    except Exception as error:
        message = f"--model {match[0]}: calling it failed ({brief(error)})"
        raise Refusal(Code.MODEL, message) from error


def _onnx(path: Path, device: str) -> Loaded:
    onnx = require("onnxruntime", extra="onnx", needed_by=f"the model {path}")
    available = onnx.get_available_providers()
    gpu = "CUDAExecutionProvider"
    if device == "auto":
        device = "cuda" if gpu in available else "cpu"
    if device != "cpu" and (not device.startswith("cuda") or gpu not in available):
        message = (
            f"--device {device} is not one that onnxruntime has here ({', '.join(available)}); "
            "pass --device cpu"
        )
        raise Refusal(Code.USAGE, message)
    number = {"device_id": int(device.partition(":")[2] or 0)}
    providers: list[Untyped] = [] if device == "cpu" else [(gpu, number)]
    try:
        session = onnx.InferenceSession(str(path), providers=[*providers, "CPUExecutionProvider"])
        runner(session, autocast=None, channels_last=False)  # refuses sessions that cannot be used
    except HshapError as error:
        raise Refusal(Code.MODEL, f"{path}: {error}") from error
    except Exception as error:
        message = f"{path} is not an ONNX model that can be loaded ({brief(error)})"
        raise Refusal(Code.MODEL, message) from error
    shape: list[object] = session.get_inputs()[0].shape if session.get_inputs() else []
    sides = tuple(side if isinstance(side, int) else None for side in shape)
    return Loaded(session, str(path), device, sides or None)


def _is_session(model: Model) -> bool:
    onnx = sys.modules.get("onnxruntime")
    return onnx is not None and isinstance(model, onnx.InferenceSession)


def _is_script(path: Path) -> bool:
    """Tell TorchScript, which torch interprets without pickle, from a pickle."""
    inside = [name.partition("/")[2] for name in _entries(path)]
    return "constants.pkl" in inside and any(name.startswith("code/") for name in inside)


def _entries(path: Path) -> list[str]:
    """Return the names in a zip file; none for any other file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return []


def _script(path: Path) -> Loaded:
    torch = require("torch", extra="torch", needed_by=f"the model {path}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that TorchScript is deprecated
            return Loaded(torch.jit.load(path, map_location="cpu"), str(path))
    except Exception as error:
        message = f"{path} is not TorchScript that can be loaded ({brief(error)})"
        raise Refusal(Code.MODEL, message) from error


def _exported(path: Path, *, trust: bool) -> Loaded:
    require("torch", extra="torch", needed_by=f"the model {path}")
    export = importlib.import_module("torch.export")
    native = [n for n in _entries(path) if "aotinductor" in n or n.endswith(".so")]
    if native and not trust:
        message = (
            f"{path} holds compiled code ({native[0]}), which can do anything; pass --trust "
            "if you trust its author"
        )
        raise Refusal(Code.MODEL, message)
    try:
        with _without_pickle(active=not trust), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = export.load(path)
        return Loaded(program.module(), str(path), shape=own_shape(program))
    except Exception as error:
        message = f"{path} is not an exported program that can be loaded ({brief(error)})"
        raise Refusal(Code.MODEL, message) from error


@contextmanager
def _without_pickle(*, active: bool) -> Generator[None, None, None]:
    """Forbid torch to unpickle, its fallback for exported programs."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    if active:
        os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def _pickled(path: Path) -> Model:
    torch = require("torch", extra="torch", needed_by=f"the model {path}")
    try:
        found = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:
        message = f"{path} cannot be loaded ({brief(error)}); pass {KINDS}"
        raise Refusal(Code.MODEL, message) from error
    if isinstance(found, type) or not callable(found):
        message = (
            f"{path} holds a {type(found).__name__} and no network, perhaps its weights alone; "
            "pass module:attribute for the network"
        )
        raise Refusal(Code.MODEL, message)
    return found


def _on_device(loaded: Loaded, device: str) -> Loaded:
    """Move a torch module to a device, in eval mode."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(loaded.model, torch.nn.Module):
        if device not in ("auto", "cpu"):
            message = f"--device {device} is for torch and ONNX, but {loaded.name} is neither"
            raise Refusal(Code.USAGE, message)
        return loaded
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        model = loaded.model.to(device)
    except Exception as error:
        message = f"--device {device} cannot be used ({brief(error)}); pass --device cpu"
        raise Refusal(Code.USAGE, message) from error
    graph = isinstance(model, torch.fx.GraphModule)  # has no eval mode
    note = (
        ""
        if graph or not getattr(model, "training", False)
        else "switched from training to eval mode"
    )
    return replace(loaded, model=model if graph else model.eval(), device=device, note=note)


def _shown(shape: tuple[int | None, ...]) -> str:
    return "(" + ", ".join("n" if side is None else str(side) for side in shape) + ")"
