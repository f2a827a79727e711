"""`hshap cost`: evaluations and time, before a long run."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import typer

from hshap.cli import options as opt
from hshap.cli.faults import Code, Refusal, brief
from hshap.cli.inputs.choices import BUDGET, GAMES, GROUP, known, known_search, smallest_side
from hshap.cli.inputs.formats import sides
from hshap.cli.inputs.models import Loaded, probe
from hshap.cli.output import print_json
from hshap.cli.progress import Shown, duration, table, tell
from hshap.evaluators.allocator import keep_memory
from hshap.evaluators.batched import LARGEST_BATCH, LARGEST_BYTES
from hshap.evaluators.runners import runner
from hshap.games import theory
from hshap.partitions.grids import AUTO

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap._util.types import Image, Json

REPEATS = 3
OTHER_BATCHES = (1, 8)
MOST_SECONDS = 10.0
"""For the comparison of batch sizes and layouts; each is measured while this lasts."""

LEARNING = 1.05
"""Questions of a group test for each bit that names the findings, without those for each alone."""

EMPTY = 2.4
"""Groups without a finding for each finding, at most: they grow with the area that was searched."""


@dataclass(frozen=True)
class Cost:
    """Evaluations for one image and class.

    `expected` is the mean if the findings lie anywhere with equal chance (theorem 1 of the paper).
    `most` is the number if they lie as far apart as possible, `bound` the bound of the paper.
    """

    levels: int
    leaves: int
    expected: float
    most: int
    bound: int


class Alternative(NamedTuple):
    """Measured seconds for one evaluation with another batch size or memory layout."""

    batch_size: int
    channels_last: bool
    seconds: float


class Timing(NamedTuple):
    """Measured seconds for one evaluation, in batches of this size.

    `seconds` is with freed memory kept, as the commands keep it; `as_found` is without.
    """

    seconds: float
    batch_size: int
    as_found: float
    alternatives: tuple[Alternative, ...] = ()


def predicted(
    grid: tuple[int, int], partition: str, min_size: int, findings: int, search: str = GAMES
) -> Cost:
    """Return the cost of an explanation in which `findings` leaves of the partition are relevant.

    >>> predicted((64, 64), "quadtree", 8, 1).most
    44
    >>> predicted((64, 64), "quadtree", 8, 1, "group").most
    17
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
    if search == GROUP:
        return _of_groups(levels, leaves, few, gamma)
    most = 2 + new * sum(min(max(few, 1) if level else 1, gamma**level) for level in range(levels))
    most = most if few else 2 + new
    visited = theory.expected_visited(leaves, gamma, few / leaves)
    # Every visited node plays a game, except the leaves; all relevant leaves are visited.
    expected = 2 + new * (visited - few)
    return Cost(levels, leaves, expected, most, theory.cost_bound(leaves, gamma, few))


def _of_groups(levels: int, leaves: int, findings: int, gamma: int) -> Cost:
    """Return the cost of group tests, if regions speak for themselves.

    Expected are the bits that name the findings, times the excess over them that simulations had,
    and a question for each finding alone. The most is, for each finding, a question for each level
    below a group of the whole image, one for the group and one for the leaf alone. Groups without a
    finding come to that.
    """
    bound = theory.cost_bound(leaves, gamma, findings)
    if not findings:
        return Cost(levels, leaves, 2.0, 2, bound)
    floor = theory.question_floor(leaves, findings)
    expected = 2 + LEARNING * floor + findings + 2
    without = math.ceil(EMPTY * (findings + 0.5)) + 1
    most = 4 + findings * (2 + math.ceil(math.log2(leaves))) + without
    return Cost(levels, leaves, min(expected, most), most, bound)


def within(cost: Cost, budget: int) -> Cost:
    """Return the cost of explanations that end at a budget.

    >>> within(predicted((64, 64), "quadtree", 1, 100), 1000).most
    1000
    """
    return replace(cost, expected=min(cost.expected, budget), most=min(cost.most, budget))


