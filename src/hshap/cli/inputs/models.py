"""Models from files and modules. Only ONNX files are opened without --trust.

`onnx_files` runs these in a sandbox. `torch_files` loads files that run code, and `python_modules`
imports the user's own.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from hshap._util.arrays import to_numpy
from hshap.cli.faults import Code, Refusal, brief
from hshap.cli.inputs import torch_files
from hshap.cli.inputs.files import text_of
from hshap.cli.inputs.formats import numbered
from hshap.cli.inputs.onnx_files import open_onnx
from hshap.cli.inputs.python_modules import IN_MODULE, from_module
from hshap.cli.inputs.sandbox import ProcessEndedError
from hshap.errors import HshapError
from hshap.evaluators.batched import AUTO, Batched
from hshap.evaluators.outputs import scores_in
from hshap.evaluators.runners import caller, is_onnx_session, runner
from hshap.models.model_description import Facts, facts_of
from hshap.models.onnx_sessions import (
    MetadataError,
    is_bgr,
    names_in,
    preparation_in,
)
from hshap.models.preparation import of_processor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hshap._util.types import Array, Heat, Model, Untyped
    from hshap.cli.inputs.formats import Format
    from hshap.models.preparation import Preparation

PROCESSOR = "preprocessor_config.json"
"""The config of an image processor of transformers, beside a model."""

SCALING = frozenset(["range", "mean", "std"])
KINDS = "an ONNX file, module:attribute, or with --trust a file of torch (.pt, .pth or .pt2)"


@dataclass(frozen=True)
class Loaded:
    """A model, and the shape of its input `(batch, ...)` if it is known; None for any length.

    `metadata` are the entries of an ONNX file that say how images are scaled and name the classes.
    """

    model: Model
    name: str
    device: str = "cpu"
    shape: tuple[int | None, ...] | None = None
    note: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])


def config_of(name: str) -> Path | None:
    """Return the TOML next to a model; None without one.

    >>> config_of("no-such-folder/model.onnx")
    """
    path = Path(name)
    beside = path.with_suffix(".toml") if path.suffix else None
    # A pipe or a device counts: reading the format refuses it, where leaving it out says nothing.
    return beside if beside is not None and _mode(beside) and not beside.is_dir() else None


def load(name: str, *, trust: bool, device: str) -> Loaded:
    """Load a model by its file or module; a refusal gives the reason and the fix.

    Without `trust`, no file is opened that can make a program run its author's code.
    """
    path = Path(name)
    match = IN_MODULE.fullmatch(name)
    mode = _mode(path)
    if match and not mode:
        return _placed(Loaded(from_module(match), name), device)
    if not stat.S_ISREG(mode):
        known = "is a folder" if stat.S_ISDIR(mode) else "is a pipe or a device"
        message = f"--model {name} {known if mode else 'does not exist'}; pass {KINDS}"
        raise Refusal(Code.MODEL, message)
    if path.suffix.lower() == ".onnx":
        opened = open_onnx(path, device, trust=trust)
        signature = opened.signature
        return Loaded(
            opened.model, name, opened.device, signature.shape, metadata=signature.metadata
        )
    if path.suffix.lower() == ".safetensors":
        message = f"{path} holds weights without a network; pass module:attribute for the network"
        raise Refusal(Code.MODEL, message)
    if not trust:
        raise torch_files.refusal(path)
    model, shape = torch_files.load_trusted(path)
    return _placed(Loaded(model, name, shape=shape), device)


def told_by_files(loaded: Loaded, given: Collection[str]) -> dict[str, object]:
    """Return the fields of a format that the files of a model tell, but for given ones.

    The config of a processor of transformers beside the model comes before the metadata of an ONNX
    file. Range, mean and std belong together: if one of them is given, those of files do not count.
    """
    found = _told_by_processor(Path(loaded.name).with_name(PROCESSOR))
    if SCALING & set(given):
        found = {name: value for name, value in found.items() if name not in SCALING}
    found = {name: value for name, value in found.items() if name not in given}
    try:
        if names := () if "classes" in given else names_in(loaded.metadata):
            found["classes"] = list(names)
        if not SCALING & {*given, *found}:
            made = preparation_in(loaded.metadata, _channels(loaded))
            if made is not None and made.normalises:
                found |= _scaling(made)
    except MetadataError as error:
        fix = "pass --classes, or --range, --mean and --std: options win over the file"
        raise Refusal(Code.MODEL, f"{loaded.name} {error}; {fix}") from error
    if "channels" not in given and is_bgr(loaded.metadata):
        found["channels"] = "bgr"
    return found


def _told_by_processor(path: Path) -> dict[str, object]:
    """Return the fields that the config of a processor tells; none if it is not there."""
    if not _mode(path):
        return {}
    fix = "correct it, or move it away"
    text = text_of(path, fix=fix)
    try:
        made = of_processor(dict(json.loads(text)), resize=True)
    except (ValueError, TypeError, RecursionError) as error:
        message = f"{path} is no config of an image processor ({brief(error)}); {fix}"
        raise Refusal(Code.INPUT, message) from error
    found: dict[str, object] = _scaling(made)
    if made.crop is not None:
        found |= {"size": list(cast("tuple[int, ...]", made.crop)), "fit": "crop"}
        found |= {"shorter": made.resize} if isinstance(made.resize, int) else {}
    elif isinstance(made.resize, Sequence):
        found |= {"size": list(made.resize), "fit": "stretch"}
    return found


def _scaling(made: Preparation) -> dict[str, object]:
    """Return range, mean and std of a preparation."""
    found: dict[str, object] = {"range": [0.0, made.scale]}
    for name, part in (("mean", made.mean), ("std", made.std)):
        values = list(cast("tuple[float, ...]", part))
        found[name] = values if len(set(values)) > 1 else values[:1]
    return found


def _channels(loaded: Loaded) -> int:
    sides = (loaded.shape or ())[1:]
    return next((n for n in (sides[:1] + sides[-1:]) if n in (1, 3)), 3)


def fitted(loaded: Loaded, wanted: Format, *, volume: bool | None = False) -> tuple[Loaded, Format]:
    """Return the model as a callable on `(n, channels, height, width)`, and its full format.

    Size and channels that no option gave come from the shape of the model's own input, and names of
    classes from the model, if it is one of `hshap.models`. With `volume`, the callable is one on
    `(n, channels, depth, height, width)`; None leaves it to the shape of the model's own input.
    """
    names = wanted.classes or numbered(facts_of(loaded.model).classes)
    wanted = replace(wanted, classes=names)
    last = wanted.layout == "nhwc"
    shape = loaded.shape
    if shape is not None:
        axes = (4, 5) if volume is None else (5,) if volume else (4,)
        if len(shape) not in axes:
            kind = "volumes, or leave out --volume" if volume else "images"
            message = f"{loaded.name} takes inputs {_shown(shape)}; pass a model of {kind}"
            raise Refusal(Code.MODEL, message)
        count, *size = (shape[-1], *shape[1:-1]) if last else shape[1:]
        if wanted.channels is None and count == 1:
            wanted = replace(wanted, channels="grey")
        if count not in (None, wanted.count):
            message = (
                f"{loaded.name} takes {_shown(shape)}, so {count} channels in layout "
                f"{wanted.layout}, but images have {wanted.count} ({wanted.channels or 'rgb'}); "
                "pass --channels, or --layout " + ("nchw" if last else "nhwc")
            )
            raise Refusal(Code.MODEL, message)
        if len(size) == 2:
            wanted = _sized(loaded, wanted, size)
    batch = shape[0] if shape else None
    if last or (batch is not None and not is_onnx_session(loaded.model)):
        model = Rearranged(loaded.model, last=last, batch=batch)
        loaded = replace(loaded, model=model)
    return replace(loaded, model=_name_outputs(loaded.model, names)), wanted


def _name_outputs(model: Model, names: tuple[str, ...]) -> Model:
    """Return the model with names of its outputs, so that every explanation has them."""
    told, known = getattr(model, "facts", None), facts_of(model)
    if known.classes == names or not (told is None or isinstance(told, Facts)):
        return model
    held: Untyped = model
    try:
        held.facts = replace(known, classes=names)
    except (AttributeError, TypeError):  # a method, or another object without room for it
        if not callable(model) or not names:
            return model
        held = partial(model)
        held.facts = replace(known, classes=names)
    return held


def _sized(loaded: Loaded, wanted: Format, size: list[int | None]) -> Format:
    """Return the format with the model's own height and width, as far as they are known."""
    height, width = (
        own or given for own, given in zip(size, wanted.size or (None, None), strict=True)
    )
    if wanted.size is not None and (height, width) != wanted.size:
        message = (
            f"{loaded.name} takes {height} x {width}, but the size asked for is "
            f"{wanted.size[0]} x {wanted.size[1]}; leave --size out"
        )
        raise Refusal(Code.MODEL, message)
    return wanted if height is None or width is None else replace(wanted, size=(height, width))


