"""Pictures of one pixel in place of figures, for tests that look at files and not at pictures."""

from __future__ import annotations

import numpy as np


def blank(patch):
    """Let matplotlib save one pixel: drawing takes most of the time of a short command."""
    from matplotlib import image

    pixel = np.zeros((1, 1), np.uint8)
    patch.setattr(
        "matplotlib.figure.Figure.savefig",
        lambda figure, path, **options: image.imsave(
            path, pixel, format="png", metadata=options.get("metadata")
        ),
    )
