"""Images of files: arrays with axes, spacing and a place in the patient or in the original image.

>>> import hshap, numpy as np
>>> hshap.images.Scan(np.zeros((1, 4, 6)), axes="CYX", spacing=(0.5, 0.5)).spacing
(0.5, 0.5)
"""

from hshap.explanation.placement import Placement
from hshap.formats.reading import read_image
from hshap.formats.scan import Scan

__all__ = [
    "Placement",
    "Scan",
    "read_image",
]
