"""The cost of an explanation: inputs to the model, seconds inside it and in total, peak memory."""

from __future__ import annotations

import ctypes
import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")

PIXELS_AT_ONCE = 2**20

RESET, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


@dataclass
class Watch:
    """The seconds spent inside a model so far, and the number of inputs it was given."""

    seconds: float = 0.0
    evaluations: int = 0

    @contextmanager
    def running(self, inputs: int) -> Generator[None, None, None]:
        """Add the time of the block, and this number of inputs, unless the block fails."""
        started = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - started
        self.evaluations += inputs

    def reset(self) -> None:
        """Start again from zero."""
        self.seconds, self.evaluations = 0.0, 0


class Meter(nn.Module):
    """A torch model, or any function of a batch, whose calls a watch times and counts.

    Without gradients, a batch is passed on in parts of at most `pixels_at_once` pixels: activations
    that fit into the processor's cache make photographs up to 1.6 times as fast. Methods that
    follow gradients split batches themselves. None always passes on the batch as it is.
    """

    def __init__(
        self,
        model: Callable[[torch.Tensor], torch.Tensor],
        watch: Watch | None = None,
        *,
        pixels_at_once: int | None = PIXELS_AT_ONCE,
    ) -> None:
        super().__init__()
        self.model, self.watch = model, Watch() if watch is None else watch
        self.pixels_at_once = pixels_at_once

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        with self.watch.running(len(batch)):
            if self.pixels_at_once is None or torch.is_grad_enabled():
                return self.model(batch)
            images = max(1, self.pixels_at_once // batch[0, 0].numel())
            return torch.cat([self.model(part) for part in batch.split(images)])


class Remembered(nn.Module):
    """A model that computes the output of each input once, for all methods that ask for it.

    Many methods show the model the same inputs: every smoothed map repeats the run of its plain
    one, and a small budget begins as a large one does. A meter around this module counts all
    inputs; its seconds say nothing. Passes with gradients are always computed.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._known: dict[bytes, list[float]] = {}

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            return self.model(batch)
        keys = [blake2b(one.contiguous().numpy(), digest_size=16).digest() for one in batch]
        new = {key: place for place, key in enumerate(keys) if key not in self._known}
        if new:
            found = self.model(batch[list(new.values())])
            self._known.update(zip(new, found.tolist(), strict=True))
        return torch.tensor([self._known[key] for key in keys], dtype=batch.dtype)


@contextmanager
def metered(meter: Meter) -> Generator[dict[str, Any], None, None]:
    """Fill a dict with the cost of the block, also if the block fails.

    `megabytes` is the peak of the resident memory above its size at the start, or None where the
    kernel does not tell.
    """
    cost: dict[str, Any] = {}
    meter.watch.reset()
    before = _memory(reset=True)
    begun = time.perf_counter()
    try:
        yield cost
    finally:
        cost["seconds"] = time.perf_counter() - begun
        cost["seconds_in_model"] = meter.watch.seconds
        cost["evaluations"] = meter.watch.evaluations
        peak = _memory(reset=False)
        cost["megabytes"] = None if before is None or peak is None else max(0.0, peak - before)


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call, and the seconds it took."""
    started = time.perf_counter()
    result = call()
    return result, time.perf_counter() - started


def _memory(*, reset: bool) -> float | None:
    """Return the peak resident memory in MB; `reset` first sets the peak to the present size."""
    try:
        if reset:
            _release_freed_memory()
            RESET.write_text("5")
        lines = STATUS.read_text().splitlines()
    except OSError:
        return None
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _release_freed_memory() -> None:
    # Freed memory that the allocator keeps would hide how much the next method needs.
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)
