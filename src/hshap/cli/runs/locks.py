"""Locks: only one run at a time writes to an output, also on network file systems.

A lock is a folder, because no two processes can both make it. The name of a file in it says whose
lock it is. To take over the lock of a run that was killed, that file is renamed, which succeeds for
one process alone. A run that was killed before it could sign leaves an empty folder, which is
removed; if it was only slow, it finds the lock signed by another, and withdraws.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from hshap._util.processes import Owner, this_process
from hshap.cli.faults import Code, Refusal
from hshap.cli.runs.journal import JOURNAL, has_results
from hshap.cli.runs.signals import on_hold

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

PREFIX = ".hshap-"
RESULTS = "results"
MARK = "owner+"
TRIES = 20
PAUSE = 0.02


@contextmanager
def locked(lock: Path, out: Path) -> Generator[Path, None, None]:
    """Hold a lock, and give a private folder in it; both are removed at the end.

    Finished results of a run that was killed are in the folder, as its journal tells. Another run
    that holds the lock is a `Refusal`. `lock.parent` must exist; a `FileNotFoundError` says
    that it does not. `out` is the path to name in messages.
    """
    with ExitStack() as stack:
        with on_hold():
            _take(lock, out)
            stack.callback(_remove, lock)
            results = lock / RESULTS
            if not has_results(lock):
                shutil.rmtree(results, ignore_errors=True)  # of a run that was killed
                (lock / JOURNAL).unlink(missing_ok=True)
                results.mkdir(mode=0o700)
        yield results


def _take(lock: Path, out: Path) -> None:
    mine = this_process()
    owner = None
    for number in range(TRIES):
        try:
            lock.mkdir()
        except FileExistsError:
            owner = _owner(lock)
            if owner is None:  # it is being made or removed at this moment
                time.sleep(PAUSE)
                if number >= TRIES // 2:
                    with suppress(OSError):  # it is signed now, or has other files
                        lock.rmdir()
                continue
            if not owner.is_gone():
                break
            try:
                (lock / _mark(owner)).rename(lock / _mark(mine))
            except FileNotFoundError:
                continue  # another run was faster
            return
        else:
            if _sign(lock, mine):
                return
    raise Refusal(Code.OUTPUT, _message(lock, out, owner))


def _sign(lock: Path, owner: Owner) -> bool:
    """Sign a new lock; False if another run has removed it, or signed it, too."""
    mark = lock / _mark(owner)
    try:
        mark.touch()
        if _marks(lock) == [mark.name]:
            return True
        mark.unlink()
    except FileNotFoundError:
        return False
    except OSError:  # such as a full disk
        shutil.rmtree(lock, ignore_errors=True)
        raise
    return False


def _message(lock: Path, out: Path, owner: Owner | None) -> str:
    if owner is None:
        return f"another run is writing to {out}; if there is none, remove the folder {lock}"
    who = f"process {owner.process} on {owner.machine}"
    if owner.is_here:
        return f"another run ({who}) is writing to {out}; wait for it, or pass another --out"
    return (
        f"another run ({who}) is writing to {out}; wait for it, or remove the folder {lock} if "
        "that process has ended"
    )


def _owner(lock: Path) -> Owner | None:
    try:
        names = _marks(lock)
    except OSError:
        return None
    return Owner.read(names[0].removeprefix(MARK)) if names else None


def _marks(lock: Path) -> list[str]:
    return [path.name for path in lock.iterdir() if path.name.startswith(MARK)]


def _mark(owner: Owner) -> str:
    """Return the name of the file that shows an owner."""
    return f"{MARK}{owner}"


def _remove(lock: Path) -> None:
    with on_hold():
        # Its owner last: without one, only an empty lock can be taken over after a sudden end.
        shutil.rmtree(lock / RESULTS, ignore_errors=True)
        with suppress(OSError):
            (lock / JOURNAL).unlink()
        shutil.rmtree(lock, ignore_errors=True)
