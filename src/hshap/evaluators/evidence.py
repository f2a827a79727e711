"""Evidence: a guide to the pixels inside a leaf, from one backward pass of a torch module.

A game tells the share of a leaf, and nothing about the pixels in it. The gradients of the score do:
they say which of these pixels the network looked at. The evidence is the mean of two maps:

- Grad-CAM at the last layer that has places and several channels;
- the mean over all resolutions of the network: at the last layer of each, the positive products of
  activation and gradient (LayerCAM); at the image, the gradient times the difference from the
  baseline.

On smears and boards of training and validation, each of the two is poor on one of the sets, and
their mean is near the better one on both. Every map is scaled to a largest value of 1.
"""

from __future__ import annotations

import sys
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from hshap._util.smoothing import gaussian

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hshap._util.types import Grid, Heat, Model, Tensor, Untyped
    from hshap.evaluators.canvas import Canvas
    from hshap.evaluators.protocol import Session

MOST_PIXELS = 2**21
"""Larger images get no evidence: a backward pass holds the activations of every layer."""

SMOOTHING = 0.25
"""Standard deviation of the smoothing, in steps of the coarsest layer, and at least a pixel."""

LEAST = 0.05
"""Added to every weight, as a share of their mean: a leaf is never empty anywhere."""

Slope: TypeAlias = "Callable[[Heat], Heat]"
"""Takes the outputs `(classes,)` of the model, returns the target's derivative by each of them."""


@runtime_checkable
class GivesEvidence(Protocol):
    """A session that can tell where in the image a score comes from. Sessions need not."""

    def evidence(self, canvas: Canvas, slope: Slope) -> Heat | None:
        """Return a map `(*grid)` of 0 and more, or None where there is no gradient."""
        ...


class Guide(NamedTuple):
    """Evidence in levels, or None, and its origin in words, which the settings of a run tell."""

    levels: NDArray[np.uint8] | None
    origin: str


class _Layers:
    """The last output of each resolution, and the last of all that has several channels."""

    def __init__(self, axes: int) -> None:
        self._axes = axes
        self.last: Untyped = None
        self.outputs: dict[tuple[int, ...], Untyped] = {}

    def __call__(self, module: Model, inputs: object, output: Untyped) -> None:
        del module, inputs
        if not getattr(output, "requires_grad", False) or output.ndim != self._axes:
            return
        places = tuple(output.shape[2:])
        if prod(places) > 1:
            self.outputs[places] = output
            self.last = output if output.shape[1] > 1 else self.last


