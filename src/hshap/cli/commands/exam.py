"""`hshap exam`: a whole volume becomes an explanation and a page: which slices, then where."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap._util.visible import as_text
from hshap.cli import options as opt
from hshap.cli.faults import Code, Refusal, few
from hshap.cli.inputs.choices import partition_of, search_of
from hshap.cli.inputs.formats import numbers
from hshap.cli.inputs.images import Reader
from hshap.cli.inputs.models import config_of
from hshap.cli.inputs.scans import read_volume
from hshap.cli.output import print_json, say
from hshap.cli.progress import Shown, table, tell
from hshap.cli.runs.exam import HEADINGS, VOLUME_HEADINGS, ExamRun, rows_of
from hshap.cli.runs.folders import folder
from hshap.cli.runs.record import PAGE, SUMMARY
from hshap.cli.runs.run import Method
from hshap.cli.runs.signals import Stop
from hshap.evaluators.allocator import keep_memory
from hshap.partitions.grids import AUTO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap._util.types import Json


def exam(  # noqa: PLR0913, one for each option
    scan: Annotated[
        Path,
        typer.Argument(
            help="A volume: a folder of DICOM, NIfTI, TIFF with pages, OME-Zarr, or .npy."
        ),
    ],
    model: opt.Model,
    *,
    volume: Annotated[
        bool,
        typer.Option("--volume", help="The model takes the whole volume, not single slices."),
    ] = False,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH",
            help="Values that are black and white for the model; else the window of the file.",
        ),
    ] = None,
    target: opt.Target = None,
    baseline: opt.Baseline = AUTO,
    partition: opt.Partition = AUTO,
    min_size: opt.MinSize = None,
    tolerance: opt.Tolerance = AUTO,
    percentile: opt.Percentile = None,
    budget: opt.Budget = None,
    all_: opt.All = False,
    min_score: opt.MinScore = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path(
        "hshap-output"
    ),
    force: opt.Force = False,
    strict: opt.Strict = False,
    resize: opt.Resize = False,
    json: opt.Json = False,
    trust: opt.Trust = False,
    config: opt.Config = None,
    size: opt.Size = None,
    channels: opt.Channels = None,
    layout: opt.Layout = None,
    range_: opt.Range = None,
    mean: opt.Mean = None,
    std: opt.Std = None,
    white: opt.White = None,
    classes: opt.Classes = None,
    output: opt.Output = None,
    batch_size: opt.BatchSize = None,
    device: opt.Device = "auto",
    debug: opt.Debug = False,
) -> None:
    """Find the slices of a volume that drive a model's score, and the regions inside them."""
    del debug
    regions = partition_of(partition, min_size)
    search = search_of(tolerance, percentile, budget, partition=regions)
    rule, size_ = opt.positives_of(every=all_, min_score=min_score), opt.batch_size_of(batch_size)
    method = Method(baseline, regions, search, size_, positives=rule)
    shown = _window(window, white)
    named = [Path(model), config or config_of(model), Path(classes or ""), Path(baseline)]
    inputs = [scan, *(path for path in named if path is not None and path.is_file())]
    # Output of the user's own code must not mix with a JSON document.
    with (
        redirect_stdout(sys.stderr),
        keep_memory(),
        folder(out, fill=force, inputs=inputs, fixed=(PAGE, SUMMARY)) as place,
    ):
        given = opt.given_shape(size, channels, layout)
        given |= opt.given_scale(range_, mean, std, white) | opt.given_outputs(classes, output)
        try:
            with Shown(f"reading {scan.name}"):
                found = read_volume(scan)
            loaded, wanted = opt.loaded_model(
                model, given, trust=trust, device=device, config=config, volume=volume or None
            )
            is_volume = volume or len(loaded.shape or ()) == 5
            reader = Reader(wanted, resize=resize, window=shown)
            targets = tuple(target or ())
            made = ExamRun(scan, found, loaded, reader, targets, method, place, volume=is_volume)
            record, concerns = made.run()
        except Stop as stop:
            raise stop.told("nothing was written") from None
    _end(record, out, json=json, volume=is_volume)
    for line in few(concerns):
        say(line)
    if strict and concerns:
        raise typer.Exit(Code.CONCERN)


def _window(text: str | None, white: float | None) -> tuple[float, float] | None:
    """Return the values of --window; it and --white exclude each other."""
    found = numbers("--window", text, example="--window -160,240")
    if found is None:
        return None
    if white is not None:
        message = "--window and --white exclude each other; pass one of them"
        raise Refusal(Code.USAGE, message)
    if len(found) != 2 or not -inf < found[0] < found[1] < inf:
        message = f"--window {text} is not a range; pass a low and a high value, such as -160,240"
        raise Refusal(Code.USAGE, message)
    return found[0], found[1]


def _end(record: Mapping[str, Json], out: Path, *, json: bool, volume: bool) -> None:
    """Print the results."""
    if json:
        print_json({"out": as_text(str(out)), **record})
        return
    table(VOLUME_HEADINGS if volume else HEADINGS, rows_of(record))
    tell(f"the page is {out / PAGE}; explanations are next to it")