class Rearranged:
    """A model as a callable on NumPy batches `(n, channels, height, width)` of any length.

    `last` moves the channels to the end. `batch` is the fixed batch size of the model, if it has
    one; a shorter batch is filled up with copies of its last image.

    >>> seen = []
    >>> def model(batch):
    ...     seen.append(batch.shape)
    ...     return batch.sum(axis=(1, 2, 3))
    >>> Rearranged(model, last=True, batch=2)(np.ones((3, 1, 4, 4))).tolist()
    [16.0, 16.0, 16.0]
    >>> seen
    [(2, 4, 4, 1), (2, 4, 4, 1)]
    """

    def __init__(self, model: Model, *, last: bool, batch: int | None = None) -> None:
        self._call, self._last, self._batch = caller(model), last, batch

    def __call__(self, batch: Array) -> object:
        """Return the scores of a batch."""
        inputs = np.moveaxis(batch, 1, -1) if self._last else batch
        if self._batch is None:
            return self._call(np.ascontiguousarray(inputs))
        scores = [
            self._part(inputs[i : i + self._batch]) for i in range(0, len(inputs), self._batch)
        ]
        return np.concatenate(scores)

    def _part(self, inputs: Array) -> Array:
        missing = (self._batch or 0) - len(inputs)
        filled = np.concatenate([inputs, np.repeat(inputs[-1:], missing, axis=0)])
        return to_numpy("the model's output", scores_in(self._call(filled)))[: len(inputs)]


