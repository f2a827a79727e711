"""The command line as a user finds it, against the same command tuned by hand.

Every command is a process of its own: `hshap explain` on four images, with a budget of evaluations
that the search always spends, so that all commands do the same work. As found, the environment has
no variables for memory and threads. Tuned, it has those for the allocator and one thread for each
core, and the fastest of a few batch sizes and layouts is passed. Both take turns.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from benchmarks.core.folders import ROOT
from benchmarks.models.names import NARROW
from benchmarks.models.zoo import made
from hshap.demo import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

IMAGES = 4
TURNS = 2
TUNED = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "OMP_NUM_THREADS": str(os.cpu_count() or 1),
}
SET = ("MALLOC_", "OMP_", "MKL_", "OPENBLAS_")
"""Beginnings of variables that a user does not have."""

OPTIONS = tuple(
    ("--batch-size", str(size), *layout)
    for size in (8, 32)
    for layout in ((), ("--channels-last",))
)
CASES: dict[str, tuple[tuple[int, int], int, int]] = {
    "ConvNet": ((100, 120), 4, 500),
    "FCN": ((600, 800), 40, 48),
    "ResNet-18": ((224, 224), 16, 80),
}
"""Size of the images, smallest side of regions, and evaluations of each explanation."""


def convnet() -> nn.Module:
    """Return the network of the synthetic images."""
    return load()


def fcn() -> nn.Module:
    """Return a fully convolutional network of 16 channels."""
    return made(NARROW[0]).eval()


def resnet() -> nn.Module:
    """Return ResNet-18 with random weights."""
    return made("ResNet-18").eval()


MODELS = {"ConvNet": "convnet", "FCN": "fcn", "ResNet-18": "resnet"}


def against_tuned(name: str, turns: int = TURNS) -> dict[str, Any]:
    """Run the command as found and tuned, in turns: wall-clock and CPU seconds, and their ratio."""
    grid, smallest, budget = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        _write_images(Path(folder, "images"), grid)
        command = [
            *(sys.executable, "-m", "hshap", "explain", str(Path(folder, "images"))),
            *("--model", f"{__name__}:{MODELS[name]}()", "--target", "0"),
            *("--baseline", "constant:0.5", "--partition", "bisection"),
            *("--min-size", str(smallest), "--tolerance", "0", "--budget", str(budget)),
            *("--all", "--force", "--out", str(Path(folder, "out")), "--json"),
        ]
        plain = {k: v for k, v in os.environ.items() if not k.startswith(SET)}
        _seconds(command, plain)  # the files of libraries are in memory from here on
        tried = {way: _seconds([*command, *way], {**plain, **TUNED})["wall"] for way in OPTIONS}
        best = min(tried, key=lambda way: tried[way])
        pairs = [
            (_seconds(command, plain), _seconds([*command, *best], {**plain, **TUNED}))
            for _ in range(turns)
        ]
    found = {
        f"{kind}_{clock}": median(pair[place][clock] for pair in pairs)
        for place, kind in enumerate(("found", "tuned"))
        for clock in ("wall", "cpu")
    }
    return {
        "network": name,
        "best": " ".join(best),
        **found,
        "ratio": median(tuned["wall"] / plain["wall"] for plain, tuned in pairs),
        "cpu_ratio": median(tuned["cpu"] / plain["cpu"] for plain, tuned in pairs),
    }


def _write_images(folder: Path, grid: Sequence[int]) -> None:
    folder.mkdir()
    for number in range(IMAGES):
        noise = np.random.default_rng(number).integers(0, 256, (*grid, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{number}.png")


def _seconds(command: Sequence[str], environment: dict[str, str]) -> dict[str, float]:
    """Return the wall-clock and CPU seconds of a command."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "cpu": cpu}