def evidence(
    module: Model, forward: Callable[[Tensor], Tensor], canvas: Canvas, slope: Slope
) -> Heat | None:
    """Return a map of the pixels that the score of the image rests on; None without gradients.

    `forward` runs the module on inputs. Nothing of the module is changed.
    """
    torch = sys.modules["torch"]
    image, hidden = _pair(torch, canvas)
    layers = _Layers(image.ndim)
    watched = [part for part in module.modules() if next(part.children(), None) is None]
    handles = [part.register_forward_hook(layers) for part in watched]
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            image = image.clone().requires_grad_()
            outputs = forward(image).reshape(-1)
            weights = slope(outputs.detach().double().cpu().numpy())
            total = (outputs * torch.as_tensor(weights).to(outputs)).sum()
            found = [*layers.outputs.values(), *([] if layers.last is None else [layers.last])]
            slopes = torch.autograd.grad(total, [image, *found], allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
    if slopes[0] is None:
        return None
    # At the image, either sign counts: a dark spot on a bright ground is as good as the reverse.
    own = _products(torch, (image.detach() - hidden).abs(), slopes[0].abs())
    pairs = [(layer.detach(), one) for layer, one in zip(found, slopes[1:], strict=True)]
    if layers.last is None or any(one is None for _, one in pairs):
        return _joined([own], [], canvas.grid)
    *others, (last, of_last) = pairs
    weight = of_last.mean(tuple(range(2, of_last.ndim)), keepdim=True)
    fine = [own, *(_products(torch, layer, one) for layer, one in others)]
    return _joined(fine, [_products(torch, last, weight)], canvas.grid)


def _pair(torch: Untyped, canvas: Canvas) -> tuple[Untyped, Untyped]:
    """Return the image and the mean of its stand-ins as inputs, copies of their own."""
    arrays = (canvas.image, *(canvas.stand_ins((), draw) for draw in range(canvas.draws)))
    image, *behind = (
        torch.as_tensor(np.array(one) if isinstance(one, np.ndarray) else one) for one in arrays
    )
    return image[None].clone(), torch.stack(behind).mean(0, keepdim=True)


def _products(torch: Untyped, values: Untyped, slope: Untyped) -> Heat:
    """Return the products of values and slopes, summed over the channels where they are positive.

    A slope for each channel, as Grad-CAM has it, weighs the channels; only their sum is cut at 0.
    """
    products = values * slope
    each = torch.relu(products).sum(1) if slope.shape == values.shape else products.sum(1)
    return torch.relu(each)[0].double().cpu().numpy()


def _joined(fine: list[Heat], coarse: list[Heat], grid: Grid) -> Heat | None:
    """Return the mean of the means of both lists, at the grid of the image."""
    means = [_mean(maps, grid) for maps in (fine, coarse)]
    found = [heat for heat in means if heat is not None]
    if not found:
        return None
    coarsest = max(
        n / m for heat in (*fine, *coarse) for n, m in zip(grid, heat.shape, strict=True)
    )
    smooth = [gaussian(heat, max(1.0, SMOOTHING * coarsest), range(len(grid))) for heat in found]
    return np.mean([heat / heat.max() for heat in smooth], axis=0)


def _mean(maps: list[Heat], grid: Grid) -> Heat | None:
    """Return the mean of maps, each scaled to a largest value of 1; None without a usable one."""
    scaled = [_enlarged(heat / heat.max(), grid) for heat in maps if 0 < heat.max() < np.inf]
    return np.mean(scaled, axis=0) if scaled else None


def levels(heat: Heat) -> NDArray[np.uint8]:
    """Return a map of 0 and more in 256 levels, which take little room; `weights` reads them.

    Levels are those of the square root, so that weak evidence is told apart, too.
    """
    return np.rint(np.sqrt(heat / heat.max()) * 255).astype(np.uint8)


def weights(levels: NDArray[np.uint8]) -> Heat:
    """Return the weights of pixels, which add up to 1. No pixel goes without.

    >>> weights(np.array([0, 255], dtype=np.uint8)).round(3).tolist()
    [0.024, 0.976]
    """
    found = (levels / 255.0) ** 2
    found = found + max(LEAST * float(found.mean()), 1e-12)
    return found / found.sum()


def evidence_of(session: Session, canvas: Canvas, slope: Slope) -> Guide:
    """Return the evidence of a session, or the reason why there is none."""
    if prod(canvas.grid) > MOST_PIXELS:
        return Guide(None, f"none: the image has more than {MOST_PIXELS} pixels")
    if not isinstance(session, GivesEvidence):
        return Guide(None, "none: the evaluator gives no gradients")
    try:
        found = session.evidence(canvas, slope)
    except Exception as error:  # noqa: BLE001, a guide is not worth a run: modules fail in any way
        return Guide(None, f"none: the backward pass failed with {type(error).__name__}")
    if found is None:
        return Guide(None, "none: the model gives no gradients")
    return Guide(levels(found), "gradients")


def _enlarged(heat: Heat, grid: Grid) -> Heat:
    """Return a map interpolated linearly to another grid, one axis after another."""
    for axis, (side, wanted) in enumerate(zip(heat.shape, grid, strict=True)):
        centres = (np.arange(wanted) + 0.5) * side / wanted - 0.5
        places = np.clip(centres, 0, side - 1)
        below = np.minimum(places.astype(np.intp), max(side - 2, 0))
        above = np.minimum(below + 1, side - 1)
        share = (places - below).reshape(-1, *(1,) * (heat.ndim - axis - 1))
        heat = heat.take(below, axis) * (1 - share) + heat.take(above, axis) * share
    return heat
