"""The meaning of options: baselines, partitions, searches and targets by their names."""

from __future__ import annotations

import difflib
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from hshap._util.processes import usable_cores
from hshap.baselines.recipes import Blur, Constant, Fixed, Mean
from hshap.cli.faults import Code, Refusal, brief
from hshap.cli.inputs.files import open_regular, size_of
from hshap.cli.inputs.formats import format_of, given_fields, names, numbers, sides
from hshap.cli.inputs.images import find, read
from hshap.cli.inputs.models import config_of, evaluator_of, fitted, load, told_by_files
from hshap.cli.output import say
from hshap.errors import HshapError
from hshap.evaluators.runners import runner
from hshap.explainer import Explainer
from hshap.explainer.choosing_parts import usual_partition
from hshap.games.search import BestFirst, BreadthFirst, DepthFirst, GroupTesting, Share
from hshap.games.search.best_first import MOST_EVALUATIONS
from hshap.games.search.paper import SHARE
from hshap.partitions.grids import AUTO, Bisection, Dyadic
from hshap.partitions.superpixels import MIN_AREA, Superpixels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Array, Json
    from hshap.baselines.protocol import Baseline
    from hshap.cli.inputs.formats import Format
    from hshap.cli.inputs.images import Reader
    from hshap.cli.inputs.models import Loaded
    from hshap.cli.options import MethodOptions, ModelOptions
    from hshap.explanation.explanation import Explanation
    from hshap.games.search import Search
    from hshap.partitions.protocol import Partition

PARTITIONS = (AUTO, "quadtree", "bisection", "superpixels")
GAMES, GROUP = SEARCHES = ("games", "group")
KINDS = (AUTO, "blur", "constant")
"""Baselines that are no files."""

TOP = "top"
BUDGET = 1000
"""Default of --budget for searches that end by themselves; `BestFirst` has its own."""

SIGMA = 10.0


def with_source(explanation: Explanation, source: Mapping[str, Json]) -> Explanation:
    """Return an explanation whose settings hold its source."""
    return replace(explanation, settings=explanation.settings.updated(source=dict(source)))


def load_model(
    model: str,
    options: ModelOptions,
    size: str | None,
    white: float | None,
    *,
    volume: bool | None = False,
) -> tuple[Loaded, Format]:
    """Return a model and the format of its inputs and outputs.

    Options win over the TOML, and the TOML over the metadata of an ONNX file.
    """
    given = {
        "size": sides("--size", size),
        "channels": options.channels,
        "layout": options.layout,
        "range": numbers("--range", options.range_, example="--range 0,255"),
        "mean": numbers("--mean", options.mean, example="--mean 0.5,0.4,0.4"),
        "std": numbers("--std", options.std, example="--std 0.2,0.2,0.2"),
        "white": white,
        "classes": names(options.classes, Path()),
        "output": options.output,
    }
    fields = given_fields(options.config or config_of(model), given)
    loaded = load(model, trust=options.trust, device=options.device)
    try:
        runner(loaded.model, autocast=None, channels_last=False)
    except HshapError as error:  # such as an object that cannot be called
        raise Refusal(Code.MODEL, f"{model}: {error}") from error
    told = told_by_files(loaded, fields)
    loaded, wanted = fitted(loaded, format_of(fields, told, model), volume=volume)
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() > usable_cores():
        torch.set_num_threads(usable_cores())
    if told:
        say(f"{model}: its files tell {', '.join(told)}; options win over them")
    if loaded.note:
        say(f"{model}: {loaded.note}")
    return loaded, wanted


def files_of_options(model: str, options: ModelOptions, method: MethodOptions) -> list[Path]:
    """Return the files and folders that options name as inputs, which no result may replace."""
    kind, _, rest = method.baseline.partition(":")
    named = [Path(model), options.config or config_of(model), Path(options.classes or "")]
    named += [method.calibration, None if kind in KINDS else Path(method.baseline)]
    found = [path for path in named if path is not None and path.is_file()]
    if kind == "mean" and Path(rest).is_dir():
        found += [Path(rest), *Path(rest).iterdir()]
    templates = method.templates
    return found if templates is None else [*found, templates.folder, *templates.files]


def build_explainer(method: MethodOptions, loaded: Loaded, reader: Reader) -> Explainer:
    """Return the explainer of a model; the parts that no option names are chosen for each image."""
    evaluator = evaluator_of(loaded, method.images_in_a_batch, channels_last=method.channels_last)
    return Explainer(
        evaluator,
        baseline=baseline_of(method.baseline, reader),
        partition=method.make_partition(),
        search=method.make_search(),
    )


