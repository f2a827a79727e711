"""Calls in the shape of other libraries: captum, shap and MONAI, with their axes and their returns.

Each class calls an `Explainer`, and returns its maps as that library returns its own.

>>> import numpy as np
>>> from hshap import drop_ins
>>> images = np.zeros((1, 1, 8, 8), np.float32)
>>> images[0, 0, 2:4, 4:6] = 1.0
>>> explainer = drop_ins.ShapExplainer(lambda batch: batch.max(axis=(2, 3)), data=0.0)
>>> explainer.shap_values(images).shape
(1, 1, 8, 8, 1)
"""

from hshap.explainer.drop_ins.captum_call import Attribution
from hshap.explainer.drop_ins.monai_call import OcclusionSensitivity
from hshap.explainer.drop_ins.shap_call import ShapExplainer

__all__ = ["Attribution", "OcclusionSensitivity", "ShapExplainer"]
