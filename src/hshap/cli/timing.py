"""The time of an evaluation here, and what the settings of a machine gain."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap.cli.faults import Code, Refusal, brief
from hshap.cli.inputs.models import Loaded, probe
from hshap.cli.progress import Shown
from hshap.demo import bundled
from hshap.demo import load as bundled_network
from hshap.errors import require
from hshap.evaluators.allocator import keep_memory
from hshap.evaluators.batched import LARGEST_BATCH, LARGEST_BYTES
from hshap.evaluators.runners import is_torch_module, runner

if TYPE_CHECKING:
    from collections.abc import Generator

    from hshap._util.types import Image, Shape
    from hshap.evaluators.runners import Runner

ARRAYS, ARRAY_BYTES = 8, 2**25
REPEATS = 3
OTHER_BATCHES = (1, 8)
WORTH = 0.9
"""Share of the usual time from which on another size of batches is worth an option."""

MOST_SECONDS = 10.0
"""For the comparison of batch sizes and layouts; each is measured while this lasts."""


def has_layouts(loaded: Loaded, shape: Shape) -> bool:
    """Tell whether a model is a torch module, and its images have several planes."""
    return is_torch_module(loaded.model) and len(shape) == 3 and shape[0] > 1


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

    @property
    def advice(self) -> str:
        """What follows from the alternatives, in a line.

        >>> Timing(0.004, 32, 0.005, (Alternative(8, False, 0.001),)).advice
        'pass --batch-size 8: 4 times as fast as batches of 32'
        >>> Timing(0.004, 32, 0.005, (Alternative(1, False, 0.004),)).advice
        'batches of 32 are as good as any; no option is needed'
        """
        best = min(self.alternatives, key=lambda other: other.seconds, default=None)
        if best is None or best.seconds > WORTH * self.seconds:
            return f"batches of {self.batch_size} are as good as any; no option is needed"
        options = [f"--batch-size {best.batch_size}"] * (best.batch_size != self.batch_size)
        options += ["--channels-last"] * best.channels_last
        times = self.seconds / best.seconds
        usual = f"batches of {self.batch_size}"
        return f"pass {' '.join(options)}: {times:.2g} times as fast as {usual}"


def measure_time(loaded: Loaded, shape: tuple[int, ...], batch_size: int | None) -> Timing:
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
                found.append(Alternative(size, last, _median_seconds(run, noise, size) / size))
    return tuple(found)


def _median_seconds(run: Runner, noise: Image, size: int) -> float:
    """Return the median time of a few batches, after one to warm up."""
    room = run.inputs(size, noise.shape, noise.dtype)
    room[:] = run.put(noise)
    times = list[float]()
    for _ in range(1 + REPEATS):
        started = perf_counter()
        run.run(room, size)
        times.append(perf_counter() - started)
    return float(np.median(times[1:]))


class Gain(NamedTuple):
    """A setting, how many times faster it is here, and how to have it. None: not measured."""

    setting: str
    times: float | None
    how: str


def measure_gains() -> list[Gain]:
    """Measure the settings: memory with NumPy alone, the others on the bundled torch network.

    >>> measure_gains()[0].setting
    'new arrays of 32 MB: freed memory kept'
    """
    memory = Gain(
        "new arrays of 32 MB: freed memory kept",
        measure_kept_memory(),
        "commands keep it; in Python hshap.keep_memory()",
    )
    return [memory, *_measure_network_gains()]


def measure_kept_memory() -> float | None:
    """Return how many times faster new arrays are if freed memory is kept, or None if it is not.

    The smallest of a few times in turns, for arrays of 32 MB that are written once.
    """

    def seconds() -> float:
        started = perf_counter()
        for _ in range(ARRAYS):
            np.full(ARRAY_BYTES, 1, np.uint8)
        return perf_counter() - started

    found: list[float] = []
    kept: list[float] = []
    for _ in range(3):
        found.append(seconds())
        with keep_memory() as memory:
            if not memory.active:
                return None
            seconds()  # takes the memory that the next ones reuse
            kept.append(seconds())
    return min(found) / min(kept)


def _measure_network_gains() -> list[Gain]:
    """Return the gains on the bundled network; none where torch or its weights cannot be read."""
    if find_spec("torch") is None or find_spec("safetensors") is None:
        return []
    torch = require("torch", extra="torch", needed_by="hshap doctor")
    shape = bundled()["mean"].shape
    loaded = Loaded(bundled_network(), "the bundled network")
    usual, threads = measure_time(loaded, shape, None), torch.get_num_threads()
    found = [
        Gain(
            "bundled network: freed memory kept",
            usual.as_found / usual.seconds,
            "commands keep it; in Python hshap.keep_memory()",
        ),
        Gain(
            f"bundled network: batches of {usual.batch_size} against single images",
            _alternative(usual, 1, channels_last=False, than_usual=False),
            "the default; --batch-size, hshap.Batched(batch_size=)",
        ),
        Gain(
            "bundled network: channels last",
            _alternative(usual, usual.batch_size, channels_last=True, than_usual=True),
            "--channels-last, hshap.Batched(channels_last=)",
        ),
    ]
    if threads > 1:
        with _one_thread():
            alone = measure_time(loaded, shape, None)
        setting = f"bundled network: {threads} threads against one"
        how = "commands take no more than the usable cores; torch.set_num_threads"
        found.append(Gain(setting, alone.seconds / usual.seconds, how))
    return found


def _alternative(
    timing: Timing, batch_size: int, *, channels_last: bool, than_usual: bool
) -> float | None:
    """Return how many times faster an alternative is than the usual batch, or the other way."""
    for other in timing.alternatives:
        if (other.batch_size, other.channels_last) == (batch_size, channels_last):
            return timing.seconds / other.seconds if than_usual else other.seconds / timing.seconds
    return None


@contextmanager
def _one_thread() -> Generator[None]:
    """Let torch use one thread, and as many as before afterwards."""
    torch = require("torch", extra="torch", needed_by="hshap doctor")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
