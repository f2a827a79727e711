"""Calls in the shape of other libraries: captum, shap and MONAI, with their axes and their returns.

Each class calls an `Explainer`, and returns its maps as that library returns its own.
"""

from hshap.explainer.drop_ins.captum_call import Attribution
from hshap.explainer.drop_ins.monai_call import OcclusionSensitivity
from hshap.explainer.drop_ins.shap_call import ShapExplainer

__all__ = ["Attribution", "OcclusionSensitivity", "ShapExplainer"]
