"""`hshap verify`: whether a run is as it was written, and its numbers are those of the model."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hshap.cli import options as opt
from hshap.cli import tile_options as cut_by
from hshap.cli.faults import Code, Refusal, few
from hshap.cli.inputs.archives import Recipe, source_of, targets_of
from hshap.cli.inputs.choices import GAMES, partition_of, search_of
from hshap.cli.inputs.images import Reader
from hshap.cli.output import print_json, say
from hshap.cli.progress import tell
from hshap.cli.runs.large import Prepared
from hshap.evaluators.allocator import keep_memory
from hshap.partitions.grids import AUTO
from hshap.runs import verify as verify_run


def verify(  # noqa: PLR0913, one for each option
    run: Annotated[str, typer.Argument(help="Run folder, as hshap run wrote it.")],
    images: Annotated[
        list[str] | None,
        typer.Argument(help="The images of the run, to compute values again; needs --model."),
    ] = None,
    *,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The model of the run.")
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Rows to compute again.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Choose the same rows each time.")] = None,
    seal: Annotated[
        str | None, typer.Option(help="Seal noted earlier: the run must be exactly as it was then.")
    ] = None,
    target: opt.Target = None,
    baseline: opt.Baseline = AUTO,
    partition: opt.Partition = AUTO,
    min_size: opt.MinSize = None,
    tolerance: opt.Tolerance = AUTO,
    percentile: opt.Percentile = None,
    search: opt.Search = GAMES,
    budget: opt.Budget = None,
    tiles: cut_by.Side = None,
    overlap: cut_by.Overlap = 0,
    level: cut_by.Level = 0,
    skip_flat: cut_by.SkipFlat = None,
    max_tiles: cut_by.MaxTiles = cut_by.MAX_TILES,
    root: Annotated[
        Path | None, typer.Option(help="Folder that the paths of a list may not leave.")
    ] = None,
    model_id: Annotated[str | None, typer.Option(help="Name of the model, as in the run.")] = None,
    resize: opt.Resize = False,
    background: opt.Background = "white",
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
    channels_last: opt.ChannelsLast = False,
    device: opt.Device = "auto",
    max_pixels: opt.MaxPixels = opt.LIMIT,
    frame: opt.Frame = None,
    debug: opt.Debug = False,
) -> None:
    """Check all digests of a run; with its images and --model, recompute some values."""
    del debug
    if (model is None) != (not images):
        message = "--model and the images of the run go together; pass both, or neither"
        raise Refusal(Code.USAGE, message)
    if model is None or not images:
        found = verify_run(run, seal=seal)
    else:
        regions = partition_of(partition, min_size)
        chosen = search_of(tolerance, percentile, budget, regions, search)
        cut = cut_by.tiles_of(tiles, overlap, level, skip_flat, max_tiles)
        with redirect_stdout(sys.stderr), keep_memory():
            size = cut_by.size_of(size, cut)
            given = opt.given_shape(size, channels, layout)
            given |= opt.given_scale(range_, mean, std, white) | opt.given_outputs(classes, output)
            loaded, wanted = opt.loaded_model(
                model, given, trust=trust, device=device, config=config
            )
            reader = Reader(wanted, resize, max_pixels, frame, background=background)
            explainer = Recipe(
                model,
                wanted,
                trust,
                device,
                baseline,
                regions,
                chosen,
                opt.batch_size_of(batch_size),
                reader,
                channels_last,
            ).explainer(loaded)
            source = source_of(images, reader, root, by_tiles=cut is not None)
            source, targets = targets_of(target or (), source, explainer, wanted, cut)
            found = verify_run(
                run,
                explainer,
                source,
                target=targets,
                tiles=cut and replace(cut, prepare=Prepared(wanted)),
                model_id=model_id,
                sample=sample,
                seed=seed,
                seal=seal,
            )
    problems = list(found.problems)
    for line in few(problems):
        say(line)
    if json:
        print_json(
            {
                "shards": found.shards,
                "rows": found.rows,
                "problems": problems,
                "seal": found.seal,
                "unsealed": found.unsealed,
                "values": found.values,
                "largest_difference": found.largest,
            }
        )
    else:
        for line in str(found).splitlines()[len(found.problems) :]:
            tell(line)
        if model is None:
            tell("no value was computed again; pass the images and --model for that")
    if problems:
        raise typer.Exit(Code.INPUT)
