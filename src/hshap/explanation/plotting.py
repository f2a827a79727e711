"""Pictures of an explanation: `plot(image)`, `plot.tree()`, `plot.levels()`, `plot.slices()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap import plot
from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError
from hshap.explanation.display import as_text
from hshap.explanation.slices import axis_of, found_slices, slice_coefficients
from hshap.plot.figures import literal
from hshap.plot.overlay import OPACITY, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure, FigureBase

    from hshap._util.types import Array, Heat, Ints
    from hshap.explanation.explanation import Explanation
    from hshap.partitions.protocol import Region


@dataclass(frozen=True)
class Plotting:
    """Draws an explanation with matplotlib; every method returns the figure.

    >>> from hshap.demo import example
    >>> example().plot.tree().axes[0].get_ylabel()
    'level'
    """

    explanation: Explanation

    def __call__(  # noqa: PLR0913, the map, its look, and the layers around it
        self,
        image: object = None,
        *,
        heat: Array | None = None,
        cmap: str | Colormap | None = None,
        alpha: float = OPACITY,
        outlines: bool = False,
        numbers: bool = False,
        title: str | None = None,
        ax: Axes | None = None,
    ) -> Figure:
        """Return a figure of `attribution()` over the image in grey.

        The title has the class, the model's probability where it is known, and the number of
        findings. The colour bar has the unit: what a pixel adds to the score over the baseline's.

        `heat` is another map to show. `cmap` is a colour map of matplotlib, `alpha` the opacity of
        the strongest pixels. `outlines` draws the lines of all regions that were seen, those of the
        leaves in red. `numbers` writes the cost of the run and its checks below. `ax` are axes to
        draw on. `hshap.plot.compare` shows maps of several methods, `hshap.plot.curves` ablation.
        """
        made = self.explanation
        shown = made.attribution() if heat is None else to_numpy("heat", heat)
        if shown.shape != made.grid:
            message = f"heat has shape {shown.shape}; pass a map of shape {made.grid}"
            raise ArgumentError(message)
        parts = [part for game in made.games for part in game.children]
        return plot.draw(
            image,
            shown,
            visited=self._numbered(parts) if checks.flag("outlines", outlines) else None,
            found=self._numbered(made.leaves) if outlines else None,
            cmap=cmap,
            alpha=alpha,
            unit=Unit.of_shares(shown) if heat is None else "value",
            title=self._title(title),
            note=literal(as_text(made)) if checks.flag("numbers", numbers) else "",
            ax=ax,
        )

    def tree(self, *, title: str | None = None, ax: Axes | None = None) -> Figure:
        """Return a figure of the tree: every region that was seen, and its coefficient."""
        made = self.explanation
        seen = list(made.parts.values())
        return plot.tree(seen, set(made.leaves), title=self._title(title), ax=ax)

    def levels(
        self, image: object = None, *, most: int = 6, figure: FigureBase | None = None
    ) -> Figure:
        """Return a figure of the tree's levels side by side, down to the leaves.

        A level shows the coefficients of all parts that were scored there, and of leaves above it.
        Of more than `most` levels, some are left out evenly.
        """
        count = checks.integer("most", most, minimum=1)
        deepest = max(part.depth for part in self.explanation.parts.values())
        chosen = np.unique(np.linspace(deepest, min(deepest, 1), count).astype(int))
        maps = {f"level {depth}": self._level(depth) for depth in chosen.tolist()}
        return plot.levels(image, maps, title=self._title(None), figure=figure)

    def slices(
        self,
        image: object = None,
        *,
        most: int = 4,
        cmap: str | Colormap | None = None,
        alpha: float = OPACITY,
        figure: FigureBase | None = None,
    ) -> Figure:
        """Return a figure of an exam by `explain_slices`: a bar for each slice, and the strongest.

        `image` is the exam, `(channels, *grid)`. At most `most` slices are shown, with
        `attribution()` over them. `cmap` and `alpha` are as in `plot`.
        """
        count = checks.integer("most", most, minimum=1)
        made = self.explanation
        axis, sides = axis_of(made), made.settings.spacing
        down, across = (1.0, 1.0) if sides is None else [*sides[:axis], *sides[axis + 1 :]][-2:]
        return plot.slices(
            image,
            made.attribution(),
            axis=axis,
            coefficients=slice_coefficients(made),
            numbers=sorted(one.number for one in found_slices(made)[:count]),
            aspect=down / across,
            cmap=cmap,
            alpha=alpha,
            title=self._title(None),
            figure=figure,
        )

    def _title(self, title: str | None) -> str:
        return literal(self.explanation.title) if title is None else title

    def _numbered(self, regions: Sequence[Region]) -> Ints:
        """Return the number of the last region that holds each pixel, from 1 on; 0 if none does."""
        out = np.zeros(self.explanation.grid, dtype=np.intp)
        for number, region in enumerate(regions, start=1):
            out[region.index] = number
        return out

    def _level(self, depth: int) -> Heat:
        out, leaves = np.zeros(self.explanation.grid), set(self.explanation.leaves)
        for part in self.explanation.parts.values():
            if part.depth == depth or (part.depth < depth and part.region in leaves):
                out[part.region.index] = part.coefficient
        return out
