"""The options of the commands, once: frozen dataclasses that the command line flattens.

A command takes a group as one parameter, such as `method: MethodOptions`, and `hshap.cli.app` puts
the fields of the group in its place. Groups hold what was typed. They pickle, so a worker gets them
as they are, and what they describe is made by their methods.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, get_type_hints

import typer

from hshap.cli.faults import Code, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap._util.types import Json, Untyped
    from hshap.cli.inputs.formats import Format
    from hshap.cli.inputs.images import Reader
    from hshap.cli.inputs.models import Loaded
    from hshap.cli.inputs.templates import Templates
    from hshap.evaluators.tiles import Tiles
    from hshap.explainer import Explainer
    from hshap.explanation.guarantees.calibration import Calibration
    from hshap.games.search import Search
    from hshap.games.targets import Positives
    from hshap.partitions.protocol import Partition

AUTO = "auto"
MODEL = "Input of the model"
SEARCH = "How to explain"
READ = "How images are read"
TILES = "How large images are cut"
RUN = "How to run"

MAX_PIXELS = 100_000_000
MAX_TILES = 100

Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="ONNX file or module:attribute (add () to call it); with --trust TorchScript or .pt2.",
    ),
]
AnyModel = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="MODEL", help="As for hshap explain."),
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        "--calibration", help="Calibration that hshap calibrate wrote; its promise is shown."
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
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps, ...", rich_help_panel=RUN)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the files of an earlier run.")]
Select = Annotated[
    str | None,
    typer.Option(
        help='Images of a run folder, by SQL: "select image from explanations where doubt > 0.5".'
    ),
]
RetryFailed = Annotated[
    bool,
    typer.Option(
        "--retry-failed", help="Try images again that failed before.", rich_help_panel=RUN
    ),
]
Root = Annotated[Path | None, typer.Option(help="Folder that the paths of a list may not leave.")]


T = TypeVar("T")


def as_note(**groups: Untyped) -> dict[str, Json]:
    """Return groups of options as JSON, for the description of a run.

    >>> as_note(tiles=TileOptions(tiles=64))["tiles"]["tiles"]
    64
    """
    return {
        name: {
            field.name: str(value.resolve()) if isinstance(value, Path) else value
            for field in fields(group)
            for value in [getattr(group, field.name)]
        }
        for name, group in groups.items()
    }


def from_note(kind: type[T], note: Mapping[str, Untyped]) -> T:
    """Return a group of options from the description of a run.

    >>> from_note(TileOptions, as_note(tiles=TileOptions(tiles=64))["tiles"]).tiles
    64
    """
    paths = [name for name, hint in get_type_hints(kind).items() if hint == Path | None]
    return kind(**{k: Path(v) if k in paths and v is not None else v for k, v in note.items()})


def refuse_options(command: str, group: object, *names: str) -> None:
    """Refuse options of a group that a command has no use for, if they were given."""
    for name in names:
        if getattr(group, name) != getattr(type(group), name):
            option = name.rstrip("_").replace("_", "-")
            message = f"--{option} does nothing for {command}; leave it out"
            raise Refusal(Code.USAGE, message)


@dataclass(frozen=True)
class ModelOptions:
    """How the model is loaded, what it takes, and what its outputs mean."""

    trust: Trust = False
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML to use instead of the one next to the model.", rich_help_panel=MODEL
        ),
    ] = None
    size: Annotated[
        str | None,
        typer.Option(
            metavar="HxW", help="Height x width of the model's input.", rich_help_panel=MODEL
        ),
    ] = None
    channels: Annotated[
        str | None, typer.Option(help="rgb (the default), bgr or grey.", rich_help_panel=MODEL)
    ] = None
    layout: Annotated[
        str | None, typer.Option(help="nchw (the default) or nhwc.", rich_help_panel=MODEL)
    ] = None
    range_: Annotated[
        str | None,
        typer.Option(
            "--range",
            metavar="A,B",
            help="Values of black and white for the model; 0,1 by default.",
            rich_help_panel=MODEL,
        ),
    ] = None
    mean: Annotated[
        str | None,
        typer.Option(
            metavar="R,G,B", help="Subtracted after --range, per channel.", rich_help_panel=MODEL
        ),
    ] = None
    std: Annotated[
        str | None,
        typer.Option(
            metavar="R,G,B", help="Divisor after --mean, per channel.", rich_help_panel=MODEL
        ),
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="Names of the outputs, or a file with one in each line.",
            rich_help_panel=MODEL,
        ),
    ] = None
    output: Annotated[
        str | None,
        typer.Option(
            help="Explain the raw outputs (the default), or their softmax or sigmoid.",
            rich_help_panel=MODEL,
        ),
    ] = None
    device: Device = AUTO

    def load(
        self,
        model: str,
        read: ReadOptions | None = None,
        *,
        size: str | None = None,
        volume: bool | None = False,
    ) -> tuple[Loaded, Format]:
        """Return a model and the format of its inputs and outputs.

        Options win over the TOML, and the TOML over the metadata of an ONNX file. `size` is that
        of the tiles of large images.
        """
        from hshap.cli.inputs import choices  # noqa: PLC0415, help is printed without it

        if size is not None and self.size is not None:
            message = f"--size {self.size} is for whole images; with tiles, a tile of {size} is one"
            raise Refusal(Code.USAGE, message)
        white = None if read is None else read.white
        return choices.load_model(model, self, size or self.size, white, volume=volume)


@dataclass(frozen=True)
class ReadOptions:
    """How the files of images are read, for the model and for display."""

    resize: Annotated[
        bool,
        typer.Option(
            "--resize",
            help="Resize images of another size to the size that is needed.",
            rich_help_panel=READ,
        ),
    ] = False
    fit: Annotated[
        str | None,
        typer.Option(
            metavar="crop|letterbox|stretch",
            help="How images of another shape are resized, if not as the model's config says: "
            "cropped, padded or stretched; with --resize of itself.",
            rich_help_panel=READ,
        ),
    ] = None
    background: Annotated[
        str,
        typer.Option(
            metavar="COLOUR",
            help="Colour behind transparent pixels: a name such as white or black, or #808080.",
            rich_help_panel=READ,
        ),
    ] = "white"
    white: Annotated[
        float | None,
        typer.Option(
            help="Value of a white pixel in the files; 255 or 65535 by default.",
            rich_help_panel=READ,
        ),
    ] = None
    window: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH",
            help="Values of a scan that are black and white; else the window of the file.",
            rich_help_panel=READ,
        ),
    ] = None
    frame: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Frame or page to read from a file with several.",
            rich_help_panel=READ,
        ),
    ] = None
    pixel_size: Annotated[
        float | None,
        typer.Option(
            min=1e-12,
            help="Side of a pixel of the files, for the scale bar; else from each file.",
            rich_help_panel=READ,
        ),
    ] = None
    unit: Annotated[str, typer.Option(help="Unit of --pixel-size.", rich_help_panel=READ)] = "mm"
    max_pixels: Annotated[
        int,
        typer.Option(
            min=1, help="Refuse larger images before they are unpacked.", rich_help_panel=READ
        ),
    ] = MAX_PIXELS

    def __post_init__(self) -> None:
        """Refuse a window that is none, before anything is read."""
        _ = self.limits
        if self.fit not in (None, "crop", "letterbox", "stretch"):
            message = f"--fit {self.fit} is not known; pass one of crop, letterbox, stretch"
            raise Refusal(Code.USAGE, message)

    def reader(self, wanted: Format | None = None) -> Reader:
        """Return the reader for a model; for display, without one."""
        from hshap.cli.inputs.formats import Format  # noqa: PLC0415, help is printed without it
        from hshap.cli.inputs.images import Reader  # noqa: PLC0415

        wanted = Format(white=self.white) if wanted is None else wanted
        return Reader(
            wanted if self.fit is None else replace(wanted, fit=self.fit),
            self.resize or self.fit is not None,
            self.max_pixels,
            self.frame,
            background=self.background,
            window=self.limits,
        )

    @property
    def limits(self) -> tuple[float, float] | None:
        """The values of --window; it and --white exclude each other."""
        from hshap.cli.inputs.formats import numbers  # noqa: PLC0415, as above

        values = numbers("--window", self.window, example="--window -160,240")
        if values is None:
            return None
        if self.white is not None:
            message = "--window and --white exclude each other; pass one of them"
            raise Refusal(Code.USAGE, message)
        if len(values) != 2 or not -inf < values[0] < values[1] < inf:
            message = (
                f"--window {self.window} is not a range; pass a low and a high value, such as "
                "-160,240"
            )
            raise Refusal(Code.USAGE, message)
        return values[0], values[1]


@dataclass(frozen=True)
class MethodOptions:
    """How images are explained: the classes, and the parts of the explainer."""

    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            help="Class to explain: its number, its name, or top; repeatable.",
            rich_help_panel=SEARCH,
        ),
    ] = None
    baseline: Annotated[
        str,
        typer.Option(
            metavar="auto|mean:FOLDER|blur[:SIGMA]|constant[:VALUE]|FILE",
            help="Values that hidden pixels take; auto chooses for each image.",
            rich_help_panel=SEARCH,
        ),
    ] = AUTO
    template: Annotated[
        Path | None,
        typer.Option(
            "--template",
            metavar="FOLDER",
            help="Instead of a baseline: the same scenes without the finding, under the images' "
            "names.",
            rich_help_panel=SEARCH,
        ),
    ] = None
    partition: Annotated[
        str,
        typer.Option(
            help="auto (spots around differences from a template, else superpixels if installed), "
            "quadtree, bisection or superpixels.",
            rich_help_panel=SEARCH,
        ),
    ] = AUTO
    min_size: Annotated[
        str | None,
        typer.Option(
            metavar="PIXELS|auto",
            help="Smallest side of a region that is split; auto by default.",
            rich_help_panel=SEARCH,
        ),
    ] = None
    tolerance: Annotated[
        str,
        typer.Option(
            metavar="auto|NUMBER|SHARE%",
            help="Smallest coefficient of a relevant part: a number, a share of the score that the "
            "image adds to the baseline, or auto, a fifth of the strongest finding.",
            rich_help_panel=SEARCH,
        ),
    ] = AUTO
    percentile: Annotated[
        float | None,
        typer.Option(
            help="Instead of a tolerance: keep parts from this percentile of each level on.",
            rich_help_panel=SEARCH,
        ),
    ] = None
    search: Annotated[
        str,
        typer.Option(
            metavar="games|group",
            help="Play the games of the paper, or ask about groups of regions, which takes fewer "
            "evaluations if regions speak for themselves.",
            rich_help_panel=SEARCH,
        ),
    ] = "games"
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most model evaluations for each explanation: 200, or 1000 with a tolerance, a "
            "percentile or group tests.",
            show_default=False,
            rich_help_panel=SEARCH,
        ),
    ] = None
    all_: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Explain every image, also those that the model calls negative.",
            rich_help_panel=SEARCH,
        ),
    ] = False
    min_score: Annotated[
        float | None,
        typer.Option(
            "--min-score",
            help="Explain images of at least this score, whatever the model decides.",
            rich_help_panel=SEARCH,
        ),
    ] = None
    calibration: CalibrationFile = None
    batch_size: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGES|auto",
            help="Images for each call of the model; auto takes the fastest, the default on a GPU.",
            rich_help_panel=RUN,
        ),
    ] = None
    channels_last: Annotated[
        bool,
        typer.Option(
            "--channels-last",
            help="Memory layout of a torch module's input; hshap cost measures whether it is "
            "faster.",
            rich_help_panel=RUN,
        ),
    ] = False

    def __post_init__(self) -> None:
        """Refuse options that contradict each other, before anything is read or written."""
        self.make_search()
        _ = self.positives, self.images_in_a_batch, self.templates, self.promise

    def make_partition(self) -> Partition | None:
        """Return the partition; None if the explainer chooses it."""
        from hshap.cli.inputs import choices  # noqa: PLC0415, help is printed without it

        return choices.partition_of(self.partition, self.min_size)

    def make_search(self) -> Search | None:
        """Return the search; None if the explainer chooses it."""
        from hshap.cli.inputs import choices  # noqa: PLC0415, as above

        partition = self.make_partition()
        return choices.search_of(
            self.tolerance, self.percentile, self.budget, partition, self.search
        )

    def explainer(self, loaded: Loaded, reader: Reader) -> Explainer:
        """Return the explainer of a model; `reader` reads the pictures of a baseline."""
        from hshap.cli.inputs import choices  # noqa: PLC0415, as above

        return choices.build_explainer(self, loaded, reader)

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the classes to explain; none for the top class."""
        return tuple(self.target or ())

    @property
    def positives(self) -> Positives | None:
        """The rule of the images that are explained; None for all of them."""
        from hshap.games.targets import Positives  # noqa: PLC0415, as above

        if self.all_ and self.min_score is not None:
            message = (
                f"--all and --min-score {self.min_score:g} exclude each other; pass one of them"
            )
            raise Refusal(Code.USAGE, message)
        return None if self.all_ else Positives(self.min_score)

    @property
    def rule(self) -> str:
        """The rule by which images are explained, in words."""
        return "all images" if self.positives is None else self.positives.rule

    @property
    def images_in_a_batch(self) -> int | Literal["auto"] | None:
        """The batch size; None for the usual one.

        >>> MethodOptions(batch_size="16").images_in_a_batch
        16
        """
        text = self.batch_size
        if text is None or text == AUTO:
            return None if text is None else "auto"
        if text.isdecimal() and int(text):
            return int(text)
        message = f"--batch-size {text} is not a number of images; pass 1 or more, or auto"
        raise Refusal(Code.USAGE, message)

    @property
    def most_evaluations(self) -> int | None:
        """The most evaluations of an explanation; None without a limit that is known."""
        from hshap.explainer.choosing_parts import budget_of, usual_search  # noqa: PLC0415

        is_given = self.make_partition() is not None
        return budget_of(self.make_search() or usual_search(partition_is_given=is_given))

    @cached_property
    def templates(self) -> Templates | None:
        """The images' own baselines; None without --template."""
        from hshap.cli.inputs.templates import templates_of  # noqa: PLC0415, as above

        return templates_of(self.template, self.baseline)

    @cached_property
    def promise(self) -> Calibration | None:
        """The calibration that is shown with the findings; None without --calibration."""
        from hshap.cli.inputs.explanations import load_calibration  # noqa: PLC0415, as above

        return None if self.calibration is None else load_calibration(self.calibration)


