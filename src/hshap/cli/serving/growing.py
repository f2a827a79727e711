"""A folder of images that grows: new ones are explained in the background, by one thread.

Every round is a run of `hshap explain`, so the results and the page are those
of that command, and it can go on with them.
"""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hshap._util.visible import as_text
from hshap.cli.faults import lines_of
from hshap.cli.output import say
from hshap.cli.runs.signals import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hshap.cli.runs.run import Watch
    from hshap.runs.driver import RunProgress

SECONDS = 1.0
"""Between two looks at the folder. A file that changed in between is still being written."""


Round: TypeAlias = "Callable[[Watch], Outcome]"
"""Explains all images that have no results yet; its argument may raise `Stop`."""


@dataclass(frozen=True)
class State:
    """The state of a folder: images with results, those that wait, and those that failed.

    `explaining` is True during a round, and `evaluations` counts those of that round. `problem`
    is the reason why a whole round failed, and empty if none did.
    """

    done: int = 0
    waiting: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    explaining: bool = False
    evaluations: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Outcome:
    """A round: the images that have results now, and those that cannot be used, with reasons."""

    done: int
    failed: Mapping[Path, str]


class Growing:
    """Watches for images, and explains new ones in a thread of its own until it is stopped."""

    def __init__(self, images: Images, explain: Round, seconds: float = SECONDS) -> None:
        self._images, self._explain, self._seconds = images, explain, seconds
        self._state, self._lock = State(), threading.Lock()
        self._known: Mapping[Path, object] = {}
        self._stopped, self._woken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hshap-serve", daemon=True)

    @property
    def state(self) -> State:
        """The state at this moment."""
        with self._lock:
            return self._state

    def count_waiting(self) -> int:
        """Count the images that wait at this moment, also those that came during a round."""
        return len(self._new(self._images.look()))

    def start(self) -> None:
        """Start to watch."""
        self._thread.start()

    def wake(self) -> None:
        """Look at the folder now: an image was dropped."""
        self._woken.set()

    def stop(self) -> None:
        """Stop, and wait until the results of finished images are written."""
        self._stopped.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        before = self._images.look()
        while not self._stopped.is_set():
            now = self._images.look()
            new = self._new(now)
            self._set(waiting=_names(new))
            # Without any image there is nothing to show, and the page stays.
            is_less = bool(now) and any(path not in now for path in self._known)
            # A file that changed since the last look is still being written: it waits.
            if (new or is_less) and all(before.get(path) == now[path] for path in new):
                self._set(explaining=True, evaluations=0)
                self._round()
                self._known = now
                self._set(explaining=False, waiting=())
            else:
                self._woken.wait(self._seconds)
                self._woken.clear()
            before = now

    def _new(self, now: Mapping[Path, object]) -> list[Path]:
        return [path for path, stamp in now.items() if self._known.get(path) != stamp]

    def _round(self) -> None:
        try:
            found = self._explain(self._progress)
        except Stop:
            return
        except Exception as error:  # noqa: BLE001, the server must go on and tell it
            lines = lines_of(error)
            for line in lines:
                say(line)
            self._set(problem="; ".join(lines))
            return
        failed = {as_text(path.name): line for path, line in found.failed.items()}
        self._set(done=found.done, failed=failed, problem="")

    def _progress(self, progress: RunProgress) -> None:
        if self._stopped.is_set():
            raise Stop(signal.SIGTERM)
        self._set(evaluations=progress.evaluations)

    def _set(self, **changes: object) -> None:
        with self._lock:
            self._state = replace(self._state, **changes)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Images:
    """The images of a folder."""

    folder: Path
    suffixes: Sequence[str]

    def look(self) -> dict[Path, tuple[int, int]]:
        """Return each image with its size and the time of its last change."""
        found: dict[Path, tuple[int, int]] = {}
        try:
            inside = sorted(self.folder.iterdir())
        except OSError:
            return found
        for path in inside:
            name = path.name.lower()
            if name.endswith(tuple(self.suffixes)) and not name.startswith("."):
                try:
                    stamp = path.stat()
                except OSError:
                    continue
                found[path] = (stamp.st_size, stamp.st_mtime_ns)
        return found


def _names(paths: Sequence[Path]) -> tuple[str, ...]:
    return tuple(as_text(path.name) for path in paths)
