"""Evidence: a guide to the pixels inside a leaf, from backward passes of a torch module.

A game tells the share of a leaf, and nothing about the pixels in it. The gradients of the score do:
they say which of these pixels the network looked at. The evidence is the mean of two maps:

- Grad-CAM at the last layer that has places and several channels;
- the mean over all resolutions of the network: at the last layer of each, the positive products of
  activation and gradient (LayerCAM); at the image, the gradient times the difference from the
  baseline.

Both are means over copies of the image, mirrored and moved by half a step of the coarsest layer:
the layers then sample other places, and what only one copy shows fades. A copy counts by the score
that it keeps. On smears, boards and platelets of training and validation, each of the two maps is
poor on one of the sets, their mean is near the better one on all, and four copies are better than
one (`docs/decisions/0022-evidence-guides-the-default.md`). Every map is scaled to a largest value
of 1.
"""

from __future__ import annotations

import sys
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from hshap._util.smoothing import enlarged, gaussian
from hshap.evaluators.outputs import scores_in

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

BORDER = 2
"""Places that padding, or its lack, may add to a layer or take from it."""

GRADIENTS = "gradients"
"""The origin of evidence from backward passes."""

DIFFERENCES = "differences"
"""The origin of evidence that the differences between an image and its template multiply."""

FAILED = "none: the backward pass failed"
"""Begins the origin of evidence that could not be made."""

MOST_COPIES = 4
"""Copies of the image, each with a forward and a backward pass."""

SQUARES = np.square(np.arange(256) / 255.0)
"""The weight of each level."""

LEAST = 0.05
"""Added to every weight, as a share of their mean: a leaf is never empty anywhere."""

Slope: TypeAlias = "Callable[[Heat], Heat]"
"""Takes the outputs `(classes,)` of the model, returns the target's derivative by each of them."""


class Found(NamedTuple):
    """A map `(*grid)` of 0 and more, None without a gradient, and the forward passes made."""

    heat: Heat | None
    passes: int


@runtime_checkable
class GivesEvidence(Protocol):
    """A session or a torch module that can tell where in the image a score comes from."""

    def evidence(self, canvas: Canvas, slope: Slope, copies: int) -> Found:
        """Return a map `(*grid)` of 0 and more, None without a gradient, and the passes made."""
        ...


class Guide(NamedTuple):
    """Evidence in levels, or None, its origin in words, and the forward passes that it took."""

    levels: NDArray[np.uint8] | None
    origin: str
    evaluations: int = 0


class _Layer(NamedTuple):
    """An output with places, and which of its axes are the channels."""

    output: Untyped
    channels: int

    def first(self, values: Untyped) -> Untyped:
        """Return the output, or its gradient, with the channels first."""
        return values.detach().movedim(self.channels, 1)


