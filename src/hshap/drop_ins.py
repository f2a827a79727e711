"""Calls in the shape of other libraries: captum, shap and MONAI, with their axes and their returns.

Each class calls an `Explainer`, and returns its maps as that library returns its own.

>>> import hshap, numpy as np
>>> images = np.zeros((1, 1, 8, 8), np.float32)
>>> images[0, 0, 2:4, 4:6] = 1.0
>>> explainer = hshap.drop_ins.ShapExplainer(lambda batch: batch.max(axis=(2, 3)), data=0.0)
>>> explainer.shap_values(images).shape
(1, 1, 8, 8, 1)
"""

from hshap.explainer.drop_ins import Attribution, OcclusionSensitivity, ShapExplainer

__all__ = ["Attribution", "OcclusionSensitivity", "ShapExplainer"]
