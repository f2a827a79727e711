"""What an explanation costs: rows through the model, seconds there and in all, memory."""

from __future__ import annotations

import ctypes
import gc
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Generator

TOGETHER = 2**20  # pixels

RESET, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


class Meter(nn.Module):
    """A model that counts the rows it is given and the seconds it takes forward.

    It passes large images on a few at a time: activations that fit into the processor's cache make
    photographs up to 1.6 times as fast. Methods that follow gradients part batches themselves.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.rows, self.seconds = model, 0, 0.0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        begun = time.perf_counter()
        few = max(1, TOGETHER // images[0, 0].numel())
        together = len(images) if torch.is_grad_enabled() else few
        outputs = torch.cat([self.model(part) for part in images.split(together)])
        self.seconds += time.perf_counter() - begun
        self.rows += len(images)
        return outputs


@contextmanager
def metered(meter: Meter) -> Generator[dict[str, Any], None, None]:
    """Fill a dict with the cost of what happens inside, also if it fails.

    Peak memory is what the kernel saw beyond the start, and None where it cannot be asked.
    """
    cost: dict[str, Any] = {}
    meter.rows, meter.seconds = 0, 0.0
    before = _memory(reset=True)
    begun = time.perf_counter()
    try:
        yield cost
    finally:
        cost["seconds"] = time.perf_counter() - begun
        cost["seconds_in_model"] = meter.seconds
        cost["evaluations"] = meter.rows
        peak = _memory(reset=False)
        cost["megabytes"] = None if before is None or peak is None else max(0.0, peak - before)


def _give_back() -> None:
    """Return freed memory to the system: what is kept for later would hide what is needed next."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)


def _memory(*, reset: bool) -> float | None:
    """Return the peak resident memory in MB, after starting it anew from what is in use now."""
    try:
        if reset:
            _give_back()
            RESET.write_text("5")
        lines = STATUS.read_text().splitlines()
    except OSError:
        return None
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
