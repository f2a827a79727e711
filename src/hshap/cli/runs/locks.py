"""Locks: only one run at a time writes to an output, also on network file systems.

A lock is a folder, because no two processes can both make it. The name of a file in it says whose
lock it is. To take over the lock of a run that was killed, that file is renamed, which succeeds for
one process alone.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hshap.cli.faults import Code, Refusal
from hshap.cli.runs.signals import on_hold

if TYPE_CHECKING:
    from collections.abc import Generator

PREFIX = ".hshap-"
RESULTS = "results"
MARK = "owner+"
TRIES = 20
PAUSE = 0.02


@dataclass(frozen=True)
class Owner:
    """A process: its machine, the boot and the process space there, its number and its start."""

    machine: str
    space: str
    process: str
    started: str

    @property
    def name(self) -> str:
        """The name of the file that shows an owner."""
        return MARK + "+".join(astuple(self))

    def is_gone(self) -> bool:
        """Tell whether the process has ended for certain; False if this machine cannot know."""
        here = this_process()
        if os.name != "posix" or (self.machine, self.space) != (here.machine, here.space):
            return False
        try:
            os.kill(int(self.process), 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError, ValueError):
            return False
        state, started = _state(self.process)
        return state == "Z" or started != self.started


def this_process() -> Owner:
    """Return the owner of locks that this process takes."""
    machine = re.sub(r"[^\w.-]", "_", socket.gethostname())[:80] or "unknown"
    number = str(os.getpid())
    return Owner(machine, _space(), number, _state(number)[1])


@contextmanager
def locked(lock: Path, out: Path) -> Generator[Path, None, None]:
    """Hold a lock, and give a private folder in it; both are removed at the end.

    Another run that holds it is a `Refusal`. `lock.parent` must exist; a `FileNotFoundError` says
    that it does not. `out` is the path to name in messages.
    """
    with ExitStack() as stack:
        with on_hold():
            _take(lock, out)
            stack.callback(_remove, lock)
            results = lock / RESULTS
            shutil.rmtree(results, ignore_errors=True)  # of a run that was killed
            results.mkdir(mode=0o700)
        yield results


def _take(lock: Path, out: Path) -> None:
    mine = this_process()
    owner = None
    for _ in range(TRIES):
        try:
            lock.mkdir()
        except FileExistsError:
            owner = _owner(lock)
            if owner is None:  # it is being made or removed at this moment
                time.sleep(PAUSE)
                continue
            if not owner.is_gone():
                break
            try:
                (lock / owner.name).rename(lock / mine.name)
            except FileNotFoundError:
                continue  # another run was faster
            return
        else:
            _sign(lock, mine)
            return
    raise Refusal(Code.OUTPUT, _message(lock, out, owner))


def _sign(lock: Path, owner: Owner) -> None:
    try:
        (lock / owner.name).touch()
    except OSError:  # such as a full disk
        shutil.rmtree(lock, ignore_errors=True)
        raise


def _message(lock: Path, out: Path, owner: Owner | None) -> str:
    if owner is None:
        return f"another run is writing to {out}; if there is none, remove the folder {lock}"
    who = f"process {owner.process} on {owner.machine}"
    if (owner.machine, owner.space) == (this_process().machine, this_process().space):
        return f"another run ({who}) is writing to {out}; wait for it, or pass another --out"
    return (
        f"another run ({who}) is writing to {out}; wait for it, or remove the folder {lock} if "
        "that process has ended"
    )


def _owner(lock: Path) -> Owner | None:
    try:
        names = [path.name for path in lock.iterdir() if path.name.startswith(MARK)]
    except OSError:
        return None
    parts = names[0].removeprefix(MARK).split("+") if names else []
    return Owner(*parts) if len(parts) == len(astuple(this_process())) else None


def _remove(lock: Path) -> None:
    with on_hold():
        # Its owner last: without one, a lock cannot be taken over after a sudden end.
        shutil.rmtree(lock / RESULTS, ignore_errors=True)
        shutil.rmtree(lock, ignore_errors=True)


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
