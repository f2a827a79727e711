"""`hshap cost`: evaluations and time, before a long run."""

from __future__ import annotations

from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap.cli.costs import limit_to, predict_by_formula, predict_by_sample
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.archives import Pictures, image_files
from hshap.cli.inputs.choices import BUDGET, known, smallest_side
from hshap.cli.inputs.formats import sides
from hshap.cli.options import (
    AnyModel,
    AsJson,
    MethodOptions,
    ModelOptions,
    ReadOptions,
)
from hshap.cli.output import duration, print_json, table, tell
from hshap.cli.timing import measure_time
from hshap.explainer.predicting import MOST, Range

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap._util.types import Json
    from hshap.cli.costs import Cost
    from hshap.cli.timing import Timing
    from hshap.explainer.predicting import PredictedCost


def cost(  # noqa: PLR0913, one for each option
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[IMAGES]...",
            help="Images of the run, and folders of them: a few are explained, with --model.",
        ),
    ] = None,
    *,
    model: AnyModel = None,
    findings: Annotated[
        int,
        typer.Option(
            "--findings", "-k", min=0, help="Without IMAGES: expected number of relevant leaves."
        ),
    ] = 10,
    images: Annotated[
        int | None, typer.Option(min=1, help="Number of images; those of IMAGES by default, else 1")
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Most images that are explained.")] = MOST,
    targets: Annotated[
        int, typer.Option(min=1, help="Without IMAGES: number of classes for each image.")
    ] = 1,
    json: AsJson = False,
    method: MethodOptions,
    read: ReadOptions,
    taken: ModelOptions,
) -> None:
    """Predict evaluations and time before a long run: from a few of its images, or by formulas."""
    grid, timing, found, skipped = sides("--size", taken.size), None, None, False
    if files and model is None:
        message = f"{files[0]} cannot be explained without a model; pass --model"
        raise Refusal(Code.USAGE, message)
    if model is not None:
        loaded, wanted = taken.load(model, read)
        grid = list(wanted.size) if wanted.size else grid
        if files:
            source = image_files(files, Pictures(read.reader(wanted), method.templates))
            left_out: list[str] = []
            found, shape = predict_by_sample(source, loaded, method, images, sample, left_out)
            grid, skipped = list(shape), bool(left_out)
        if grid is not None:
            count = method.images_in_a_batch
            most = count if isinstance(count, int) else None
            timing = measure_time(loaded, (wanted.count, *grid), most)
    if grid is None:
        message = "the size of the images is not known; pass --size HEIGHTxWIDTH"
        raise Refusal(Code.USAGE, message)
    most = method.most_evaluations or BUDGET
    side, kind = smallest_side(method.partition, method.min_size), known(method.partition)
    asked = {
        "size": grid,
        "partition": kind,
        "min_size": side,
        "search": method.search,
        "budget": most,
    }
    if found is not None:
        _tell_sample(found, timing, asked, json=json)
        raise typer.Exit(Code.SKIPPED if skipped else Code.FINE)
    number = images or 1
    of_one = predict_by_formula(
        (grid[0], grid[1]), kind, side, findings, method.search, method.percentile
    )
    one = limit_to(of_one, most)
    if json:
        document = _document(one, number, targets, timing)
        print_json({**asked, "findings": findings, **document})
    else:
        title = f"{number} x {targets} explanations of {grid[0]} x {grid[1]}, {kind} to {side}"
        _print(title, one, number * targets, findings, timing)


def _tell_sample(
    found: PredictedCost, timing: Timing | None, asked: Mapping[str, Json], *, json: bool
) -> None:
    """Print the cost that a sample predicts."""
    evaluations, seconds = found.evaluations, found.seconds
    if json:
        document = {
            **asked,
            "images": found.images,
            "sampled": found.sampled,
            "sampled_evaluations": list(found.counts),
            "evaluations": _ends(Range(*(n if isinf(n) else round(n) for n in evaluations))),
            "seconds": _ends(seconds),
            **_timed(timing),
        }
        print_json(document)
        return
    names = ("expected", "80 % range, from", "80 % range, to")
    rows = [
        (name, str(round(count)), duration(time))
        for name, count, time in zip(names, evaluations, seconds, strict=True)
        if name == names[0] or not isinf(evaluations.high)
    ]
    title = f"{found.images} images, by a sample of {found.sampled}"
    table(("evaluations and time", "evaluations", "time"), rows, title=title)
    _tell_timing(timing)


def _ends(number: Range) -> dict[str, Json]:
    """Return a number and its range for JSON; one image gives no range."""
    expected, low, high = number
    known = not isinf(high)
    return {"expected": expected, "low": low if known else None, "high": high if known else None}


def _document(one: Cost, images: int, targets: int, timing: Timing | None) -> dict[str, Json]:
    times = images * targets
    each = timing and timing.seconds
    return {
        "levels": one.levels,
        "leaves": one.leaves,
        "images": images,
        "targets": targets,
        "evaluations": {
            "expected": round(one.expected * times),
            "most": one.most * times,
            "bound_of_the_paper": one.bound * times,
        },
        **_timed(timing),
        "seconds": each
        and {"expected": each * one.expected * times, "most": each * one.most * times},
    }


def _timed(timing: Timing | None) -> dict[str, Json]:
    return {
        "seconds_per_evaluation": timing and timing.seconds,
        "seconds_per_evaluation_as_found": timing and timing.as_found,
        "batch_size": timing and timing.batch_size,
        "alternatives": timing and [other._asdict() for other in timing.alternatives],
    }


def _print(title: str, one: Cost, times: int, findings: int, timing: Timing | None) -> None:
    evaluations = {
        f"expected, {findings} findings anywhere": round(one.expected * times),
        "at most, findings far apart": one.most * times,
        "bound of the paper": one.bound * times,
    }
    rows = [
        (name, str(number), "-" if timing is None else duration(timing.seconds * number))
        for name, number in evaluations.items()
    ]
    table(("evaluations and time", "evaluations", "time"), rows, title=title)
    tell("a formula cannot know the model: pass images and --model for a prediction by a sample")
    _tell_timing(timing)


def _tell_timing(timing: Timing | None) -> None:
    if timing is None:
        return
    tell(
        f"measured: {timing.seconds * 1e3:.3g} ms for each evaluation, "
        f"in batches of {timing.batch_size}, with freed memory kept; "
        f"{timing.as_found * 1e3:.3g} ms without (hshap.keep_memory)"
    )
    for other in timing.alternatives:
        layout = ", --channels-last" if other.channels_last else ""
        tell(f"{other.seconds * 1e3:.3g} ms in batches of {other.batch_size}{layout}")
    tell(timing.advice)
