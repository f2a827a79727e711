"""Maps of the trained network beside those of a fully random one (paper, appendix E)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.reporting.figures import data, demos, maps, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMMAND = "sanity` and then `benchmarks/run figures randomisation --compute"
STEPS = ("trained", "random")
GROUP = "6 crosses"  # of the image; by its scores the settings are chosen


def draw() -> Figure:
    """Put the two maps of a method one above the other, for the best setting of each kind."""
    stored = maps.read("sanity", COMMAND)
    image = stored.pop("image")[""] / 255
    trained = demos.best(stored["trained"], data.group_entries("synthetic", GROUP))
    methods = list(trained)
    blocks = -(-(len(methods) + 1) // demos.COLUMNS)
    figure = style.canvas(style.WIDTH, blocks * 2 * demos.height(image.shape, titled=0.4) + 0.3)
    rows = style.panels(figure, 2 * blocks, demos.COLUMNS)
    for axes in (axes for row in rows for axes in row):
        axes.set_axis_off()
    _first(rows[0][0], image)
    for place, method in enumerate(methods, start=1):
        block, column = divmod(place, demos.COLUMNS)
        for below, step in enumerate(STEPS):
            axes = rows[2 * block + below][column]
            axes.set_axis_on()
            style.heat(axes, stored[step][method])
        demos.title(rows[2 * block][column], method)
    figure.suptitle(
        "Above: map of the trained network. Below: map with all weights random.", fontsize=10
    )
    return figure


def _first(axes: Any, image: Any) -> None:
    axes.set_axis_on()
    style.picture(axes, image)
    axes.set_title("image", fontsize=style.SMALL, pad=3)
