"""Limits on the files of others: sizes are checked before a decoder takes memory for them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hshap.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_BYTES = 4 * 2**30
"""Bytes of a decoded image that is read as a whole: larger ones are read region by region."""


def refuse_large(name: str, shape: Sequence[int], itemsize: int) -> None:
    """Refuse an image whose announced size would not fit in memory.

    >>> refuse_large("scan.nii", (2000, 2000, 2000), 4)
    Traceback (most recent call last):
    hshap.errors.FormatError: scan.nii announces 2000 x 2000 x 2000 values, 32,000,000,000 bytes,
    more than 4,294,967,296; cut it, or read a tiled file by open_image
    """
    size = prod(int(side) for side in shape) * itemsize
    if size > MOST_BYTES or any(side < 0 for side in shape):
        sides = " x ".join(map(str, shape))
        message = (
            f"{name} announces {sides} values, {size:,} bytes, more than {MOST_BYTES:,}; cut it, "
            "or read a tiled file by open_image"
        )
        raise FormatError(message)
