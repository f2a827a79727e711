"""Memory that is kept: freed tensors stay with the process, and the next ones reuse them.

The C library of most Linux systems (glibc) returns every large block to the system when it is
freed. The next tensor then takes new pages, which the system clears one by one. A forward pass
through a network with large activations may spend more time on this than on arithmetic.
"""

from __future__ import annotations

import ctypes
import os
from threading import Lock
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

# The parameters of glibc's mallopt.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
NEVER = -1
LARGEST = 2**31 - 1
"""The largest value that mallopt takes."""
LARGEST_BEFORE_2_35 = 2**25
"""The largest threshold of older versions of glibc."""
USUAL_TRIM = 2**26
"""Twice the threshold, as in a process that has freed large blocks."""

_lock = Lock()
_holders: set[object] = set()  # glibc cannot be asked for its settings, so uses are counted here


class keep_memory:  # noqa: N801, used like a function, as torch.set_grad_enabled is
    """Keep freed memory for the next tensors, from now on or inside `with`.

    For use on Linux with glibc. The gain depends on the network: one with 16 channels at 600 x 800
    pixels took 0.17 s of CPU time for an image instead of 0.57, on one thread. `hshap cost`
    measures yours. The process then holds up to twice its peak memory, until `with` ends.

    The setting concerns the whole process, so the library changes it only on request; the commands
    `explain`, `run`, `serve` and `verify` do. `active` says whether the system takes the setting:
    it is False on other systems, and where the environment has variables `MALLOC_...` of your own.

    >>> import hshap
    >>> with hshap.keep_memory():
    ...     hshap.shapley([0.0, 1.0])
    array([1.])
    """

    def __init__(self) -> None:
        option, self._token = _mallopt(), object()
        with _lock:
            self.active = option is not None and _keep(option)
            if self.active:
                _holders.add(self._token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Return freed memory to the system, unless another `keep_memory` is in use."""
        option = _mallopt()
        with _lock:
            was_active, self.active = self.active, False
            _holders.discard(self._token)
            if was_active and option is not None and not _holders:
                _release(option)


def _mallopt() -> Callable[[int, int], int] | None:
    """Return the function that sets glibc's allocator; None elsewhere, or if the user set it."""
    if any(name.startswith("MALLOC_") for name in os.environ):
        return None
    try:
        process = ctypes.CDLL(None)
    except (OSError, TypeError):  # not on Windows
        return None
    is_glibc = hasattr(process, "gnu_get_libc_version")
    return process.mallopt if is_glibc else None


def _keep(option: Callable[[int, int], int]) -> bool:
    sizes = (LARGEST, LARGEST_BEFORE_2_35)
    return any(option(MMAP_THRESHOLD, size) for size in sizes) and bool(
        option(TRIM_THRESHOLD, NEVER)
    )


def _release(option: Callable[[int, int], int]) -> None:
    option(MMAP_THRESHOLD, LARGEST_BEFORE_2_35)
    option(TRIM_THRESHOLD, USUAL_TRIM)
    ctypes.CDLL(None).malloc_trim(0)