def probe(
    loaded: Loaded,
    pixels: Array,
    fix: str = "if it takes another size, pass --size HEIGHTxWIDTH --resize",
) -> Heat:
    """Return the model's outputs for one image; a model that fails is refused."""
    try:
        run = runner(loaded.model, autocast=None, channels_last=False)
        room = run.inputs(1, pixels.shape, pixels.dtype)
        room[0] = run.put(pixels)
        return run.run(room, 1)[0]
    except (HshapError, ProcessEndedError) as error:
        raise Refusal(Code.MODEL, f"{loaded.name}: {error}") from error
    except Exception as error:
        message = (
            f"{loaded.name} failed on an image of shape {pixels.shape} ({brief(error)}); {fix}"
        )
        raise Refusal(Code.MODEL, message) from error


def evaluator_of(
    loaded: Loaded, batch_size: int | Literal["auto"] | None, *, channels_last: bool = False
) -> Batched:
    """Return the evaluator of a command.

    Without a batch size, it is chosen by throughput on a GPU. On a CPU the usual size is within a
    few percent of the best one, and a run with it repeats to the last digit.
    """
    size = batch_size or (None if loaded.device == "cpu" else AUTO)
    return Batched(loaded.model, batch_size=size, channels_last=channels_last)


def _mode(path: Path) -> int:
    """Return the kind of a file as `stat` gives it; 0 if there is none."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def _placed(loaded: Loaded, device: str) -> Loaded:
    model, device, note = torch_files.placed(loaded.model, loaded.name, device)
    return replace(loaded, model=model, device=device, note=note)


def _shown(shape: tuple[int | None, ...]) -> str:
    return "(" + ", ".join("n" if side is None else str(side) for side in shape) + ")"
