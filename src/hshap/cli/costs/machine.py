"""What the settings of a machine gain: kept memory, batches, memory layout and threads."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap.cli.costs.timing import measured
from hshap.cli.inputs.models import Loaded
from hshap.demo import bundled
from hshap.demo import load as bundled_network
from hshap.errors import require
from hshap.evaluators.allocator import keep_memory

if TYPE_CHECKING:
    from collections.abc import Generator

    from hshap.cli.costs.timing import Timing

ARRAYS, ARRAY_BYTES = 8, 2**25


class Gain(NamedTuple):
    """A setting, how many times faster it is here, and how to have it. None: not measured."""

    setting: str
    times: float | None
    how: str


def gains() -> list[Gain]:
    """Measure the settings: memory with NumPy alone, the others on the bundled torch network.

    >>> gains()[0].setting
    'new arrays of 32 MB: freed memory kept'
    """
    memory = Gain(
        "new arrays of 32 MB: freed memory kept",
        memory_speed(),
        "commands keep it; in Python hshap.keep_memory()",
    )
    return [memory, *_network_gains()]


def memory_speed() -> float | None:
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


def _network_gains() -> list[Gain]:
    """Return the gains on the bundled network; none where torch or its weights cannot be read."""
    if find_spec("torch") is None or find_spec("safetensors") is None:
        return []
    torch = require("torch", extra="torch", needed_by="hshap doctor")
    shape = bundled()["mean"].shape
    loaded = Loaded(bundled_network(), "the bundled network")
    usual, threads = measured(loaded, shape, None), torch.get_num_threads()
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
            alone = measured(loaded, shape, None)
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
