"""Processes: whether the one that left a mark on a disk has ended, and the cores that this has."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import astuple, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Owner:
    """A process: its machine, the boot and the process space there, its number and its start.

    >>> this_process().is_gone()
    False
    >>> Owner.read(str(this_process())) == this_process()
    True
    """

    machine: str
    space: str
    process: str
    started: str

    @classmethod
    def read(cls, text: str) -> Owner | None:
        """Return the owner that `str` wrote; None if the text is none."""
        parts = text.split("+")
        return cls(*parts) if len(parts) == 4 else None

    def __str__(self) -> str:
        return "+".join(astuple(self))

    @property
    def is_here(self) -> bool:
        """Whether it runs, or ran, where this process can look for it."""
        here = this_process()
        return (self.machine, self.space) == (here.machine, here.space)

    def is_gone(self) -> bool:
        """Tell whether the process has ended for certain; False if this machine cannot know."""
        if os.name != "posix" or not self.is_here:
            return False
        try:
            os.kill(int(self.process), 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError, ValueError):
            return False
        state, started = _state(self.process)
        return state == "Z" or started != self.started


def usable_cores(limits: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the cores that this process may use, at least 1.

    Those of the machine, unless the process is bound to some of them, or a container limits its
    time: `limits` is the folder of the limits on Linux. Libraries that start a thread for each core
    of the machine are slow in such a container.

    >>> usable_cores() >= 1
    True
    """
    found = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        found = min(found, len(os.sched_getaffinity(0)))
    return max(1, min(found, _limited(limits) or found))


def _limited(limits: Path) -> int | None:
    """Return the cores that a container's limit amounts to, rounded up; None without a limit."""
    both = [("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")]
    for names in both:
        try:
            texts = [Path(limits, name).read_text("ascii") for name in names]
            quota, period = map(int, " ".join(texts).split())
        except (OSError, ValueError):  # no such file, or "max" for no limit
            continue
        if quota > 0 and period > 0:
            return -(-quota // period)
    return None


def this_process() -> Owner:
    """Return this process."""
    machine = re.sub(r"[^\w.-]", "_", socket.gethostname())[:80] or "unknown"
    number = str(os.getpid())
    return Owner(machine, _space(), number, _state(number)[1])


def _space() -> str:
    """Return the boot of this machine and its space of process numbers; "-" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot[:13]}.{Path('/proc/self/ns/pid').stat().st_ino}"
    except (OSError, ValueError):
        return "-"


def _state(process: str) -> tuple[str, str]:
    """Return the state of a process and its start, counted from the boot; "-" if unknown."""
    try:
        text = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
        fields = text.rpartition(")")[2].split()  # the name before it may hold anything
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "-", "-"
