"""Quality against evaluations of the model, which unlike seconds do not depend on the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.reporting.figures import data, scatter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = {"average_precision": "AUPRC", "f1_validated": "F1 at validated threshold"}
COST = ("evaluations", "evaluations, median and quartiles")
TITLE = "crosses: each evaluation includes a backward pass; grey levels: controls, which have none"


def draw() -> Figure:
    """Join the settings of a family; controls, which ask no model, are levels."""
    return scatter.grid(data.panels(), MEASURES, COST, joined=True, title=TITLE)
