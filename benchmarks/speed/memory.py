"""The memory of this process, as Linux counts it."""

from __future__ import annotations

import resource
from pathlib import Path


def resident_bytes() -> int:
    """Return the bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak_bytes() -> int:
    """Return the most bytes of this process that were ever in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_to_available_memory() -> None:
    """Let an allocation fail before the machine runs out of memory."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    limit = available * 1024 * 9 // 10
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
