"""`hshap calibrate`: an area around findings with a promise, from annotated images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hshap._util.visible import as_text
from hshap.cli.inputs.annotated_runs import check_categories, explained_with, objects_of, on_grid
from hshap.cli.options import AsJson, Force
from hshap.cli.output import print_json, tell
from hshap.cli.progress import Shown, each
from hshap.cli.runs.output_files import single
from hshap.explanation.guarantees.calibration import NEEDED, as_loss
from hshap.explanation.guarantees.calibration import calibrate as calibrated


def calibrate(  # noqa: PLR0913, one for each option
    run: Annotated[str, typer.Argument(help="Run folder, or a folder that explain wrote.")],
    *,
    truth: Annotated[Path, typer.Option("--truth", help="Annotated objects, as a COCO file.")],
    level: Annotated[
        float, typer.Option(help="Expected loss on a new image with objects, at most.")
    ] = 0.1,
    loss: Annotated[
        str, typer.Option(help="missed-area, missed-objects or false-area.")
    ] = "missed-area",
    category: Annotated[
        list[str] | None, typer.Option(help="Category of the objects; all by default; repeatable.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Class, if several are explained.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path(
        "calibration.json"
    ),
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Choose how far around findings to look, so that a promise holds on images with objects."""
    wanted = as_loss(loss.replace("-", " "))
    found, categories = explained_with(run, truth, target)
    check_categories(categories, category or [], "--category")
    with each("reading objects", found) as some:
        truths = [
            [on_grid(mask, one.explanation) for mask in own]
            for one, own in zip(some, objects_of(found, category or categories), strict=True)
        ]
    with Shown("calibrating"):
        made = calibrated([one.explanation for one in found], truths, loss=wanted, level=level)
    with single(out, force=force, inputs=[truth]) as path:
        made.save(path)
    if json:
        print_json({"file": as_text(str(out)), "promise": str(made), **made.document})
    else:
        tell(f"{made}; the marked area is {made.mean_area:.1%} of these images on average")
        if made.left_out:
            lacking = NEEDED[wanted].replace(" and ", " or ")
            tell(f"images without {lacking} are left out: {made.left_out}")
        empty = [not one.explanation.leaves for one, own in zip(found, truths, strict=True) if own]
        if any(empty) and wanted != "false area":
            tell(f"images with objects and without findings are missed in full: {sum(empty)}")
        tell(f"{out} is written; pass it to hshap explain or view with --calibration")