def search_of(
    tolerance: str,
    percentile: float | None,
    budget: int | None,
    partition: Partition | None = None,
    kind: str = GAMES,
) -> Search | None:
    """Return the search that options describe; None for no option at all, given no partition.

    The explainer then chooses, and tells its choice.

    >>> search_of("0.5", None, 100).tolerance
    0.5
    >>> search_of("auto", None, 100)
    BestFirst(max_evaluations=100, contexts=None, seed=0)
    >>> search_of("5%", None, 100, kind="group").share
    0.05
    """
    most = BUDGET if budget is None else budget
    if known_search(kind) == GROUP:
        return _group_testing(tolerance, percentile, most)
    if tolerance != AUTO and percentile is not None:
        message = "--tolerance and --percentile exclude each other; pass one of them"
        raise Refusal(Code.USAGE, message)
    if percentile is not None:
        return BreadthFirst(percentile=percentile, max_evaluations=most)
    if tolerance == AUTO and budget is None and partition is None:
        return None
    if tolerance == AUTO:
        return BestFirst(MOST_EVALUATIONS if budget is None else budget)
    number = _tolerance(tolerance)
    if tolerance.endswith("%"):
        return Share(number / 100, max_evaluations=most)
    return DepthFirst(tolerance=number, max_evaluations=most)


def _group_testing(tolerance: str, percentile: float | None, budget: int) -> GroupTesting:
    if percentile is not None:
        message = "--percentile does not apply to --search group; pass --tolerance"
        raise Refusal(Code.USAGE, message)
    if tolerance == AUTO:
        return GroupTesting(share=SHARE, max_evaluations=budget)
    number = _tolerance(tolerance)
    if not tolerance.endswith("%"):
        return GroupTesting(tolerance=number, max_evaluations=budget)
    if number > 100:
        message = f"--tolerance {tolerance} is more than the whole score; pass at most 100%"
        raise Refusal(Code.USAGE, message)
    return GroupTesting(share=number / 100, max_evaluations=budget)


def _tolerance(text: str) -> float:
    """Return the number of --tolerance; of a share, the percentage."""
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number < np.inf:
        message = (
            f"--tolerance {text} is not a number of 0 or more; pass auto, 0.1, or a share as 5%"
        )
        raise Refusal(Code.USAGE, message)
    return number


def known_search(name: str) -> str:
    """Return the name of a search, checked.

    >>> known_search("group")
    'group'
    """
    if name not in SEARCHES:
        message = f"--search {name} is not known; pass one of {', '.join(SEARCHES)}"
        raise Refusal(Code.USAGE, message)
    return name


def partition_of(name: str, min_size: str | None) -> Partition | None:
    """Return the partition that options describe; None if the explainer chooses it.

    For superpixels, regions of up to the square of `min_size` pixels are not split. With a size,
    "auto" takes them where their library is installed, and bisection elsewhere.

    >>> partition_of("superpixels", "5").min_area
    25
    """
    size = _checked_size(name, min_size)
    if name == AUTO and size is None:
        return None
    if known(name) == "superpixels":
        if size is None:
            return Superpixels()
        return Superpixels(min_area=AUTO if size == AUTO else size**2)
    return Dyadic(size or AUTO) if name == "quadtree" else Bisection(size or AUTO)


def known(name: str) -> str:
    """Return the name of a partition; that of the usual one for "auto"."""
    if name != AUTO:
        return name
    return "superpixels" if isinstance(usual_partition(axes=2), Superpixels) else "bisection"


def smallest_side(name: str, min_size: str | None) -> int:
    """Return the side of the smallest regions of a partition, in pixels.

    >>> smallest_side("quadtree", "8"), smallest_side("bisection", None)
    (8, 1)
    """
    size = _checked_size(name, min_size)
    if size is None and known(name) == "superpixels":
        return math.isqrt(MIN_AREA)
    return 1 if size in (None, AUTO) else int(size)  # auto may reach single pixels


def _checked_size(partition: str, min_size: str | None) -> int | Literal["auto"] | None:
    """Check --partition and --min-size; return the latter, None if it was not given."""
    if partition not in PARTITIONS:
        message = f"--partition {partition} is not known; pass one of {', '.join(PARTITIONS)}"
        raise Refusal(Code.USAGE, message)
    if min_size is None or min_size == AUTO:
        return None if min_size is None else AUTO
    if not (min_size.isdecimal() and int(min_size)):
        message = f"--min-size {min_size} is not a number of pixels; pass 1 or more, or auto"
        raise Refusal(Code.USAGE, message)
    return int(min_size)


