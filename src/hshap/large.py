"""Images that need not fit in memory: explained tile by tile, and then inside the tiles.

>>> import hshap
>>> hshap.large.Tiles(side=256).side
256
"""

from hshap.evaluators.tiles import Tiles
from hshap.explainer.tiling import explain_tiles
from hshap.explanation.tiled import TiledExplanation
from hshap.formats.large_images import LargeImage
from hshap.formats.reading import open_image

__all__ = [
    "LargeImage",
    "TiledExplanation",
    "Tiles",
    "explain_tiles",
    "open_image",
]
