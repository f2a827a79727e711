"""`hshap cost`: evaluations and time, before a long run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer

from hshap.cli import options as opt
from hshap.cli.faults import Code, Refusal, brief
from hshap.cli.inputs.choices import PARTITIONS
from hshap.cli.inputs.formats import sides
from hshap.cli.inputs.models import Loaded, probe
from hshap.cli.output import print_json
from hshap.cli.progress import table
from hshap.evaluators.batched import LARGEST_BATCH
from hshap.evaluators.runners import runner
from hshap.games import theory
from hshap.partitions.grids import AUTO
from hshap.partitions.superpixels import MIN_AREA

REPEATS = 3


@dataclass(frozen=True)
class Cost:
    """Evaluations for one image and class: on average, and at most.

    `expected` is for findings that lie anywhere alike (theorem 1 of the paper), `most` for those
    that lie as far apart as they can, `bound` is the paper's.
    """

    levels: int
    leaves: int
    expected: float
    most: int
    bound: int


def predicted(grid: tuple[int, int], partition: str, min_size: int, findings: int) -> Cost:
    """Return what an explanation costs if `findings` leaves of the partition matter.

    >>> predicted((64, 64), "quadtree", 8, 1).most
    44
    """
    if partition == "quadtree":
        gamma, levels = 4, max(_halvings(side, min_size) for side in grid)
    elif partition == "bisection":
        gamma, levels = 2, sum(_halvings(side, min_size) for side in grid)
    else:
        gamma, levels = 2, _halvings(grid[0] * grid[1], min_size**2)
    leaves, new = gamma**levels, 2**gamma - 2
    if not levels:  # the image is a leaf, and its game has one player
        return Cost(0, 1, 2.0, 2, 2)
    few = min(findings, leaves)
    most = 2 + new * sum(min(max(few, 1) if level else 1, gamma**level) for level in range(levels))
    most = most if few else 2 + new
    visited = theory.expected_visited(leaves, gamma, few / leaves)
    # Every node that is visited plays a game but for the leaves, of which all that matter are.
    expected = 2 + new * (visited - few)
    return Cost(levels, leaves, expected, most, theory.cost_bound(leaves, gamma, few))


def cost(  # noqa: PLR0913, one for each option
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Model to time; evaluations alone without it."),
    ] = None,
    *,
    size: opt.Size = None,
    partition: opt.Partition = "bisection",
    min_size: opt.MinSize = None,
    findings: Annotated[
        int, typer.Option("--findings", "-k", min=0, help="Leaves that will matter, as a guess.")
    ] = 10,
    images: Annotated[int, typer.Option(min=1, help="Number of images.")] = 1,
    targets: Annotated[int, typer.Option(min=1, help="Number of classes for each.")] = 1,
    json: opt.Json = False,
    trust: opt.Trust = False,
    config: opt.Config = None,
    channels: opt.Channels = None,
    layout: opt.Layout = None,
    batch_size: opt.BatchSize = None,
    device: opt.Device = "auto",
    debug: opt.Debug = False,
) -> None:
    """Predict evaluations and time before a long run."""
    del debug
    grid = sides("--size", size)
    each = batch = None
    if model is not None:
        loaded, wanted = opt.loaded_model(
            model,
            trust=trust,
            device=device,
            config=config,
            size=size,
            channels=channels,
            layout=layout,
        )
        grid = list(wanted.size) if wanted.size else grid
        if grid is not None:
            each, batch = seconds_each(loaded, (wanted.count, *grid), batch_size or LARGEST_BATCH)
    if grid is None:
        message = "the size of the images is not known; pass --size HEIGHTxWIDTH"
        raise Refusal(Code.USAGE, message)
    least = _least(partition, min_size)
    one = predicted((grid[0], grid[1]), partition, least, findings)
    times = images * targets
    told: dict[str, Any] = {
        "size": grid,
        "partition": partition,
        "min_size": least,
        "findings": findings,
        "levels": one.levels,
        "leaves": one.leaves,
        "images": images,
        "targets": targets,
        "evaluations": {
            "expected": round(one.expected * times),
            "most": one.most * times,
            "bound_of_the_paper": one.bound * times,
        },
        "seconds_per_evaluation": each,
        "batch_size": batch,
        "seconds": each
        and {"expected": each * one.expected * times, "most": each * one.most * times},
    }
    if json:
        print_json(told)
        return
    words = {
        "expected": f"expected, {findings} findings anywhere",
        "most": "at most, findings far apart",
        "bound_of_the_paper": "the paper's bound",
    }
    rows = [
        (words[key], str(number), _time(each and each * number))
        for key, number in told["evaluations"].items()
    ]
    what = f"{images} x {targets} explanations of {grid[0]} x {grid[1]}, {partition} to {least}"
    table(("evaluations and time", "evaluations", "time"), rows, title=what)
    if each is not None:
        typer.echo(f"measured: {each * 1e3:.3g} ms for each evaluation, in batches of {batch}")


def seconds_each(loaded: Loaded, shape: tuple[int, ...], batch: int) -> tuple[float, int]:
    """Return the time of an evaluation, measured in full batches, and how large these are."""
    noise = np.random.default_rng(0).random(shape, dtype=np.float32)
    probe(loaded, noise)
    run = runner(loaded.model, autocast=None, channels_last=False)
    count = min(batch, run.largest_batch or batch)
    room = run.inputs(count, shape, noise.dtype)
    taken: list[float] = []
    try:
        for _ in range(REPEATS + 1):  # the first warms up
            for place in range(count):
                room[place] = run.put(noise)
            started = perf_counter()
            run.run(room, count)
            taken.append(perf_counter() - started)
    except Exception as error:
        message = f"{loaded.name} failed on a batch of {count} ({brief(error)}); pass --batch-size"
        raise Refusal(Code.MODEL, message) from error
    return float(np.median(taken[1:])) / count, count


def _least(partition: str, min_size: str | None) -> int:
    if partition not in PARTITIONS:
        message = f"--partition {partition} is not known; pass one of {', '.join(PARTITIONS)}"
        raise Refusal(Code.USAGE, message)
    if min_size is None and partition == "superpixels":
        return math.isqrt(MIN_AREA)
    if min_size in (None, AUTO):
        return 1  # it may go down to single pixels
    if not (min_size.isdecimal() and int(min_size)):
        message = f"--min-size {min_size} is not a number of pixels; pass 1 or more, or auto"
        raise Refusal(Code.USAGE, message)
    return int(min_size)


def _halvings(length: int, least: int) -> int:
    """Count how often a length is halved until it is small enough; the larger half counts."""
    count = 0
    while length > least:
        length, count = -(-length // 2), count + 1
    return count


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
