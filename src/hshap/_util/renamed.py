"""Old names that still work, with a warning, until the next minor version."""

from __future__ import annotations

import warnings

UNTIL = "0.3"


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that a name is old; `stacklevel` 3 points at the caller of whoever asks.

    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_renamed("Found", "SearchResult")
    >>> str(caught[0].message)
    'Found is now SearchResult; the old name goes with version 0.3'
    """
    message = f"{old} is now {new}; the old name goes with version {UNTIL}"
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)
