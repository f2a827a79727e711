"""Names that methods of `Explanation` had in version 0.1. They warn, and go with version 0.3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hshap._util.renamed import warn_renamed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from hshap._util.types import Heat
    from hshap.explanation.plotting import Plotting


class EarlierNames:
    """Methods under their old names."""

    if TYPE_CHECKING:

        @property
        def plot(self) -> Plotting: ...

        def dropped_at_most(self) -> Heat: ...

    def bounds(self) -> Heat:
        """Old name of `dropped_at_most`."""
        warn_renamed("Explanation.bounds", "Explanation.dropped_at_most")
        return self.dropped_at_most()

    def plot_tree(self, *, title: str | None = None, ax: Axes | None = None) -> Figure:
        """Old name of `plot.tree`."""
        warn_renamed("Explanation.plot_tree", "Explanation.plot.tree")
        return self.plot.tree(title=title, ax=ax)

    def plot_levels(
        self, image: object = None, *, most: int = 6, figure: FigureBase | None = None
    ) -> Figure:
        """Old name of `plot.levels`."""
        warn_renamed("Explanation.plot_levels", "Explanation.plot.levels")
        return self.plot.levels(image, most=most, figure=figure)
