"""Models as they come: each function takes an object of a library, and returns a model for hshap.

The result takes the image that the user has, knows the names of its classes, and prepares images
itself. Pixels are hidden in the image of the user, before it is resized and normalised.

>>> import numpy as np
>>> from hshap import Bisection, Constant, Explainer, models
>>> colours = ["red", "green", "blue"]
>>> brightest = models.function(lambda batch: batch.max(axis=(1, 2)), names=colours)
>>> photo = np.zeros((8, 12, 3))
>>> photo[2:4, 6:9, 1] = 1.0
>>> Explainer(brightest, Constant(0.0), Bisection(min_size=1)).explain(photo, target="green").score
1.0
"""

from hshap.models.boxes_and_regions import (
    Detection,
    detections,
    detector,
    segmenter,
    segments,
)
from hshap.models.classifiers import (
    image_text,
    prepared,
    timm,
    torchvision,
    transformers,
)
from hshap.models.functions import function, keras
from hshap.models.onnx_sessions import onnx
from hshap.models.preparation import Preparation

__all__ = [
    "Detection",
    "Preparation",
    "detections",
    "detector",
    "function",
    "image_text",
    "keras",
    "onnx",
    "prepared",
    "segmenter",
    "segments",
    "timm",
    "torchvision",
    "transformers",
]
