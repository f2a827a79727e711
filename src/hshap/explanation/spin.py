"""Cycle spinning: several explanations of one image over different partitions, averaged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap.evaluators.protocol import NOT_TOLD, Provenance
from hshap.explanation.display import map_as_html, subject
from hshap.plot.figures import literal
from hshap.plot.overlay import OPACITY, Unit, draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    from hshap.explanation.explanation import Explanation


@dataclass(frozen=True, eq=False, repr=False)
class Spin:
    """The explanations of one image over several partitions, and their mean maps.

    `evaluations` counts each model input once, however many members use it. `provenance` says
    how the scores were made, and counts each input once, too.

    >>> import hshap
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=2),
    ... )
    >>> spin = hshap.cycle_spin(explainer, np.eye(8)[None], target=0, shifts=[0, 1])
    >>> len(spin.members), float(spin.agreement().max())
    (2, 1.0)
    """

    members: tuple[Explanation, ...]
    evaluations: int
    provenance: Provenance = NOT_TOLD

    @property
    def title(self) -> str:
        """The explained class, and the number of members, as the title of a picture."""
        return f"{subject(self.members[0])}: mean of {len(self.members)} explanations"

    def saliency(self) -> NDArray[np.float64]:
        """Return the mean of the members' maps."""
        return self._mean(lambda member: member.saliency())

    def attribution(self, *, smooth: float | None = None) -> NDArray[np.float64]:
        """Return the mean of the members' maps; `smooth` is that of an `Explanation`."""
        return self._mean(lambda member: member.attribution(smooth=smooth))

    def agreement(self) -> NDArray[np.float64]:
        """Return the share of members that found each pixel relevant."""
        return self._mean(lambda member: (member.saliency() > 0).astype(np.float64))

    def stability(self) -> NDArray[np.float64]:
        """Return the standard deviation of the members' attributions: 0 where all agree."""
        mean = self.attribution()
        return np.sqrt(self._mean(lambda member: (member.attribution() - mean) ** 2))

    def plot(
        self,
        image: ArrayLike | None = None,
        *,
        cmap: str | Colormap | None = None,
        alpha: float = OPACITY,
        ax: Axes | None = None,
    ) -> Figure:
        """Return a matplotlib figure of the mean attribution over the image in grey."""
        heat = self.attribution()
        unit, title = Unit.of_shares(heat), literal(self.title)
        return draw(image, heat, cmap=cmap, alpha=alpha, unit=unit, title=title, ax=ax)

    def __repr__(self) -> str:
        made = f"; {self.provenance.sentence}" if self.provenance.is_told else ""
        kinds = Counter(concern.kind for member in self.members for concern in member.concerns)
        told = ", ".join(f"{kind} in {count}" for kind, count in kinds.items())
        concerns = f"; concerns: {told}, see members" if told else ""
        count = len(self.members)
        return f"<Spin of {count} explanations, {self.evaluations} evaluations{made}{concerns}>"

    def _repr_html_(self) -> str:
        return map_as_html(self.attribution(), repr(self)[1:-1])

    def _mean(self, read: Callable[[Explanation], NDArray[np.float64]]) -> NDArray[np.float64]:
        # One map at a time, in the order of the members: no stack of maps in memory.
        total = np.zeros(self.members[0].grid)
        for member in self.members:
            total += read(member)
        return total / len(self.members)
