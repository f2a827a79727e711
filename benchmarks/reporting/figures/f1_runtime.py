"""F1 against runtime (paper, figure 6), at the paper's threshold and at the validated one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.reporting.figures import data, scatter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COST = ("seconds", "seconds for one image, median")
MEASURES = {"f1": "F1 at 1e-6", "f1_validated": "F1 at validated threshold"}


def draw() -> Figure:
    """Show both: the paper's absolute threshold suits maps that are exactly 0 elsewhere."""
    return scatter.grid(data.panels(), MEASURES, COST)
