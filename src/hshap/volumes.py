"""Exams: which slices of a volume matter to a model of slices, and where in each of them."""

from hshap.explainer.slicing import explain_slices
from hshap.explanation.slices import FoundSlice, found_slices, slice_coefficients

__all__ = [
    "FoundSlice",
    "explain_slices",
    "found_slices",
    "slice_coefficients",
]
