"""Pictures of maps, trees and curves. They take arrays, and return matplotlib figures.

Nothing is kept by pyplot: a figure is yours to show, to save with `savefig`, or to forget.
"""

from hshap.plot.charts import curves, tree
from hshap.plot.overlay import draw
from hshap.plot.panels import compare, levels

__all__ = ["compare", "curves", "draw", "levels", "tree"]
