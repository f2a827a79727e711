"""Pictures of maps, trees and curves: functions from arrays to matplotlib figures.

pyplot keeps no reference to a figure: show it, save it with `savefig`, or drop it.

>>> from hshap import demo, plot
>>> found = demo.example()
>>> maps = {"the paper's": found.saliency(), "coefficients": found.coefficients()}
>>> [axes.get_title() for axes in plot.compare(maps).axes[:2]]
["the paper's", 'coefficients']
"""

from hshap.plot.charts import curves, tree
from hshap.plot.overlay import draw
from hshap.plot.panels import compare, levels, sheet, slices

__all__ = ["compare", "curves", "draw", "levels", "sheet", "slices", "tree"]
