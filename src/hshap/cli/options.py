"""The options that commands share, and the model that they describe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from hshap._util.processes import usable_cores
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.formats import Format, format_of, given_fields, names, numbers, sides
from hshap.cli.inputs.images import MAX_PIXELS
from hshap.cli.inputs.models import Loaded, config_of, fitted, load, told_by_file
from hshap.cli.output import say
from hshap.evaluators.batched import AUTO
from hshap.games.targets import Positives

MODEL = "Input of the model"
SEARCH = "How to explain"
RUN = "How to run"


def _debug(ctx: typer.Context, value: bool) -> bool:
    if value:
        ctx.find_root().meta["hshap.debug"] = True
    return value


Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        callback=_debug,
        is_eager=True,
        expose_value=True,
        help="Show the traceback of an error.",
        rich_help_panel=RUN,
    ),
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="ONNX file or module:attribute (add () to call it); with --trust TorchScript or .pt2.",
    ),
]
Calibration = Annotated[
    Path | None,
    typer.Option(help="Calibration that hshap calibrate wrote; its promise is shown."),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target", "-t", help="Class to explain: its number, its name, or top; repeatable."
    ),
]
Baseline = Annotated[
    str,
    typer.Option(
        metavar="auto|mean:FOLDER|blur[:SIGMA]|constant[:VALUE]|FILE",
        help="Values that hidden pixels take; auto chooses for each image.",
        rich_help_panel=SEARCH,
    ),
]
Template = Annotated[
    Path | None,
    typer.Option(
        "--template",
        metavar="FOLDER",
        help="Instead of a baseline: the same scenes without the finding, under the images' names.",
        rich_help_panel=SEARCH,
    ),
]
Partition = Annotated[
    str,
    typer.Option(
        help="auto (spots around differences from a template, else superpixels if installed), "
        "quadtree, bisection or superpixels.",
        rich_help_panel=SEARCH,
    ),
]
MinSize = Annotated[
    str | None,
    typer.Option(
        metavar="PIXELS|auto",
        help="Smallest side of a region that is split; auto by default.",
        rich_help_panel=SEARCH,
    ),
]
Tolerance = Annotated[
    str,
    typer.Option(
        metavar="auto|NUMBER|SHARE%",
        help="Smallest coefficient of a relevant part: a number, a share of the score that the "
        "image adds to the baseline, or auto, a fifth of the strongest finding.",
        rich_help_panel=SEARCH,
    ),
]
Percentile = Annotated[
    float | None,
    typer.Option(
        help="Instead of a tolerance: keep parts from this percentile of each level on.",
        rich_help_panel=SEARCH,
    ),
]
Search = Annotated[
    str,
    typer.Option(
        metavar="games|group",
        help="Play the games of the paper, or ask about groups of regions, which takes fewer "
        "evaluations if regions speak for themselves.",
        rich_help_panel=SEARCH,
    ),
]
Budget = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Most model evaluations for each explanation: 200, or 1000 with a tolerance, a "
        "percentile or group tests.",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
All = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Explain every image, also those that the model calls negative.",
        rich_help_panel=SEARCH,
    ),
]
MinScore = Annotated[
    float | None,
    typer.Option(
        "--min-score",
        help="Explain images of at least this score, whatever the model decides.",
        rich_help_panel=SEARCH,
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Load files of torch, which can run any code, and ONNX without limits.",
        rich_help_panel=MODEL,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(help="TOML to use instead of the one next to the model.", rich_help_panel=MODEL),
]
Size = Annotated[
    str | None,
    typer.Option(metavar="HxW", help="Height x width of the model's input.", rich_help_panel=MODEL),
]
Channels = Annotated[
    str | None, typer.Option(help="rgb (the default), bgr or grey.", rich_help_panel=MODEL)
]
Layout = Annotated[
    str | None, typer.Option(help="nchw (the default) or nhwc.", rich_help_panel=MODEL)
]
Range = Annotated[
    str | None,
    typer.Option(
        "--range",
        metavar="A,B",
        help="Values of black and white for the model; 0,1 by default.",
        rich_help_panel=MODEL,
    ),
]
Mean = Annotated[
    str | None,
    typer.Option(
        metavar="R,G,B", help="Subtracted after --range, per channel.", rich_help_panel=MODEL
    ),
]
Std = Annotated[
    str | None,
    typer.Option(metavar="R,G,B", help="Divisor after --mean, per channel.", rich_help_panel=MODEL),
]
White = Annotated[
    float | None,
    typer.Option(
        help="Value of a white pixel in the files; 255 or 65535 by default.", rich_help_panel=MODEL
    ),
]
Classes = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="Names of the outputs, or a file with one in each line.",
        rich_help_panel=MODEL,
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        help="Explain the raw outputs (the default), or their softmax or sigmoid.",
        rich_help_panel=MODEL,
    ),
]
BatchSize = Annotated[
    str | None,
    typer.Option(
        metavar="IMAGES|auto",
        help="Images for each call of the model; auto takes the fastest, the default on a GPU.",
        rich_help_panel=RUN,
    ),
]
ChannelsLast = Annotated[
    bool,
    typer.Option(
        "--channels-last",
        help="Memory layout of a torch module's input; hshap cost measures whether it is faster.",
        rich_help_panel=RUN,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps, ...", rich_help_panel=RUN)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the files of an earlier run.")]
Select = Annotated[
    str | None,
    typer.Option(
        help='Images of a run folder, by SQL: "select image from explanations where doubt > 0.5".'
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Resume an earlier run: explain only the images that it lacks."),
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad",
        help="Skip images that cannot be used, list them, and end with exit code 7.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="End with exit code 8 unless every explanation is supported by its checks."
    ),
]
Resize = Annotated[
    bool,
    typer.Option("--resize", help="Resize images of another size to the size that is needed."),
]
Background = Annotated[
    str,
    typer.Option(
        metavar="COLOUR",
        help="Colour behind transparent pixels: a name such as white or black, or #808080.",
    ),
]
PixelSize = Annotated[
    float | None,
    typer.Option(
        min=1e-12,
        help="Side of a pixel of the files, for the scale bar; else from each file.",
    ),
]
Unit = Annotated[str, typer.Option(help="Unit of --pixel-size.")]
MaxPixels = Annotated[
    int,
    typer.Option(min=1, help="Refuse larger images before they are unpacked.", rich_help_panel=RUN),
]
Frame = Annotated[
    int | None,
    typer.Option(min=0, help="Frame or page to read from a file with several."),
]
LIMIT = MAX_PIXELS


Given = dict[str, object]
"""Fields of a `Format` that options give; None where an option is absent."""


def positives_of(*, every: bool, min_score: float | None) -> Positives | None:
    """Return the rule of the images that are explained; None for all of them."""
    if every and min_score is not None:
        message = f"--all and --min-score {min_score:g} exclude each other; pass one of them"
        raise Refusal(Code.USAGE, message)
    return None if every else Positives(min_score)


def batch_size_of(text: str | None) -> int | Literal["auto"] | None:
    """Return the batch size that an option gives.

    >>> batch_size_of("16"), batch_size_of("auto")
    (16, 'auto')
    """
    if text is None or text == AUTO:
        return text and AUTO
    if text.isdecimal() and int(text):
        return int(text)
    message = f"--batch-size {text} is not a number of images; pass 1 or more, or auto"
    raise Refusal(Code.USAGE, message)


def given_shape(size: str | None, channels: str | None, layout: str | None) -> Given:
    """Return the fields that describe the shape of the model's input."""
    return {"size": sides("--size", size), "channels": channels, "layout": layout}