class _Layers:
    """The last output of each resolution, and the last of all that has several channels."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.last: _Layer | None = None
        self.outputs: dict[tuple[int, ...], _Layer] = {}

    def __call__(self, module: Model, inputs: object, output: Untyped) -> None:
        del module, inputs
        if not getattr(output, "requires_grad", False) or output.ndim != len(self._grid) + 2:
            return
        shape = tuple(output.shape)
        for channels, places in ((1, shape[2:]), (-1, shape[1:-1])):
            if prod(places) > 1 and are_places(places, self._grid):
                self.outputs[places] = layer = _Layer(output, channels)
                self.last = layer if shape[channels] > 1 else self.last
                return


def are_places(sides: Grid, grid: Grid) -> bool:
    """Tell whether axes can be those of an image, seen at steps of a whole number of pixels.

    Axes of tokens, heads or channels have no such step.

    >>> are_places((9, 11), (100, 120)), are_places((7, 768), (224, 224))
    (True, False)
    """
    steps = np.arange(1, max(grid) + 1)
    gaps = [np.abs(side - whole / steps) <= BORDER for side, whole in zip(sides, grid, strict=True)]
    return bool(np.all(gaps, axis=0).any())


def evidence(
    module: Model, forward: Callable[[Tensor], Tensor], canvas: Canvas, slope: Slope, copies: int
) -> Found:
    """Return a map of the pixels that the score of the image rests on.

    `forward` runs the module on inputs. Each of `copies`, 1 to `MOST_COPIES`, takes a forward and a
    backward pass. A copy on which the model fails is left out. Nothing of the module is changed.
    """
    torch = sys.modules["torch"]
    image, hidden = _pair(torch, canvas)
    first = _maps(torch, module, forward, (image, hidden), slope)
    if first is None:
        return Found(None, 1)
    grid = canvas.grid
    found = [(1.0, _mean(first.fine, grid), _mean(first.coarse, grid))]
    step = max((n / m for h in first.heats for n, m in zip(grid, h.shape, strict=True)), default=1)
    for number in range(1, copies):
        copy = _Copy.of(number, len(grid), round(step / 2))
        pair = copy.of_image(image), copy.of_image(hidden)
        try:
            made = _maps(torch, module, forward, pair, slope)
        except Exception:  # noqa: BLE001, S112, modules fail in any way, and the image itself worked
            continue
        # A copy that the model recognises less counts less; one that it misses does not count.
        kept = 1.0 if made is None or first.score <= 0 else made.score / first.score
        if made is not None and kept > 0:
            means = (_mean(maps, grid) for maps in (made.fine, made.coarse))
            fine, coarse = (None if one is None else copy.undone(one) for one in means)
            found.append((min(kept, 1.0), fine, coarse))
    return Found(_joined(found, step), copies)


class _Maps(NamedTuple):
    """The maps of one pass, and the score along the slope of the target."""

    fine: list[Heat]
    coarse: list[Heat]
    score: float

    @property
    def heats(self) -> list[Heat]:
        return [*self.fine, *self.coarse]


class _Copy(NamedTuple):
    """A copy of the image, mirrored and moved: layers then sample other places."""

    mirrored: tuple[int, ...]
    moved: tuple[int, ...]
    by: int

    @classmethod
    def of(cls, number: int, axes: int, by: int) -> _Copy:
        """Return the copy of a number, from 1 to 3: spatial axes count from the end."""
        one, two = bool(number & 1), bool(number & 2)
        if axes == 1:
            return cls((-1,) * one, (-1,) * two, by)
        return cls((-1,) * one + (-2,) * two, (-2,) * one + (-1,) * two, by)

    def of_image(self, image: Untyped) -> Untyped:
        """Return the copy of a tensor; pixels at the border are repeated."""
        copied = image.flip(self.mirrored)
        for axis in self.moved:
            side = copied.shape[axis]
            copied = copied[_places(side, -self.by, axis)]
        return copied

    def undone(self, heat: Heat) -> Heat:
        """Return a map of the copy at the places of the image."""
        for axis in self.moved:
            heat = heat[_places(heat.shape[axis], self.by, axis)]
        return np.flip(heat, self.mirrored)


def _places(side: int, by: int, axis: int) -> tuple[Untyped, ...]:
    """Return the index that moves an axis, counted from the end, by some pixels."""
    places = np.clip(np.arange(side) + by, 0, side - 1)
    return (Ellipsis, places, *(slice(None),) * (-1 - axis))


def _maps(
    torch: Untyped,
    module: Model,
    forward: Callable[[Tensor], Tensor],
    pair: tuple[Untyped, Untyped],
    slope: Slope,
) -> _Maps | None:
    """Return the maps of one forward and backward pass; None without gradients."""
    image, hidden = pair
    layers = _Layers(tuple(image.shape[2:]))
    watched = [
        part
        for part in module.modules()
        if next(part.children(), None) is None
        and not isinstance(part, torch.jit.ScriptModule)  # it takes no hooks
    ]
    handles = [part.register_forward_hook(layers) for part in watched]
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            image = image.clone().requires_grad_()
            # A clone, since a module may write to its input.
            outputs = scores_in(forward(image.clone())).reshape(-1)
            weights = slope(outputs.detach().double().cpu().numpy())
            total = (outputs * torch.as_tensor(weights).to(outputs)).sum()
            found = [*layers.outputs.values(), *([] if layers.last is None else [layers.last])]
            wanted = [image, *(layer.output for layer in found)]
            slopes = torch.autograd.grad(total, wanted, allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
    if slopes[0] is None:
        return None
    score = float(total.detach())
    # At the image, either sign counts: a dark spot on a bright ground is as good as the reverse.
    own = _products(torch, (image.detach() - hidden).abs(), slopes[0].abs())
    # The target may not use all layers: a second head, for example.
    used = [
        (layer.first(layer.output), layer.first(one))
        for layer, one in zip(found, slopes[1:], strict=True)
        if one is not None
    ]
    if not used:
        return _Maps([own], [], score)
    *others, (last, of_last) = used
    weight = of_last.mean(tuple(range(2, of_last.ndim)), keepdim=True)
    fine = [own, *(_products(torch, layer, one) for layer, one in others)]
    return _Maps(fine, [_products(torch, last, weight)], score)


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


def _joined(found: list[tuple[float, Heat | None, Heat | None]], step: float) -> Heat | None:
    """Return the mean of the two means over copies, smoothed; None without a usable map."""
    smoothed: list[Heat] = []
    for maps in zip(*((fine, coarse) for _, fine, coarse in found), strict=True):
        usable = [(one[0], heat) for one, heat in zip(found, maps, strict=True) if heat is not None]
        if usable:
            mean = np.average([h for _, h in usable], axis=0, weights=[w for w, _ in usable])
            mean = gaussian(mean, max(1.0, SMOOTHING * step), range(mean.ndim))
            smoothed.append(mean / mean.max())
    return np.mean(smoothed, axis=0) if smoothed else None


def _mean(maps: list[Heat], grid: Grid) -> Heat | None:
    """Return the mean of maps, each scaled to a largest value of 1; None without a usable one."""
    scaled = [enlarged(heat / heat.max(), grid) for heat in maps if 0 < heat.max() < np.inf]
    return np.mean(scaled, axis=0) if scaled else None


def levels(heat: Heat) -> NDArray[np.uint8]:
    """Return a map of 0 and more in 256 levels, which take little room; `weights` reads them.

    Levels are those of the square root, so that weak evidence is told apart, too.
    """
    out = np.asarray(heat / heat.max())
    np.sqrt(out, out=out)  # in place: fresh memory takes longer than the arithmetic
    out *= 255
    return np.rint(out, out=out).astype(np.uint8)


def weights(levels: NDArray[np.uint8]) -> Heat:
    """Return the weights of pixels, which add up to 1. No pixel goes without.

    >>> weights(np.array([0, 255], dtype=np.uint8)).round(3).tolist()
    [0.024, 0.976]
    """
    return weigh(SQUARES.take(levels))


def weigh(squares: Heat) -> Heat:
    """Return the squares of levels as weights, in place."""
    squares += max(LEAST * (float(squares.sum()) / squares.size), 1e-12)
    squares /= squares.sum()
    return squares


def evidence_of(session: Session, canvas: Canvas, slope: Slope, copies: int) -> Guide:
    """Return the evidence of a session, or the reason why there is none."""
    if prod(canvas.grid) > MOST_PIXELS:
        return Guide(None, f"none: the image has more than {MOST_PIXELS} pixels")
    if not isinstance(session, GivesEvidence):
        return Guide(None, "none: the evaluator gives no gradients")
    if copies < 1:
        return Guide(None, "none: the budget has no room for it")
    try:
        found = session.evidence(canvas, slope, copies)
    except Exception as error:  # noqa: BLE001, a guide is not worth a run: modules fail in any way
        return Guide(None, f"{FAILED} with {type(error).__name__}", 1)
    if found.heat is None:
        return Guide(None, "none: the model gives no gradients", found.passes)
    return Guide(levels(found.heat), GRADIENTS, found.passes)
