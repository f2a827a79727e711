"""`hshap explain`: images and a model become explanations, pictures and a page."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap._util.visible import as_text
from hshap.cli import options as opt
from hshap.cli.faults import Code, Refusal, few
from hshap.cli.inputs.choices import GAMES, partition_of, search_of
from hshap.cli.inputs.explanations import load_calibration
from hshap.cli.inputs.images import Reader
from hshap.cli.inputs.models import config_of
from hshap.cli.inputs.templates import templates_of
from hshap.cli.output import print_json, say
from hshap.cli.progress import left_out, table, tell
from hshap.cli.runs.folders import folder
from hshap.cli.runs.originals import Scale
from hshap.cli.runs.plan import Plan, gather
from hshap.cli.runs.record import SUMMARY
from hshap.cli.runs.results import HEADINGS, PAGE
from hshap.cli.runs.run import Method, Run, Way, refusals
from hshap.cli.runs.signals import Stop
from hshap.errors import require
from hshap.evaluators.allocator import keep_memory
from hshap.partitions.grids import AUTO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.cli.runs.plan import Bad
    from hshap.cli.runs.results import Results


def explain(  # noqa: PLR0913, one for each option
    images: Annotated[list[Path], typer.Argument(help="Images, and folders of images.")],
    model: opt.Model,
    *,
    target: opt.Target = None,
    baseline: opt.Baseline = AUTO,
    template: opt.Template = None,
    partition: opt.Partition = AUTO,
    min_size: opt.MinSize = None,
    tolerance: opt.Tolerance = AUTO,
    percentile: opt.Percentile = None,
    search: opt.Search = GAMES,
    budget: opt.Budget = None,
    all_: opt.All = False,
    min_score: opt.MinScore = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path(
        "hshap-output"
    ),
    force: opt.Force = False,
    resume: opt.Resume = False,
    skip_bad: opt.SkipBad = False,
    strict: opt.Strict = False,
    resize: opt.Resize = False,
    background: opt.Background = "white",
    pixel_size: opt.PixelSize = None,
    unit: opt.Unit = "mm",
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
    calibration: opt.Calibration = None,
    debug: opt.Debug = False,
) -> None:
    """Find the regions of images that drive a model's score; write a page, pictures and files."""
    del debug  # its callback has noted it
    require("matplotlib", extra="plot", needed_by="hshap explain")
    regions = partition_of(partition, min_size)
    chosen = search_of(tolerance, percentile, budget, regions, search)
    templates = templates_of(template, baseline)
    promise = None if calibration is None else load_calibration(calibration)
    method = Method(
        baseline,
        regions,
        chosen,
        opt.batch_size_of(batch_size),
        promise,
        channels_last,
        opt.positives_of(every=all_, min_score=min_score),
    )
    way = Way(out, force=force, resume=resume, skip_bad=skip_bad)
    files, bad = gather(images)
    inputs = [*images, *files, *_read_by(model, config, classes, baseline)]
    inputs += [] if calibration is None else [calibration]
    inputs += [] if templates is None else [templates.folder, *templates.files]
    fixed = (PAGE, SUMMARY)
    # Output of the user's own code must not mix with a JSON document.
    with (
        redirect_stdout(sys.stderr),
        keep_memory(),
        folder(out, fill=force or resume, inputs=inputs, fixed=fixed) as place,
    ):
        given = opt.given_shape(size, channels, layout) | opt.given_scale(range_, mean, std, white)
        given |= opt.given_outputs(classes, output)
        loaded, wanted = opt.loaded_model(model, given, trust=trust, device=device, config=config)
        reader = Reader(
            wanted, resize=resize, max_pixels=max_pixels, frame=frame, background=background
        )
        plan = Plan(loaded, reader, tuple(target or ()), files, bad, templates=templates)
        results, stop = Run(plan, method, way, place, scale=Scale(pixel_size, unit)).run()
    _end(results, plan.bad, way, stop, json=json)
    if strict and results.concerns():
        raise typer.Exit(Code.CONCERN)


def _read_by(model: str, config: Path | None, classes: str | None, baseline: str) -> list[Path]:
    """Return the files and folders that options name as inputs."""
    kind, _, rest = baseline.partition(":")
    files = [Path(model), config or config_of(model), Path(classes or ""), Path(baseline)]
    found = [path for path in files if path is not None and path.is_file()]
    if kind == "mean" and Path(rest).is_dir():
        found += [Path(rest), *Path(rest).iterdir()]
    return (
        found
        if kind not in ("auto", "blur", "constant")
        else [p for p in found if p != Path(baseline)]
    )


def _end(
    results: Results, bad: Sequence[Bad], way: Way, stop: Stop | OSError | None, *, json: bool
) -> None:
    """Print the results; a run that was stopped or has bad images ends with a code of its own."""
    done, total = len(results.finished()), results.total
    kept = f"{done} of {total} images are in {way.out}; {way.on}"
    if isinstance(stop, Stop):
        raise stop.told(kept)
    if stop is not None:
        reason = stop.strerror or stop
        raise Refusal(Code.OUTPUT, f"{way.out} cannot be written ({reason}); {kept}") from stop
    for line in few(results.concerns()):
        say(line)
    if json:
        print_json({"out": as_text(str(way.out)), **results.summary})
    else:
        table(HEADINGS, results.rows())
        if results.negative:
            tell(left_out(results.negative, done, results.rule))
        if results.page_error is None:
            tell(f"the page is {way.out / PAGE}; explanations and pictures are next to it")
    if results.page_error is not None:
        reason = results.page_error.strerror or results.page_error
        message = f"{way.out / PAGE} cannot be written ({reason}); all other results are kept"
        raise Refusal(Code.OUTPUT, message) from results.page_error
    if bad and not way.skip_bad:
        raise refusals(bad, total, kept)
    if bad:
        say(f"{len(bad)} of {total} images were skipped; {way.out / SUMMARY} lists them")
        raise typer.Exit(Code.SKIPPED)