def given_scale(
    range_: str | None, mean: str | None, std: str | None, white: float | None
) -> Given:
    """Return the fields that scale pixels for the model."""
    return {
        "range": numbers("--range", range_, example="--range 0,255"),
        "mean": numbers("--mean", mean, example="--mean 0.5,0.4,0.4"),
        "std": numbers("--std", std, example="--std 0.2,0.2,0.2"),
        "white": white,
    }


def given_outputs(classes: str | None, output: str | None) -> Given:
    """Return the fields that describe the model's outputs."""
    return {"classes": names(classes, Path()), "output": output}


def loaded_model(  # noqa: PLR0913, one for each option
    model: str,
    given: Given,
    *,
    trust: bool,
    device: str,
    config: Path | None,
    volume: bool | None = False,
) -> tuple[Loaded, Format]:
    """Return a model and the format of its inputs and outputs.

    `given` wins over the TOML, and the TOML over the metadata of an ONNX file.
    """
    fields = given_fields(config or config_of(model), given)
    loaded = load(model, trust=trust, device=device)
    told = told_by_file(loaded, fields)
    loaded, wanted = fitted(loaded, format_of(fields, told, model), volume=volume)
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() > usable_cores():
        torch.set_num_threads(usable_cores())
    if told:
        say(f"{model}: its metadata tells {', '.join(told)}; options win over it")
    if loaded.note:
        say(f"{model}: {loaded.note}")
    return loaded, wanted