def cost(  # noqa: PLR0913, one for each option
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Model to time; without it, evaluations alone."),
    ] = None,
    *,
    size: opt.Size = None,
    partition: opt.Partition = AUTO,
    min_size: opt.MinSize = None,
    findings: Annotated[
        int, typer.Option("--findings", "-k", min=0, help="Expected number of relevant leaves.")
    ] = 10,
    search: opt.Search = GAMES,
    budget: opt.Budget = BUDGET,
    images: Annotated[int, typer.Option(min=1, help="Number of images.")] = 1,
    targets: Annotated[int, typer.Option(min=1, help="Number of classes for each image.")] = 1,
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
    grid, timing = sides("--size", size), None
    if model is not None:
        given = opt.given_shape(size, channels, layout)
        loaded, wanted = opt.loaded_model(model, given, trust=trust, device=device, config=config)
        grid = list(wanted.size) if wanted.size else grid
        if grid is not None:
            timing = measured(loaded, (wanted.count, *grid), batch_size)
    if grid is None:
        message = "the size of the images is not known; pass --size HEIGHTxWIDTH"
        raise Refusal(Code.USAGE, message)
    side, kind = smallest_side(partition, min_size), known(partition)
    cost_of_one = predicted((grid[0], grid[1]), kind, side, findings, known_search(search))
    one = within(cost_of_one, budget)
    asked = {"size": grid, "partition": kind, "min_size": side, "findings": findings}
    asked |= {"search": search, "budget": budget}
    if json:
        print_json({**asked, **_document(one, images, targets, timing)})
    else:
        title = f"{images} x {targets} explanations of {grid[0]} x {grid[1]}, {kind} to {side}"
        _print(title, one, images * targets, findings, timing)


def measured(loaded: Loaded, shape: tuple[int, ...], batch_size: int | None) -> Timing:
    """Return the time of an evaluation in full batches: the median of a few, in turns."""
    noise = np.random.default_rng(0).random(shape, dtype=np.float32)
    with Shown("timing the model") as shown:
        shown.update(0.0, "one input")
        probe(loaded, noise)
        run = runner(loaded.model, autocast=None, channels_last=False)
        # As many as a run takes: a batch of large images would not fit in memory.
        usual = max(1, min(LARGEST_BATCH, LARGEST_BYTES // noise.nbytes))
        count = min(batch_size or usual, run.largest_batch or batch_size or usual)
        room = run.inputs(count, shape, noise.dtype)
        for place in range(count):
            room[place] = run.put(noise)

        def time_of_a_batch() -> float:
            started = perf_counter()
            run.run(room, count)
            return perf_counter() - started

        found: list[float] = []
        kept: list[float] = []
        try:
            time_of_a_batch()  # to warm up
            for number in range(REPEATS):
                shown.update(number / REPEATS, f"batches {number + 1} of {REPEATS}")
                found.append(time_of_a_batch())
                with keep_memory() as memory:
                    if memory.active:  # else the numbers are the same
                        time_of_a_batch()  # takes the memory that the next one reuses
                    kept.append(time_of_a_batch())
        except Exception as error:
            message = (
                f"{loaded.name} failed on a batch of {count} ({brief(error)}); pass --batch-size"
            )
            raise Refusal(Code.MODEL, message) from error
        shown.update(1.0, "other batch sizes")
        others = _alternatives(loaded, noise, count)
    return Timing(float(np.median(kept)) / count, count, float(np.median(found)) / count, others)


def _alternatives(loaded: Loaded, noise: Image, most: int) -> tuple[Alternative, ...]:
    """Return the times of smaller batches, and of channels last for torch modules."""
    started, found = perf_counter(), list[Alternative]()
    torch = sys.modules.get("torch")
    is_module = torch is not None and isinstance(loaded.model, torch.nn.Module)
    sizes = [size for size in OTHER_BATCHES if size < most]
    layouts = [(size, False) for size in sizes] + [(most, True)] * (is_module and noise.ndim == 3)
    with keep_memory():
        for size, last in layouts:
            if perf_counter() - started > MOST_SECONDS:
                break
            run = runner(loaded.model, autocast=None, channels_last=last)
            if run.largest_batch not in {None, size}:
                continue
            room = run.inputs(size, noise.shape, noise.dtype)
            room[:] = run.put(noise)
            times = [
                _time_of(lambda run=run, room=room, n=size: run.run(room, n)) for _ in range(3)
            ]
            found.append(Alternative(size, last, min(times[1:]) / size))
    return tuple(found)


def _time_of(act: Callable[[], object]) -> float:
    started = perf_counter()
    act()
    return perf_counter() - started


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
        "seconds_per_evaluation": each,
        "seconds_per_evaluation_as_found": timing and timing.as_found,
        "batch_size": timing and timing.batch_size,
        "alternatives": timing and [other._asdict() for other in timing.alternatives],
        "seconds": each
        and {"expected": each * one.expected * times, "most": each * one.most * times},
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
    if timing is not None:
        tell(
            f"measured: {timing.seconds * 1e3:.3g} ms for each evaluation, "
            f"in batches of {timing.batch_size}, with freed memory kept; "
            f"{timing.as_found * 1e3:.3g} ms without (hshap.keep_memory)"
        )
        for other in timing.alternatives:
            layout = ", channels last" if other.channels_last else ""
            tell(f"{other.seconds * 1e3:.3g} ms in batches of {other.batch_size}{layout}")


def _halvings(length: int, least: int) -> int:
    """Count how often a length is halved, rounded up, until it is at most `least`."""
    count = 0
    while length > least:
        length, count = -(-length // 2), count + 1
    return count
