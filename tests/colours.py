"""Colours of pictures, for tests that a picture is not blank."""

from __future__ import annotations

import numpy as np


def count_colours(pixels):
    """Return how many colours an array of bytes `(..., red, green, blue)` has.

    Each colour is one number, which sorts many times faster than rows of three.
    """
    return len(np.unique(pixels.reshape(-1, 3).astype(np.uint32) @ np.uint32([65536, 256, 1])))
