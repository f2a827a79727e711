"""The time of an evaluation: in batches as large as a run's, with memory kept and without."""

from __future__ import annotations

import sys
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap.cli.faults import Code, Refusal, brief
from hshap.cli.inputs.models import Loaded, probe
from hshap.cli.progress import Shown
from hshap.evaluators.allocator import keep_memory
from hshap.evaluators.batched import LARGEST_BATCH, LARGEST_BYTES
from hshap.evaluators.runners import runner

if TYPE_CHECKING:
    from hshap._util.types import Image, Shape
    from hshap.evaluators.runners import Runner

REPEATS = 3
OTHER_BATCHES = (1, 8)
MOST_SECONDS = 10.0
"""For the comparison of batch sizes and layouts; each is measured while this lasts."""


def has_layouts(loaded: Loaded, shape: Shape) -> bool:
    """Tell whether a model is a torch module, and its images have several planes."""
    torch = sys.modules.get("torch")
    is_module = torch is not None and isinstance(loaded.model, torch.nn.Module)
    return is_module and len(shape) == 3 and shape[0] > 1


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
    """Return the times of smaller batches, and of channels last for torch modules.

    One on which the model fails is left out.
    """
    started, found = perf_counter(), list[Alternative]()
    sizes = [size for size in OTHER_BATCHES if size < most]
    layouts = [(size, False) for size in sizes] + [(most, True)] * has_layouts(loaded, noise.shape)
    with keep_memory():
        for size, last in layouts:
            if perf_counter() - started > MOST_SECONDS:
                break
            run = runner(loaded.model, autocast=None, channels_last=last)
            if run.largest_batch not in {None, size}:
                continue
            with suppress(Exception):  # such as that of tensor.view, which needs the usual layout
                found.append(Alternative(size, last, _fastest(run, noise, size) / size))
    return tuple(found)


def _fastest(run: Runner, noise: Image, size: int) -> float:
    """Return the seconds of the fastest of two batches, after one to warm up."""
    room = run.inputs(size, noise.shape, noise.dtype)
    room[:] = run.put(noise)
    times = list[float]()
    for _ in range(3):
        started = perf_counter()
        run.run(room, size)
        times.append(perf_counter() - started)
    return min(times[1:])
