"""`Incremental` against full forward passes: rectangles, boxes in boxes, one colour, explanations.

Every check leaves the image, the anchor, the kept activations and the module as they were.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch

from hshap import (
    Batched,
    Bisection,
    Blur,
    Constant,
    Dyadic,
    Explainer,
    Fixed,
    Incremental,
    References,
    Shifted,
    Superpixels,
)
from hshap.evaluators.incremental.network import Network
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.steps import OverwrittenError
from hshap.protocols import CostPolicy, SearchResult

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
"""Largest difference from the full pass, relative to its largest output."""

ALWAYS = CostPolicy.always()


def every_game(root, draws=1):
    """A search that plays the games of all regions, level by level."""
    level = [root]
    while level:
        games = yield level
        level = [part for game in games for part in game.children if part.split()]
    return SearchResult(())


def layers_on_patches(module, shape, seed, *, cases=4):
    """Compare rectangles and boxes of random images; return the kinds of the layers on patches.

    None if the network does not run on patches at all.
    """
    rng, numbers = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    dtype = next((t.dtype for t in module.state_dict().values() if t.is_floating_point()), None)
    before, kinds = {n: t.clone() for n, t in module.state_dict().items()}, set()
    last = len(shape) == 3 and bool(rng.random() < 0.3)
    network = Network(module, shape)
    if network.reason:
        return None

    def drawn(rows, size):
        return laid_out(torch.rand(rows, shape[0], *size, generator=numbers, dtype=dtype), last)

    def full(inputs):
        return torch.cat([scores(module(laid_out(row, last))) for row in inputs.split(1)])

    with torch.inference_mode():
        for _ in range(cases):
            size, starts = rectangles(shape[1:], rng)
            anchor, image, data = drawn(1, shape[1:]), drawn(1, shape[1:]), drawn(len(starts), size)
            patch = Patch(data.clone(memory_format=torch.preserve_format), starts, anchor)
            painted = patch.full()
            try:
                activations, output = network.activations(anchor.clone())
            except OverwrittenError:
                return None
            kept = {n: t.clone() for n, t in activations.items() if t.device.type != "meta"}
            same(output, full(anchor), "the anchor")
            same(network.run(patch, activations), full(painted), f"{size} at {starts}")
            assert torch.equal(patch.data, data), "a step wrote to the patch"
            for name, tensor in kept.items():
                assert torch.equal(activations[name], tensor), f"a step wrote to {name}"
            kinds |= {
                step.kind
                for step in network.steps
                if isinstance(network.results(patch, activations)[step.name], Patch)
            }
            inside, _ = network.activations(image.clone())
            for together in (False, True):
                around = [network.whole(inside)]
                for boxes in smaller_boxes(shape[1:], rng, together=together):
                    known = around * len(boxes) if len(around) == 1 else around
                    share = float(rng.choice([0.5, 0.8, np.inf]))
                    found, around = network.run_boxes(
                        boxes, known, activations, image, largest_share=share
                    )
                    shown = torch.cat([with_box(anchor, image, box) for box in boxes])
                    same(found, full(shown), f"the boxes {boxes}")
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]), f"{name} of the module was changed"
    return kinds


def one_colour(module, shape, seed):
    """Compare rectangles over one colour whose activations come from a smaller image.

    Returns the share of the image that was computed, or None if no smaller one will do.
    """
    rng, numbers = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    network = Network(module, shape)
    size, starts = rectangles(shape[1:], rng)
    colour = torch.rand(1, shape[0], *(1 for _ in shape[1:]), generator=numbers) - 0.3
    with torch.inference_mode():
        flat = None if network.reason else network.flat_activations(colour.expand(1, *shape))
        if flat is None:
            return None
        data = torch.rand(len(starts), shape[0], *size, generator=numbers)
        patch = Patch(data, starts, flat.tensor)
        expected = scores(module(torch.cat([patch.full(), colour.expand(1, *shape)])))
        same(network.run(patch, flat.activations), expected[:-1], "over one colour")
        same(flat.output, expected[-1:], "one colour")
    return flat.share


def explained_alike(module, shape, seed, *, partition=None, baseline=None, **options):
    """Compare the games of an explanation; return how its scores were made."""
    rng = np.random.default_rng(seed)
    image, *others = rng.random((4, *shape), dtype=np.float32)
    least = max(shape[1:]) // 3
    partition = partition or pick(
        rng, Bisection(least), Dyadic(least), Shifted(Dyadic(least), (3,) * (len(shape) - 1)),
        Superpixels(min_area=40, max_area=least * least),
    )  # fmt: skip
    baseline = baseline or pick(
        rng, Constant(0.2), Fixed(others[0]), References(np.stack(others)), Blur(2.0)
    )
    options = {"channels_last": len(shape) == 3 and bool(rng.integers(2)), **options}
    always = Incremental(module, cost_policy=ALWAYS, **options)
    before = image.copy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning)
        dense, found = (
            Explainer(way, baseline, partition, every_game).explain(image, target=0)
            for way in (Batched(module, batch_size=1), always)
        )
    assert np.array_equal(image, before), "the image was changed"
    assert [game.region for game in found.games] == [game.region for game in dense.games]
    values = [np.concatenate([game.values for game in one.games]) for one in (found, dense)]
    allowed = 1e-5 * max(np.abs(values[1]).max(), 0.1)  # scores near 0 are sums of larger numbers
    np.testing.assert_allclose(*values, rtol=0, atol=allowed)
    return found.provenance


def same(found, expected, where):
    assert found.shape == expected.shape, where
    largest = max(float(expected.abs().max()), 1e-3)
    apart = float((found - expected).abs().max()) / largest
    assert apart <= TOLERANCE[expected.dtype], f"{where}: apart by {apart:.2g}"


def scores(made):
    return made["logits"] if isinstance(made, dict) else getattr(made, "logits", made)


def pick(rng, *values):
    return values[int(rng.integers(len(values)))]


def laid_out(tensor, last):
    layout = torch.channels_last if last else torch.contiguous_format
    return tensor.clone(memory_format=layout)


def rectangles(grid, rng):
    """One to three rectangles of one size; many touch a border, or end one pixel before it."""
    most = [min(3, n) for n in grid] if rng.random() < 0.3 else grid
    size = tuple(int(rng.integers(1, n + 1)) for n in most)
    starts = [
        tuple(
            min(max(0, int(rng.choice([0, 1, n - m, n - m - 1, rng.integers(n - m + 1)]))), n - m)
            for n, m in zip(grid, size, strict=True)
        )
        for _ in range(int(rng.integers(1, 4)))
    ]
    return size, tuple(starts)


def smaller_boxes(grid, rng, *, together):
    """Yield boxes, each inside of the one before: one at a time, or two halves in one batch."""
    low, high = (0,) * len(grid), tuple(grid)
    for axis in range(len(grid)):
        if together:
            half = (high[axis] - low[axis]) // 2
            if not half:
                return
            firsts = tuple(low[i] + half if i == axis else n for i, n in enumerate(high))
            lasts = tuple(high[i] - half if i == axis else n for i, n in enumerate(low))
            yield [(low, firsts), (lasts, high)]
            return
        spans = [sorted(rng.integers(a, b + 1, 2)) for a, b in zip(low, high, strict=True)]
        kept = rng.random(len(grid)) < 0.4
        new = [
            (a, b) if whole or x == y else (int(x), int(y))
            for a, b, (x, y), whole in zip(low, high, spans, kept, strict=True)
        ]
        smaller = tuple(a for a, _ in new), tuple(b for _, b in new)
        if smaller != (low, high):
            low, high = smaller
            yield [smaller]


def with_box(anchor, image, corners):
    painted, spans = anchor.clone(), (..., *map(slice, *corners))
    painted[spans] = image[spans]
    return painted
