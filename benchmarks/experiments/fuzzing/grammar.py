"""Draw random programs. Every operation is tried at once, and drawn again if it does not work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from benchmarks.experiments.fuzzing.operations import OPERATIONS
from benchmarks.experiments.fuzzing.program import Line, Program
from benchmarks.experiments.fuzzing.workspace import Workspace

if TYPE_CHECKING:
    import numpy as np

GRIDS = {1: (9, 48), 2: (6, 22), 3: (4, 9)}
"""Smallest and largest side for each number of spatial axes."""

MOST_LINES = 12
MOST_DRAWS = 20


def random_program(rng: np.random.Generator, seed: int) -> Program:
    """Return a program; `seed` decides its weights."""
    axes = int(rng.choice([1, 2, 2, 2, 3]))
    low, high = GRIDS[axes]
    shape = (int(rng.integers(1, 4)), *(int(n) for n in rng.integers(low, high, axes)))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        work = Workspace(rng, shape)
        lines = [line for _ in range(int(rng.integers(2, MOST_LINES + 1))) for line in _line(work)]
    dtype = "float32" if rng.random() < 0.5 else "float64"
    return Program(shape, seed, dtype, tuple(lines), _outputs(work))


def _line(work: Workspace) -> list[Line]:
    """Return one new line, or none if all draws fail."""
    for _ in range(MOST_DRAWS):
        line = work.one_of(OPERATIONS)(work)
        if work.accepts(line):
            return [line]
    return []


def _outputs(work: Workspace) -> tuple[str, ...]:
    """Return expressions of one or several tensors, each with a number for each channel."""
    names = work.readable()
    chosen = {names[-1], *(name for name in names[1:] if work.rng.random() < 0.25)}
    dims = tuple(range(2, work.axes + 2))
    pool = f"f.adaptive_avg_pool{work.axes}d({{}}, 1).flatten(1)"
    kinds = ("({}).mean(DIMS)", "({}).amax(DIMS)", "torch.mean(({}), DIMS)", pool)
    reduced: list[str] = []
    for name in sorted(chosen):
        text = work.one_of(kinds).replace("DIMS", str(dims))
        # The bracket around the name lets the program rename it.
        reduced.append(text.format(name if "({})" in text else f"({name})"))
    return tuple(reduced)
