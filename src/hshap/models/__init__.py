"""Models as they come: each function takes an object of a library, and returns a model for hshap.

The result takes the image that the user has, knows the names of its classes, and prepares images
itself. Pixels are hidden in the image of the user, before it is resized and normalised.

>>> import numpy as np
>>> from hshap import Bisection, Constant, Explainer, models
>>> brightest = models.jax(lambda batch: batch.max(axis=(1, 2)), names=["red", "green", "blue"])
>>> photo = np.zeros((8, 12, 3))
>>> photo[2:4, 6:9, 1] = 1.0
>>> Explainer(brightest, Constant(0.0), Bisection(min_size=1)).explain(photo, target="green").score
1.0
"""

from hshap.models.classifiers import prepared, timm, torchvision, transformers
from hshap.models.detectors import Detection, detections, detector
from hshap.models.image_text import image_text
from hshap.models.keras_and_jax import jax, keras
from hshap.models.onnx_sessions import onnx
from hshap.models.pipelines import scikit_learn
from hshap.models.preparation import Preparation
from hshap.models.segmenters import segmenter, segments

__all__ = [
    "Detection",
    "Preparation",
    "detections",
    "detector",
    "image_text",
    "jax",
    "keras",
    "onnx",
    "prepared",
    "scikit_learn",
    "segmenter",
    "segments",
    "timm",
    "torchvision",
    "transformers",
]
