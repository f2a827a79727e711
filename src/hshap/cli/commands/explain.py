"""`hshap explain`: images and a model become explanations, pictures and a page."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from hshap.cli import options as opt
from hshap.cli.inputs.choices import TOLERANCE, baseline_of, partition_of, search_of
from hshap.cli.inputs.images import Reader, find
from hshap.cli.output import SUMMARY, folder, print_json, write_summary
from hshap.cli.progress import bar, table
from hshap.cli.results import PAGE, Plan, Results, rows
from hshap.errors import require
from hshap.evaluators.batched import Batched
from hshap.explainer import Explainer

HEADINGS = ("image", "class", "score", "baseline", "regions", "area", "evaluations")


def explain(  # noqa: PLR0913, one for each option
    images: Annotated[list[Path], typer.Argument(help="Images, and folders of them.")],
    model: opt.Model,
    *,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", "-t", help="Class to explain, by number or name, or top; may be repeated."
        ),
    ] = None,
    baseline: Annotated[
        str,
        typer.Option(
            metavar="mean:FOLDER|blur[:SIGMA]|constant[:VALUE]|FILE",
            help="What hidden pixels show.",
            rich_help_panel=opt.SEARCH,
        ),
    ] = "constant",
    partition: opt.Partition = "bisection",
    min_size: opt.MinSize = None,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|SHARE%",
            help="What a part must add to matter, or what share of all that the image adds; "
            f"{TOLERANCE} by default.",
            rich_help_panel=opt.SEARCH,
        ),
    ] = None,
    percentile: Annotated[
        float | None,
        typer.Option(
            help="Keep what is at or above this percentile of each level instead.",
            rich_help_panel=opt.SEARCH,
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1, help="Most model evaluations for each explanation.", rich_help_panel=opt.SEARCH
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path(
        "hshap-output"
    ),
    force: opt.Force = False,
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
    max_pixels: opt.MaxPixels = opt.LIMIT,
    frame: opt.Frame = None,
    debug: opt.Debug = False,
) -> None:
    """Find where in images a model saw what it says: a page, pictures and explanations."""
    del debug  # its callback has noted it
    require("matplotlib", extra="plot", needed_by="hshap explain")
    search, split = search_of(tolerance, percentile, budget), partition_of(partition, min_size)
    files = find(images)
    # What the user's own code prints must not get between the lines of a JSON document.
    with redirect_stdout(sys.stderr), folder(out, force=force) as staging:
        loaded, wanted = opt.loaded_model(
            model,
            trust=trust,
            device=device,
            config=config,
            size=size,
            channels=channels,
            layout=layout,
            scale=(range_, mean, std),
            white=white,
            classes=classes,
            output=output,
        )
        reader = Reader(wanted, resize=resize, max_pixels=max_pixels, frame=frame)
        plan = Plan(loaded, reader, tuple(target or ()), tuple(files))
        first = plan.check()
        explainer = Explainer(
            Batched(loaded.model, batch_size=batch_size),
            baseline=baseline_of(baseline, reader),
            partition=split,
            search=search,
        )
        results = Results(plan, explainer, staging)
        with bar(len(files) * max(1, len(plan.targets)), budget) as progress:
            for explanation in explainer.explain_many(plan.pairs(first), progress=progress):
                results.add(explanation)
        summary = results.close(baseline=baseline, evaluations=progress.evaluations)
        write_summary(staging / SUMMARY, summary)
    if json:
        print_json({"out": str(out), **summary})
        return
    table(HEADINGS, rows(summary))
    typer.echo(f"the page is {out / PAGE}; explanations and pictures are next to it")
