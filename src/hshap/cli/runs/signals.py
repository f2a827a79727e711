"""Signals that end a command: an interrupt, a request to terminate, a closed terminal.

Each becomes a `Stop`, so that a command can keep its finished results and remove the others.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "the terminal was closed"}
AT_ONCE = 0.5
"""Seconds in which a second signal counts as the first: shells and wrappers often send two."""


class Stop(KeyboardInterrupt):
    """A signal arrived. `str(stop)` is the line to tell, `stop.code` the exit code.

    >>> stop = Stop(signal.SIGINT)
    >>> str(stop), stop.code
    ('interrupted; nothing is written', 130)
    >>> str(stop.told("2 of 3 images are kept"))
    'interrupted; 2 of 3 images are kept'
    """

    def __init__(self, number: int, outcome: str = "nothing is written") -> None:
        self.number, self.code = number, 128 + number
        super().__init__(f"{WORDS[signal.Signals(number).name]}; {outcome}")

    def told(self, outcome: str) -> Stop:
        """Return the same signal with another outcome to tell."""
        return Stop(self.number, outcome)


class _Handler:
    """Raises `Stop`; while it is on hold, the signal waits."""

    def __init__(self) -> None:
        self.held = 0
        self._waiting: int | None = None
        self._last: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del frame
        now = monotonic()
        if self._last is not None and now - self._last < AT_ONCE:
            return
        self._last = now
        if self.held:
            self._waiting = number
            return
        raise Stop(number)

    def release(self) -> None:
        """Raise the `Stop` of a signal that came on hold."""
        if self._waiting is not None and not self.held:
            number, self._waiting = self._waiting, None
            raise Stop(number)


@contextmanager
def stoppable() -> Generator[None, None, None]:
    """Let signals raise `Stop` inside; the handlers from before return at the end.

    Handlers of others stay, and so do signals that are ignored, as `nohup` asks for. Outside of
    the main thread nothing happens, since Python delivers signals only there.
    """
    before: dict[int, object] = {}
    if threading.current_thread() is threading.main_thread():
        handler = _Handler()
        for number in _numbers():
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)  # pyright: ignore[reportArgumentType]


@contextmanager
def on_hold() -> Generator[None, None, None]:
    """Let signals wait while files are moved or removed; `Stop` is raised after it."""
    handlers = {signal.getsignal(number) for number in _numbers()}
    mine = [one for one in handlers if isinstance(one, _Handler)]
    if threading.current_thread() is not threading.main_thread():
        mine = []  # no signal can arrive here
    for handler in mine:
        handler.held += 1
    try:
        yield
    finally:
        for handler in mine:
            handler.held -= 1
    for handler in mine:
        handler.release()


def _numbers() -> list[int]:
    """Return the numbers of the signals that this system has."""
    return [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
