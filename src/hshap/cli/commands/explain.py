"""`hshap explain`: images and a model become explanations, pictures and a page."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal, few
from hshap.cli.inputs.choices import files_of_options
from hshap.cli.options import MethodOptions, Model, ModelOptions, ReadOptions, RunOptions
from hshap.cli.output import print_json, say
from hshap.cli.progress import left_out, table, tell
from hshap.cli.runs.folders import folder
from hshap.cli.runs.originals import Scale
from hshap.cli.runs.plan import Plan, gather
from hshap.cli.runs.record import SUMMARY
from hshap.cli.runs.results import HEADINGS, PAGE
from hshap.cli.runs.run import Run, Way, refusals
from hshap.cli.runs.signals import Stop
from hshap.errors import require
from hshap.evaluators.allocator import keep_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.cli.runs.plan import Bad
    from hshap.cli.runs.results import Results


def explain(  # noqa: PLR0913, one for each group of options
    images: Annotated[list[Path], typer.Argument(help="Images, and folders of images.")],
    model: Model,
    *,
    run: RunOptions,
    method: MethodOptions,
    read: ReadOptions,
    taken: ModelOptions,
) -> None:
    """Find the regions of images that drive a model's score; write a page, pictures and files."""
    require("matplotlib", extra="plot", needed_by="hshap explain")
    way = Way(run.out, force=run.force, resume=run.resume, skip_bad=run.skip_bad)
    files, bad = gather(images)
    inputs = [*images, *files, *files_of_options(model, taken, method)]
    fixed = (PAGE, SUMMARY)
    # Output of the user's own code must not mix with a JSON document.
    with (
        redirect_stdout(sys.stderr),
        keep_memory(),
        folder(run.out, fill=run.force or run.resume, inputs=inputs, fixed=fixed) as place,
    ):
        loaded, wanted = taken.load(model, read)
        plan = Plan(
            loaded, read.reader(wanted), method.targets, files, bad, templates=method.templates
        )
        scale = Scale(read.pixel_size, read.unit)
        results, stop = Run(plan, method, way, place, scale=scale).run()
    _end(results, plan.bad, way, stop, json=run.json)
    if run.strict and results.concerns():
        raise typer.Exit(Code.CONCERN)


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
