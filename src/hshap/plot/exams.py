"""An exam on one figure: the coefficient of each slice, and the strongest slices below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.plot.fonts import drawable
from hshap.plot.overlay import OPACITY, Look, as_shown, draw_picture
from hshap.plot.surface import on_figure, root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from hshap._util.types import Array, Heat


def slices(  # noqa: PLR0913, the facts of an exam and the surface
    image: object,
    heat: Array,
    *,
    axis: int,
    coefficients: Heat,
    numbers: Sequence[int],
    aspect: float = 1.0,
    cmap: object = None,
    alpha: object = OPACITY,
    title: str = "",
    figure: object = None,
) -> Figure:
    """Return a figure of an exam: a bar for each slice, and the map over some slices.

    `heat` is the map of the whole exam, `numbers` are the slices to show. `aspect` is the height of
    a pixel over its width. `cmap` and `alpha` are as in `explanation.plot`.

    >>> heat = np.zeros((3, 4, 4))
    >>> made = slices(None, heat, axis=0, coefficients=np.array([0, 1.0, 0]), numbers=[1])
    >>> [axes.get_title() for axes in made.axes]
    ['', 'slice 1']
    """
    pixels = as_shown(image, heat.shape)
    count = max(len(numbers), 1)
    whole = on_figure(figure, (max(6.0, 2.6 * count), 4.6), "explanation.plot.slices")
    grid = whole.add_gridspec(2, count, height_ratios=[1, 2.4])
    bars = whole.add_subplot(grid[0, :])
    bars.bar(np.arange(len(coefficients)), coefficients, width=1.0, color="tab:red")
    bars.axhline(0.0, color="0.4", linewidth=0.6)
    bars.set_xlim(-0.5, len(coefficients) - 0.5)
    bars.set_xlabel("slice", fontsize="small")
    bars.set_ylabel("coefficient", fontsize="small")
    look = Look.of([heat], cmap, alpha)
    for place, number in enumerate(numbers):
        axes = whole.add_subplot(grid[1, place])
        shown = None if pixels is None else np.moveaxis(pixels, axis + 1, 0)[number]
        draw_picture(axes, shown, np.moveaxis(heat, axis, 0)[number], look)
        axes.set_aspect(aspect)
        axes.set_title(f"slice {number}", fontsize="small")
    text, fonts = drawable(title)
    whole.suptitle(text, fontsize="small", fontfamily=fonts, wrap=True)
    return root(whole)
