"""Models as they come: each function takes an object of a library, and returns a model for hshap.

The result takes the image that the user has, knows the names of its classes, and prepares images by
itself. Pixels are hidden in the image of the user, before it is resized and normalised.
"""

from hshap.evaluators.models.classifiers import prepared, timm, torchvision, transformers
from hshap.evaluators.models.detectors import Detection, detections, detector
from hshap.evaluators.models.functions import jax, keras, onnx, scikit_learn
from hshap.evaluators.models.image_text import image_text
from hshap.evaluators.models.preparation import Preparation
from hshap.evaluators.models.segmenters import segmenter, segments

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
