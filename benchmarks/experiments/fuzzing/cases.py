"""Cases of the fuzzer: rectangles on which a network is compared with its full forward pass."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from hshap import Box, Constant, CostPolicy, Fixed, Incremental
from hshap.evaluators.canvas import Canvas, Row, StandIns
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.traced_network import Network
from hshap.evaluators.incremental.writes import OverwrittenError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import nn

    from benchmarks.experiments.fuzzing.program import Program
    from hshap.evaluators.incremental.traced_network import Activations

TOLERANCE = 1e-5
"""Largest difference from the full pass, relative to the largest output."""

ENLARGED = {1: 3, 2: 4, 3: 4}
"""Factor for the sides of images in a session, for each number of spatial axes."""

ROUNDING = 1e-6
"""A network whose full pass is less exact than this in 32 bits runs in 64 bits."""


class WrongError(Exception):
    """A case does not hold; the message says how."""


@dataclass(frozen=True)
class Case:
    """Rectangles of one size, each at its own start; their pixels come from the seed."""

    starts: tuple[tuple[int, ...], ...]
    size: tuple[int, ...]
    seed: int
    channels_last: bool = False

    def inputs(self, program: Program) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the anchor and the pixels of the rectangles."""
        numbers = torch.Generator().manual_seed(self.seed)
        kind = getattr(torch, program.dtype)
        channels = program.shape[0]
        anchor = torch.rand(1, *program.shape, generator=numbers, dtype=kind)
        data = torch.rand(len(self.starts), channels, *self.size, generator=numbers, dtype=kind)
        return self.laid_out(anchor), self.laid_out(data)

    def laid_out(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy in the memory layout of the case: torch's kernels round by layout."""
        last = self.channels_last and tensor.ndim == 4
        layout = torch.channels_last if last else torch.contiguous_format
        return tensor.clone(memory_format=layout)


class Subject:
    """A network under test.

    `kinds` are the layers that ran on patches so far. `repeated` counts cases in which the full
    pass itself is too rounded in 32 bits, because large numbers cancel; they run again in 64 bits.
    `boxes` counts cases in which boxes inside of boxes agreed too, and `flat` those over an image
    of one colour whose activations came from a smaller one.
    """

    def __init__(self, program: Program) -> None:
        self._program, self._module = program, program.module()
        self._before = state(self._module)
        self._network = Network(self._module)
        self.kinds: set[str] = set()
        self.repeated = self.boxes = self.flat = 0

    def on_patches(self, case: Case) -> str | float:
        """Compare a case on patches with full passes.

        Returns the largest relative difference, or the reason if the network does not run on
        patches. Raises `WrongError`.
        """
        network = self._network
        if network.reason:
            return network.reason.split("(")[0]
        anchor, data = case.inputs(self._program)
        patch = Patch(data.clone(), case.starts, anchor.clone())
        with torch.inference_mode():
            rows = [case.laid_out(row[None]) for row in patch.full()]
            expected = torch.cat([self._module(row) for row in rows])
            try:
                activations, _ = network.activations(patch.anchor)
            except OverwrittenError:
                return "it reads a tensor that it has overwritten in place"
            kept = {name: t.clone() for name, t in activations.items() if t.device.type != "meta"}
            try:
                found = network.run(patch, activations)
            except Exception as error:
                raise WrongError(f"{type(error).__name__}: {error}") from error
            results = network.results(patch, activations)
        difference = relative(found, expected)
        if difference > TOLERANCE and self._rounds(patch.full(), expected):
            self.repeated += 1
            return Subject(replace(self._program, dtype="float64")).on_patches(case)
        if not difference <= TOLERANCE:
            raise WrongError(
                f"differs from the full pass by {difference:.2g} of the largest output"
            )
        expect_equal(patch.data, data, "the patch of the input was changed")
        expect_equal(patch.anchor, anchor, "the anchor was changed")
        for name, tensor in kept.items():
            expect_equal(activations[name], tensor, f"the kept activation {name} was changed")
        expect_same_state(self._module, self._before)
        self.kinds |= {s.kind for s in network.steps if isinstance(results[s.name], Patch)}
        others = (
            self._in_boxes(case, anchor, activations),
            self._together(case, anchor, activations),
            self._on_one_colour(case),
        )
        return max(difference, *others)

    def _in_boxes(self, case: Case, anchor: torch.Tensor, activations: Activations) -> float:
        """Show boxes of a second image, each a part of the one before; compare with full passes.

        Returns the largest relative difference, or raises `WrongError`.
        """
        numbers = np.random.default_rng(case.seed)
        drawn = torch.Generator().manual_seed(case.seed + 1)
        image = case.laid_out(torch.rand(anchor.shape, generator=drawn, dtype=anchor.dtype))
        network, worst = self._network, 0.0
        with torch.inference_mode():
            inside, _ = network.activations(image.clone())
            around = network.whole(inside)
            for corners in nested_boxes(tuple(anchor.shape[2:]), numbers):
                share = numbers.choice([0.5, 0.8, np.inf])
                painted = anchor.clone()
                spans = (slice(None), slice(None), *map(slice, *corners))
                painted[spans] = image[spans]
                expected = self._module(case.laid_out(painted))
                try:
                    found, (around,) = network.run_boxes(
                        [corners], [around], activations, image, largest_share=share
                    )
                except Exception as error:
                    raise WrongError(f"in a box, {type(error).__name__}: {error}") from error
                difference = relative(found, expected)
                if difference > TOLERANCE and self._rounds(painted, expected):
                    self.repeated += 1
                    return worst
                if not difference <= TOLERANCE:
                    raise WrongError(
                        f"in the box {corners}, differs from the full pass by {difference:.2g}"
                    )
                worst = max(worst, difference)
        self.boxes += 1
        return worst

    def _together(self, case: Case, anchor: torch.Tensor, activations: Activations) -> float:
        """Show the halves of a second image in one batch, then halves of these; compare likewise.

        Returns the largest relative difference, or raises `WrongError`.
        """
        drawn = torch.Generator().manual_seed(case.seed + 2)
        image = case.laid_out(torch.rand(anchor.shape, generator=drawn, dtype=anchor.dtype))
        network, worst = self._network, 0.0
        with torch.inference_mode():
            known = [network.whole(network.activations(image.clone())[0])]
            for axis in range(len(case.size)):
                pairs = [(half, box) for box in known for half in halves(box.corners, axis)]
                if not pairs:
                    return worst
                corners, around = [half for half, _ in pairs], [box for _, box in pairs]
                try:
                    found, known = network.run_boxes(corners, around, activations, image)
                except Exception as error:
                    raise WrongError(f"in a batch, {type(error).__name__}: {error}") from error
                for output, box in zip(found, corners, strict=True):
                    painted = anchor.clone()
                    spans = (slice(None), slice(None), *map(slice, *box))
                    painted[spans] = image[spans]
                    expected = self._module(case.laid_out(painted))
                    difference = relative(output[None], expected)
                    if difference > TOLERANCE and self._rounds(painted, expected):
                        self.repeated += 1
                        return worst
                    if not difference <= TOLERANCE:
                        message = f"in a batch, the box {box} differs by {difference:.2g}"
                        raise WrongError(message)
                    worst = max(worst, difference)
        return worst

    def _on_one_colour(self, case: Case) -> float:
        """Compare a case over a larger image of one colour, if its activations repeat."""
        program, larger = enlarged(self._program, case, self._module)
        numbers, data = larger.inputs(program)
        corner = numbers[(slice(None), slice(None), *(slice(0, 1) for _ in larger.size))]
        anchor = larger.laid_out(corner.expand_as(numbers))
        with torch.inference_mode():
            try:
                flat = self._network.flat_activations(anchor)
            except Exception:  # noqa: BLE001, then the session runs it at full size
                return 0.0
            if flat is None:
                return 0.0
            patch = Patch(data.clone(), larger.starts, flat.tensor)
            rows = [larger.laid_out(row[None]) for row in patch.full()]
            expected = torch.cat([self._module(row) for row in (*rows, anchor.clone())])
            found = torch.cat([self._network.run(patch, flat.activations), flat.output])
        self.flat += 1
        difference = relative(found, expected)
        if difference > TOLERANCE and self._rounds(torch.cat([*rows, anchor]), expected):
            self.repeated += 1
            return 0.0
        if not difference <= TOLERANCE:
            raise WrongError(f"over one colour, differs from the full pass by {difference:.2g}")
        return difference

    def _rounds(self, inputs: torch.Tensor, found: torch.Tensor) -> bool:
        """Tell whether the full pass itself differs from one in 64 bits."""
        exact = copy.deepcopy(self._module).double()
        with torch.inference_mode():
            return relative(found, exact(inputs.double())) > ROUNDING


def enlarged(program: Program, case: Case, module: nn.Module) -> tuple[Program, Case]:
    """Return a larger image with larger rectangles, if the network takes other sizes.

    A session rounds rectangles up to 16 pixels, so that few are left in small images.
    """
    times = ENLARGED[len(case.size)]
    channels, *grid = program.shape
    larger = replace(program, shape=(channels, *(times * n for n in grid)))
    starts = tuple(tuple(times * a for a in start) for start in case.starts)
    grown = replace(case, starts=starts, size=tuple(times * n for n in case.size))
    try:
        with torch.inference_mode():
            module(grown.inputs(larger)[0])
    except RuntimeError:
        return program, case
    return larger, grown


def in_a_session(program: Program, case: Case) -> int:
    """Compare the scores of a session of `Incremental` with full passes, or raise `WrongError`.

    Returns the number of inputs whose scores came from patches. Modules without parameters run in
    32 bits there, so only programs in 32 bits are compared.
    """
    module = program.module()
    before = state(module)
    if not before and program.dtype == "float64":
        return 0
    program, case = enlarged(program, case, module)
    anchor, _ = case.inputs(program)
    baseline = anchor[0].numpy().copy()
    image = np.random.default_rng(case.seed).random(program.shape).astype(baseline.dtype)
    kept_image, kept_baseline = image.copy(), baseline.copy()
    grid = program.shape[1:]
    boxes = [
        Box(start, tuple(a + n for a, n in zip(start, case.size, strict=True)))
        for start in case.starts
    ]
    last = case.channels_last and len(grid) == 2
    way = Incremental(module, cost_policy=CostPolicy.always(), channels_last=last)
    session = way.open_session()
    fill = Fixed(baseline) if case.seed % 3 else Constant(0.0)
    stand_ins = StandIns(fill(image), image.shape, session.put)
    root = Box((0,) * len(grid), grid)
    canvas = Canvas(image, stand_ins, root, put=session.put, position=0)
    rows = [Row(canvas, kept, 0) for kept in ((), (root,), *((box,) for box in boxes))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = torch.from_numpy(session.score(rows))
    under = baseline if case.seed % 3 else np.zeros_like(baseline)
    painted = [_painted(kept_image, under, row.kept) for row in rows]
    with torch.inference_mode():
        laid_out = [case.laid_out(torch.from_numpy(one)[None]) for one in painted]
        expected = torch.cat([module(one) for one in laid_out])
    difference = relative(found, expected.reshape(len(rows), -1))
    if not difference <= TOLERANCE:
        raise WrongError(f"in a session, differs from the full pass by {difference:.2g}")
    for name, now, then in (
        ("image", image, kept_image),
        ("baseline", baseline, kept_baseline),
    ):
        expect_equal(torch.from_numpy(now), torch.from_numpy(then), f"the {name} was changed")
    expect_same_state(module, before)
    return session.provenance(position=0).incremental


def sound(program: Program) -> Program | None:
    """Return the program, in 64 bits if its full pass is not exact enough in 32 bits.

    None if torch refuses to run it: a line may be wrong only once others share its memory.
    """
    case = Case(((0,) * len(program.shape[1:]),), program.shape[1:], program.seed)
    _, data = case.inputs(program)
    module = program.module()
    try:
        with torch.inference_mode():
            found = module(data.clone())
            # With the weights of the 32-bit network, so that only the arithmetic differs.
            expected = module.double()(data.double())
    except (RuntimeError, ValueError, IndexError):
        return None
    if not torch.isfinite(expected).all():
        return None
    exact = relative(found, expected) <= ROUNDING
    return program if exact else replace(program, dtype="float64")


def random_case(grid: Sequence[int], rng: np.random.Generator) -> Case:
    """Return random rectangles; many touch a border, or end one pixel before it."""
    size = tuple(int(rng.integers(1, n + 1)) for n in grid)
    if rng.random() < 0.3:
        size = tuple(int(rng.integers(1, min(3, n) + 1)) for n in grid)
    starts = tuple(
        tuple(_start(n, m, rng) for n, m in zip(grid, size, strict=True))
        for _ in range(int(rng.integers(1, 4)))
    )
    last = bool(rng.random() < 0.2)
    return Case(starts, size, int(rng.integers(2**31)), last)


def nested_boxes(
    grid: Sequence[int], rng: np.random.Generator
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return two or three boxes, each smaller than the one before; many share sides with it."""
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    low, high = (0,) * len(grid), tuple(grid)
    for _ in range(int(rng.integers(2, 4))):
        new = [_part(a, b, rng) for a, b in zip(low, high, strict=True)]
        smaller = tuple(a for a, _ in new), tuple(b for _, b in new)
        if smaller != (low, high):
            low, high = smaller
            found.append(smaller)
    return found


def halves(
    corners: tuple[tuple[int, ...], tuple[int, ...]], axis: int
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the two parts of a box of one size at its ends, or none if it is one pixel long.

    Of an odd length, the pixel in the middle belongs to neither.
    """
    low, high = corners
    length = (high[axis] - low[axis]) // 2
    if not length:
        return []
    first = tuple(low[i] + length if i == axis else n for i, n in enumerate(high))
    last = tuple(high[i] - length if i == axis else n for i, n in enumerate(low))
    return [(low, first), (last, high)]


def _part(low: int, high: int, rng: np.random.Generator) -> tuple[int, int]:
    """Return a part of a side: all of it, one of its halves, or any other."""
    middle = (low + high + 1) // 2
    halves = [(low, high), (low, middle), (middle if middle < high else low, high)]
    if rng.random() < 0.7:
        return halves[int(rng.integers(3))]
    first = int(rng.integers(low, high))
    return first, int(rng.integers(first, high)) + 1


def _start(grid: int, size: int, rng: np.random.Generator) -> int:
    near = [0, 1, grid - size, grid - size - 1]
    start = int(rng.choice(near)) if rng.random() < 0.6 else int(rng.integers(grid - size + 1))
    return min(max(0, start), grid - size)


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest expected number."""
    if found.shape != expected.shape:
        raise WrongError(f"has shape {tuple(found.shape)}, not {tuple(expected.shape)}")
    apart = float((found.double() - expected.double()).abs().max())
    return apart / max(float(expected.abs().max()), 1e-3)


def _painted(
    image: NDArray[np.floating], baseline: NDArray[np.floating], kept: Sequence[Box]
) -> NDArray[np.floating]:
    out = baseline.copy()
    for box in kept:
        spans = (slice(None), *(slice(a, b) for a, b in zip(box.start, box.stop, strict=True)))
        out[spans] = image[spans]
    return out


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return copies of all parameters and buffers."""
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def expect_same_state(module: nn.Module, before: dict[str, torch.Tensor]) -> None:
    """Raise `WrongError` if a parameter or a buffer of a module has changed."""
    for name, tensor in module.state_dict().items():
        expect_equal(tensor, before[name], f"{name} of the module was changed")


def expect_equal(found: torch.Tensor, expected: torch.Tensor, message: str) -> None:
    """Raise `WrongError` with a message unless two tensors are equal."""
    if not torch.equal(found, expected):
        raise WrongError(message)
