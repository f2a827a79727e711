"""Claims: one process at a time works on a task, or writes to a folder; signs of life keep them.

A claim is a small file with the name of its process. That of a process that was killed is taken
over. A driver on another machine cannot be looked at, so it writes a small file again and again,
and others watch that file by their own clock: no two clocks are compared, and any disk or object
store will do.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hshap._util.processes import Owner, this_process
from hshap.runs.storing.files import ALIVE, publish

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hshap.runs.storing.files import Files
    from hshap.runs.storing.folder import Folder

TRIES = 50


@dataclass(frozen=True)
class Claim:
    """A claim of this process. `mark` tells its holders apart where several threads may ask."""

    files: Files
    name: str
    mark: str = ""

    @property
    def _text(self) -> bytes:
        return f"{this_process()}{self.mark and ' '}{self.mark}".encode()

    def take(self, is_quiet: Callable[[Owner], bool] | None = None) -> bool:
        """Take the claim; False if a process has it that has not ended for certain.

        A process that cannot be looked at from here, because it is on another machine or from
        before this one was started again, has ended if it `is_quiet`.
        """
        for _ in range(TRIES):
            if self.files.create(self.name, self._text):
                return True
            try:
                held = self.files.read(self.name)
            except FileNotFoundError:
                continue  # it was released at this moment
            if held == self._text:
                return True
            owner = _owner(held)
            is_lost = owner is None or owner.is_gone()
            if owner is not None and not owner.is_here and is_quiet is not None:
                is_lost = is_quiet(owner)
            if not is_lost:
                return False
            self._break(held)
        return False

    def _break(self, held: bytes) -> None:
        """Remove the claim of a process that was killed, unless another one has it by now.

        One process at a time looks and removes, so that nobody removes the claim of the next one.
        """
        guard = f"{self.name}.break"
        if not self.files.create(guard, self._text):
            with suppress(FileNotFoundError):
                owner = _owner(self.files.read(guard))
                if owner is None or owner.is_gone():  # it was killed while it looked
                    self.files.remove(guard)
            return
        try:
            with suppress(FileNotFoundError):
                if self.files.read(self.name) == held:
                    self.files.remove(self.name)
        finally:
            with suppress(FileNotFoundError):
                self.files.remove(guard)

    def holder(self) -> Owner | None:
        """Return the process that has the claim; None if it cannot be told."""
        with suppress(OSError):
            return _owner(self.files.read(self.name))
        return None

    def release(self) -> None:
        """Give the claim back, unless another process has taken it by now."""
        with suppress(OSError):
            if self.files.read(self.name) == self._text:
                self.files.remove(self.name)


def _owner(held: bytes) -> Owner | None:
    return Owner.read(held.decode("utf-8", "replace").partition(" ")[0])


@contextmanager
def shown_alive(files: Files, every: float) -> Generator[None]:
    """Write a new sign of life of this process every so many seconds, until the block ends."""
    ended, name = threading.Event(), sign_of(this_process())

    def show() -> None:
        while not ended.wait(every):
            with suppress(Exception):  # a disk that is full or away also tells the run itself
                publish(files, name, secrets.token_hex(8).encode())

    thread = threading.Thread(target=show, daemon=True, name="hshap-alive")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(Exception):
            files.remove(name)


@dataclass
class Watch:
    """Watches the drivers of other machines, and tells which ones have been quiet for too long."""

    folder: Folder
    seconds: float
    _seen: dict[Owner, tuple[bytes | int, float]] = field(
        default_factory=dict[Owner, "tuple[bytes | int, float]"]
    )

    def is_quiet(self, owner: Owner) -> bool:
        """Tell whether an owner has shown no new sign of life since a look so long ago.

        Of one that has shown none at all yet, new shards of any driver are signs.
        """
        try:
            sign = self.folder.files.read(sign_of(owner))
        except OSError:
            sign = self.folder.count()
        now = time.monotonic()
        before, since = self._seen.get(owner, (None, now))
        if sign != before:
            self._seen[owner], since = (sign, now), now
        return now - since > self.seconds


def sign_of(owner: Owner) -> str:
    """Return the name of the file that shows that a process lives.

    >>> sign_of(Owner("../machine", "boot", "7", "99"))
    'claims/alive+.._machine+boot+7+99'
    """
    return f"claims/{ALIVE}{re.sub(r'[^a-zA-Z0-9_.+-]', '_', str(owner))}"
