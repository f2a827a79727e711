"""Let torchvision be imported beside a build of torch that its binary was not made for.

Grad-CAM's package imports it for its transforms. Its import fails if its binary cannot be loaded,
because two of the operators in there are then unknown; nothing here ever calls them.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch

SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


@cache
def define_missing() -> None:
    """Define the operators that torchvision asks for, unless it brings its own."""
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None or _loads(Path(spec.origin).parent):
        return
    for name, schema in SCHEMAS.items():
        torch.library.define(f"torchvision::{name}", schema)


def _loads(folder: Path) -> bool:
    binaries = [path for path in folder.glob("_C.*") if path.suffix in {".so", ".pyd", ".dylib"}]
    try:
        for binary in binaries:
            torch.ops.load_library(str(binary))
    except OSError:
        return False
    return bool(binaries)