def baseline_of(text: str, reader: Reader) -> Baseline | None:
    """Return the baseline for mean:FOLDER, blur[:sigma], constant[:value] or a file.

    None for "auto": the explainer then chooses one for each image.
    """
    kind, _, rest = text.partition(":")
    if text == AUTO:
        return None
    if kind == "mean" and rest:
        files = find([Path(rest)])
        return Mean(reader.format.scale(read(file, reader).pixels) for file in files)
    if kind in ("blur", "constant"):
        values = numbers(f"--baseline {kind}:", rest or None, example=f"--baseline {kind}:0.5")
        if kind == "constant":
            return _constant(values, reader.format)
        return Blur(sigma=values[0] if values else SIGMA)
    path = Path(text)
    if not os.path.lexists(path):
        message = (
            f"--baseline {text} is neither a file nor known; "
            "pass auto, mean:FOLDER, blur, blur:10, constant, constant:0.5 or a file"
        )
        raise Refusal(Code.USAGE, message)
    if path.suffix == ".npy":
        return Fixed(reader.format.scale(_array(path, reader)))
    return Fixed(reader.format.scale(read(path, reader).pixels))


def _constant(values: list[float] | None, wanted: Format) -> Constant:
    """Return one colour: the given one, the mean of the model's scaling, or middle grey."""
    if values is None:
        centred = any(wanted.mean)
        grey = np.full((wanted.count, 1, 1), 0.5)
        scaled = np.zeros(1) if centred else wanted.scale(grey).ravel()
    elif len(values) in (1, wanted.count):
        column = np.resize(values, wanted.count).reshape(-1, 1, 1)
        scaled = wanted.scale(column).ravel()
    else:
        message = f"--baseline constant has {len(values)} values; pass one, or {wanted.count}"
        raise Refusal(Code.USAGE, message)
    return Constant(scaled.tolist() if len(scaled) > 1 else float(scaled[0]))


def _array(path: Path, reader: Reader) -> Array:
    """Return floats `(channels, height, width)` from an .npy file, checked before they are read."""
    count = reader.format.count
    most = 16 * count * reader.max_pixels + 2**16  # bytes: the longest floats, and a header
    with open_regular(path, most=most, fix="pass another file") as file:
        try:
            version = np.lib.format.read_magic(file)
            header = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                header = np.lib.format.read_array_header_2_0
            shape, fortran, dtype = header(file)
        except (ValueError, EOFError) as error:
            message = f"--baseline {path} is not an array that can be read ({brief(error)})"
            raise Refusal(Code.INPUT, message) from error
        if len(shape) != 3 or shape[0] != count or min(shape) < 1 or dtype.kind != "f":
            message = (
                f"--baseline {path} holds {dtype} of shape {shape}; pass floats of 0 to 1 "
                f"({count}, height, width)"
            )
            raise Refusal(Code.INPUT, message)
        if size_of(file) - file.tell() != math.prod(shape) * dtype.itemsize:
            message = f"--baseline {path} does not hold the {shape} numbers that it announces"
            raise Refusal(Code.INPUT, message)
        flat = np.frombuffer(file.read(), dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def classes_of(names: Sequence[str], outputs: Array, wanted: Format) -> tuple[int, ...]:
    """Return the classes of --target by number; `outputs` are the model's for the image.

    >>> from hshap.cli.inputs.formats import Format
    >>> classes_of(["top", "cat"], np.array([0.1, 0.9]), Format(classes=("cat", "dog")))
    (1, 0)
    """
    if wanted.classes and len(wanted.classes) != len(outputs):
        message = (
            f"there are {len(wanted.classes)} class names for {len(outputs)} outputs of the model; "
            "give one for each"
        )
        raise Refusal(Code.USAGE, message)
    found = [_class(name, outputs, wanted.classes) for name in names or [TOP]]
    return tuple(dict.fromkeys(found))


def _class(name: str, outputs: Array, known: Sequence[str]) -> int:
    if name in known:
        return known.index(name)
    if name == TOP:
        return int(outputs.argmax())
    if name.isdecimal() and int(name) < len(outputs):
        return int(name)
    if name.isdecimal():
        fix = f"pass 0 to {len(outputs) - 1}" if len(outputs) > 1 else "pass 0"
        message = f"--target {name} is out of range: the model has {len(outputs)} outputs; {fix}"
        raise Refusal(Code.USAGE, message)
    near = [one for one in known if one.startswith(f"{name} (")]  # there twice
    near = near or difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    few = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    if known:
        message = f"--target {name} is not a class; {hint}the classes are {few}"
    else:
        message = f"--target {name} is a name, but classes have none; pass a number, or --classes"
    raise Refusal(Code.USAGE, message)