@dataclass(frozen=True)
class TileOptions:
    """How images are cut that do not fit in memory."""

    tiles: Annotated[
        int | None,
        typer.Option(
            "--tiles",
            "--side",
            min=1,
            help="Explain large images by tiles of this side, in pixels.",
            rich_help_panel=TILES,
        ),
    ] = None
    overlap: Annotated[
        int,
        typer.Option(min=0, help="Pixels that neighbouring tiles share.", rich_help_panel=TILES),
    ] = 0
    level: Annotated[
        int, typer.Option(min=0, help="Resolution to read; 0 is full.", rich_help_panel=TILES)
    ] = 0
    skip_flat: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Skip tiles in which no channel of the model's input varies by more than this.",
            rich_help_panel=TILES,
        ),
    ] = None
    max_tiles: Annotated[
        int, typer.Option(min=1, help="Most found tiles to look into.", rich_help_panel=TILES)
    ] = MAX_TILES

    def tiles_if_asked(self) -> Tiles | None:
        """Return how large images are cut; None without a side, where its options mean nothing."""
        if self.tiles is not None:
            return self.make_tiles(self.tiles)
        given = {
            "--overlap": self.overlap,
            "--level": self.level,
            "--skip-flat": self.skip_flat is not None,
            "--max-tiles": self.max_tiles != MAX_TILES,
        }
        for name in (name for name, is_given in given.items() if is_given):
            raise Refusal(Code.USAGE, f"{name} is for large images; pass --tiles with a side, too")
        return None

    def make_tiles(self, side: int) -> Tiles:
        """Return how large images are cut into tiles of a side."""
        from hshap.evaluators.tiles import Tiles  # noqa: PLC0415, help is printed without it

        return Tiles(
            side,
            self.overlap,
            background=self.skip_flat,
            max_tiles=self.max_tiles,
            level=self.level,
        )


@dataclass(frozen=True)
class RunOptions:
    """Where the results of a run go, and how it treats earlier ones and those with concerns."""

    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path(
        "hshap-output"
    )
    force: Force = False
    retry_failed: RetryFailed = False
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="End with exit code 8 unless every explanation is supported by its checks.",
        ),
    ] = False
    json: AsJson = False
