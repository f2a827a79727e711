"""`hshap explain`: images and a model become explanations, pictures and a page."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap.cli import options as opt
from hshap.cli.inputs.choices import baseline_of, partition_of, search_of
from hshap.cli.inputs.images import Reader, find
from hshap.cli.output import SUMMARY, folder, print_json, write_summary
from hshap.cli.progress import bar, table
from hshap.cli.results import HEADINGS, PAGE, Plan, Results
from hshap.errors import require
from hshap.evaluators.batched import Batched
from hshap.explainer import Explainer

if TYPE_CHECKING:
    from hshap.games.search import Search
    from hshap.partitions.protocol import Partition


def explain(  # noqa: PLR0913, one for each option
    images: Annotated[list[Path], typer.Argument(help="Images, and folders of images.")],
    model: opt.Model,
    *,
    target: opt.Target = None,
    baseline: opt.Baseline = "constant",
    partition: opt.Partition = "bisection",
    min_size: opt.MinSize = None,
    tolerance: opt.Tolerance = None,
    percentile: opt.Percentile = None,
    budget: opt.Budget = None,
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
    """Find the regions of images that drive a model's score; write a page, pictures and files."""
    del debug  # its callback has noted it
    require("matplotlib", extra="plot", needed_by="hshap explain")
    search = search_of(tolerance, percentile, budget)
    method = Method(baseline, partition_of(partition, min_size), search, budget, batch_size)
    files = tuple(find(images))
    # Output of the user's own code must not mix with a JSON document.
    with redirect_stdout(sys.stderr), folder(out, force=force) as staging:
        given = opt.given_shape(size, channels, layout) | opt.given_scale(range_, mean, std, white)
        given |= opt.given_outputs(classes, output)
        loaded, wanted = opt.loaded_model(model, given, trust=trust, device=device, config=config)
        reader = Reader(wanted, resize=resize, max_pixels=max_pixels, frame=frame)
        plan = Plan(loaded, reader, tuple(target or ()), files)
        results = _run(plan, method, staging)
    _print(results, out, json=json)


@dataclass(frozen=True)
class Method:
    """How images are explained."""

    baseline: str
    partition: Partition
    search: Search
    budget: int | None
    batch_size: int | None


def _run(plan: Plan, method: Method, out: Path) -> Results:
    """Explain all images and write everything to a folder."""
    first = plan.check()
    explainer = Explainer(
        Batched(plan.loaded.model, batch_size=method.batch_size),
        baseline=baseline_of(method.baseline, plan.reader),
        partition=method.partition,
        search=method.search,
    )
    results = Results(plan, explainer, out)
    with bar(len(plan.files) * max(1, len(plan.targets)), method.budget) as progress:
        for explanation in explainer.explain_many(plan.pairs(first), progress=progress):
            results.add(explanation)
    results.close(baseline=method.baseline, evaluations=progress.evaluations)
    write_summary(out / SUMMARY, results.summary)
    return results


def _print(results: Results, out: Path, *, json: bool) -> None:
    if json:
        print_json({"out": str(out), **results.summary})
        return
    table(HEADINGS, results.rows())
    typer.echo(f"the page is {out / PAGE}; explanations and pictures are next to it")
