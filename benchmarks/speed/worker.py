"""Run one measurement, and print its outcome as a line of JSON.

Started by `process.run_alone` with the task as the only argument. Linux only: it reads /proc.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path

import torch

from benchmarks.speed.cases import SEED
from benchmarks.speed.memory import peak_bytes
from benchmarks.speed.process import THREADS


class OtherProcesses:
    """Tells how much of the CPUs other processes took since it was made."""

    def __init__(self) -> None:
        self._wall, self._busy, self._own = self._now()

    def share(self) -> float:
        """Return the share of all CPUs, from 0 to 1."""
        wall, busy, own = self._now()
        theirs = (busy - self._busy) - (own - self._own)
        share = theirs / ((wall - self._wall) * (os.cpu_count() or 1))
        # Ticks are coarse, so in a short run the difference can leave the range.
        return min(max(share, 0.0), 1.0)

    @staticmethod
    def _now() -> tuple[float, float, float]:
        user, nice, system, _, _, irq, softirq, steal, *_ = (
            int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        )
        ticks = user + nice + system + irq + softirq + steal
        return time.perf_counter(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time()


def main() -> None:
    task = json.loads(sys.argv[1])
    # Only the module that is asked for: others would add their imports to the peak memory.
    module, _, function = task.pop("measure").partition(".")
    measure = getattr(importlib.import_module(f"benchmarks.speed.measurements.{module}"), function)
    torch.set_num_threads(THREADS)
    torch.manual_seed(SEED)
    others = OtherProcesses()
    try:
        found = measure(**task)
    except (MemoryError, RuntimeError) as error:
        # torch on the CPU has no exception of its own for memory that ran out.
        if "memory" not in str(error).lower() and not isinstance(error, MemoryError):
            raise
        found = {"failed": "out of memory"}
    print(json.dumps({**found, "peak_gb": peak_bytes() / 1e9, "others_cpu": others.share()}))


if __name__ == "__main__":
    main()
