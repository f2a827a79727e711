"""The options that commands share, and what they stand for together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hshap.cli.inputs.formats import Format, names, numbers, read_format, sides
from hshap.cli.inputs.images import MAX_PIXELS
from hshap.cli.inputs.models import Loaded, config_of, fitted, load
from hshap.cli.output import say

MODEL = "What the model wants"
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
        help="ONNX file, module:attribute (add () to call it), TorchScript or .pt2.",
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Load pickles too, which can run any code.", rich_help_panel=MODEL
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
        help="What black and white become; 0,1 by default.",
        rich_help_panel=MODEL,
    ),
]
Mean = Annotated[
    str | None,
    typer.Option(
        metavar="R,G,B", help="Subtracted after that, channel by channel.", rich_help_panel=MODEL
    ),
]
Std = Annotated[
    str | None,
    typer.Option(metavar="R,G,B", help="Then divided by.", rich_help_panel=MODEL),
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
        metavar="A,B,C", help="Names of the outputs, or a file of them.", rich_help_panel=MODEL
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        help="raw (the default), softmax or sigmoid of the outputs is explained.",
        rich_help_panel=MODEL,
    ),
]
Partition = Annotated[
    str, typer.Option(help="quadtree, bisection or superpixels.", rich_help_panel=SEARCH)
]
MinSize = Annotated[
    str | None,
    typer.Option(
        metavar="PIXELS|auto",
        help="Side below which nothing is split; auto by default.",
        rich_help_panel=SEARCH,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(min=1, help="Images for each call of the model.", rich_help_panel=RUN),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps, ...", rich_help_panel=RUN)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what an earlier run wrote.")]
Resize = Annotated[
    bool,
    typer.Option("--resize", help="Resize images that are not of the size that is needed."),
]
MaxPixels = Annotated[
    int,
    typer.Option(
        min=1, help="Refuse images with more pixels, before they are unpacked.", rich_help_panel=RUN
    ),
]
Frame = Annotated[
    int | None,
    typer.Option(min=0, help="Frame or page to take of images that have several."),
]
LIMIT = MAX_PIXELS


def loaded_model(  # noqa: PLR0913, one for each option of the model
    model: str,
    *,
    trust: bool,
    device: str,
    config: Path | None,
    size: str | None = None,
    channels: str | None = None,
    layout: str | None = None,
    scale: tuple[str | None, str | None, str | None] = (None, None, None),
    white: float | None = None,
    classes: str | None = None,
    output: str | None = None,
) -> tuple[Loaded, Format]:
    """Return a model and what it wants; `scale` has range, mean and std."""
    given: dict[str, Any] = {
        "size": sides("--size", size),
        "channels": channels,
        "layout": layout,
        "range": numbers("--range", scale[0]),
        "mean": numbers("--mean", scale[1]),
        "std": numbers("--std", scale[2]),
        "white": white,
        "classes": names(classes, Path()),
        "output": output,
    }
    wanted = read_format(config or config_of(model), given)
    loaded, wanted = fitted(load(model, trust=trust, device=device), wanted)
    if loaded.note:
        say(f"{model}: {loaded.note}")
    return loaded, wanted
