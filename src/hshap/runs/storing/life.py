"""Signs of life: a driver writes a small file again and again, so that others leave its claims.

Others watch the file change by their own clock. No two clocks are compared, and any disk or object
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
    from collections.abc import Generator

    from hshap.runs.storing.files import Files
    from hshap.runs.storing.folder import Folder


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
