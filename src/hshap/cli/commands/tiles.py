"""`hshap tiles`: images that do not fit in memory become explanations, tile by tile, and a page."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap._util.visible import as_text
from hshap.cli import options as opt
from hshap.cli import tile_options as cut_by
from hshap.cli.faults import Code, Refusal, few
from hshap.cli.inputs.choices import partition_of, search_of
from hshap.cli.inputs.images import Reader
from hshap.cli.inputs.models import config_of
from hshap.cli.output import print_json, say
from hshap.cli.progress import table, tell
from hshap.cli.runs.folders import folder
from hshap.cli.runs.large import HEADINGS, LargeRun, rows_of
from hshap.cli.runs.large_parts import TileParts
from hshap.cli.runs.record import PAGE, SUMMARY
from hshap.cli.runs.run import Method
from hshap.cli.runs.signals import Stop
from hshap.evaluators.tiles import Tiles
from hshap.partitions.grids import AUTO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap._util.types import Json


def tiles(  # noqa: PLR0913, one for each option
    images: Annotated[
        list[Path],
        typer.Argument(help="Tiled TIFF files, folders of OME-Zarr, whole slides, .npy arrays."),
    ],
    model: opt.Model,
    *,
    side: Annotated[
        int, typer.Option(min=1, help="Side of a tile, in pixels.", rich_help_panel=cut_by.TILES)
    ] = 512,
    overlap: cut_by.Overlap = 0,
    level: cut_by.Level = 0,
    skip_flat: cut_by.SkipFlat = None,
    max_tiles: cut_by.MaxTiles = cut_by.MAX_TILES,
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
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume a run that was stopped or killed."),
    ] = False,
    strict: opt.Strict = False,
    json: opt.Json = False,
    trust: opt.Trust = False,
    config: opt.Config = None,
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
    """Explain large images tile by tile, and then inside the tiles that were found."""
    del debug
    if force and resume:
        message = "--force and --resume exclude each other; pass one of them"
        raise Refusal(Code.USAGE, message)
    regions = partition_of(partition, min_size)
    search = search_of(tolerance, percentile, budget, partition=regions)
    size = opt.batch_size_of(batch_size)
    rule = opt.positives_of(every=all_, min_score=min_score)
    method = Method(baseline, regions, search, size, positives=rule)
    cut = Tiles(side, overlap, background=skip_flat, max_tiles=max_tiles, level=level)
    named = [Path(model), config or config_of(model), Path(classes or ""), Path(baseline)]
    inputs = [*images, *(path for path in named if path is not None and path.is_file())]
    # Output of the user's own code must not mix with a JSON document.
    with (
        redirect_stdout(sys.stderr),
        folder(out, fill=force or resume, inputs=inputs, fixed=(PAGE, SUMMARY)) as place,
    ):
        given = opt.given_shape(f"{side}x{side}", channels, layout)
        given |= opt.given_scale(range_, mean, std, white) | opt.given_outputs(classes, output)
        loaded, wanted = opt.loaded_model(model, given, trust=trust, device=device, config=config)
        parts = TileParts(place, resume=resume)
        wanted_classes = tuple(target or ())
        large = LargeRun(images, loaded, Reader(wanted), wanted_classes, method, cut, place, parts)
        try:
            record, concerns = large.run()
        except Stop as stop:
            raise stop.told(parts.told) from None
    parts.remove()
    _end(record, out, json=json)
    for line in few(concerns):
        say(line)
    if strict and concerns:
        raise typer.Exit(Code.CONCERN)


def _end(record: Mapping[str, Json], out: Path, *, json: bool) -> None:
    """Print the results."""
    if json:
        print_json({"out": as_text(str(out)), **record})
        return
    table(HEADINGS, rows_of(record))
    tell(f"the page is {out / PAGE}; explanations and GeoJSON files are next to it")
