"""Operators of ONNX, each as layers and functions of torch. Needs torch.

Those of convolutional classifiers are here, one module for each kind. A converter returns the node
of its result, and raises `UnsupportedError` where options have no counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hshap.evaluators.onnx_import import pointwise, shapes, sliding, weighted

if TYPE_CHECKING:
    from hshap.evaluators.onnx_import.calls import Converter

CONVERTERS: dict[str, Converter] = {
    **sliding.CONVERTERS,
    **weighted.CONVERTERS,
    **pointwise.CONVERTERS,
    **shapes.CONVERTERS,
}
