"""`hshap doctor`: the installed packages, the devices, and a self-test of the numbers."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import typer

from hshap._util.version import __version__
from hshap.baselines.recipes import Constant
from hshap.cli import options as opt
from hshap.cli.faults import Code, brief
from hshap.cli.output import print_json, say
from hshap.cli.progress import table
from hshap.demo import brightest
from hshap.errors import installing, require
from hshap.evaluators.allocator import keep_memory
from hshap.explainer import Explainer
from hshap.games.shapley import shapley
from hshap.partitions.grids import Dyadic
from hshap.testing.brute_force import shapley_by_permutations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Heat

PACKAGES: dict[str, str | None] = {
    "numpy": None,
    "torch": "torch",
    "onnxruntime": "onnx",
    "matplotlib": "plot",
    "higra": "trees",
    "scipy": "trees",
    "typer": "cli",
    "rich": "cli",
    "pillow": "cli",
    "imagecodecs": "cli",
    "tifffile": "export",
    "zarr": "large",
    "pydicom": "medical",
    "nibabel": "medical",
    "highdicom": "medical",
    "pandas": None,
    "xarray": None,
    "shap": None,
}
"""Packages, and the extra of hshap that installs each."""

THEIRS = "h-shap"
"""The package of the paper's authors on the index."""

MOST_PLAYERS = 6
LARGEST_DIFFERENCE = 1e-12
ARRAYS, ARRAY_BYTES = 8, 2**25


class Check(NamedTuple):
    """One check of the self-test; `difference` is the largest error, or the failure in words."""

    name: str
    passed: bool
    difference: str


def doctor(*, json: opt.Json = False, debug: opt.Debug = False) -> None:
    """Show the installed packages and devices, and test the numbers against brute force."""
    del debug
    raise typer.Exit(report(self_test(), json=json))


def report(checks: Sequence[Check], *, json: bool) -> Code:
    """Print packages, devices and the results of a self-test; return the exit code."""
    packages = {name: _version(name) for name in PACKAGES}
    devices, clashes = _devices(), conflicts(_version)
    memory = memory_speed()
    healthy = all(check.passed for check in checks)
    if json:
        print_json(
            {
                "hshap": __version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "packages": packages,
                "conflicts": clashes,
                "devices": devices,
                "memory": memory,
                "self_test": [check._asdict() for check in checks],
                "healthy": healthy,
            }
        )
    else:
        rows = [("hshap", __version__, ""), ("python", platform.python_version(), "")]
        rows += [
            (name, found or "not installed", "" if found else installing(PACKAGES[name] or name))
            for name, found in packages.items()
        ]
        table(("package", "version", "to install it"), rows)
        table(("library", "runs on"), [(k, ", ".join(v)) for k, v in devices.items()])
        table(("memory", "result"), [("new arrays, if freed memory is kept", _told(memory))])
        table(
            ("self-test", "result", "largest difference"),
            [(c.name, "passed" if c.passed else "FAILED", c.difference) for c in checks],
        )
    for line in clashes:
        say(line)
    return Code.FINE if healthy else Code.UNEXPECTED


def self_test(formula: Callable[[Heat], Heat] = shapley) -> list[Check]:
    """Compare Shapley values by `formula` with brute force, and find a pixel at a known place.

    >>> [check.passed for check in self_test()]
    [True, True]
    """
    rng = np.random.default_rng(0)
    games: list[Heat] = [rng.normal(size=2**players) for players in range(1, MOST_PLAYERS + 1)]
    try:
        off = max(
            float(np.abs(formula(game) - shapley_by_permutations(game.tolist())).max())
            for game in games
        )
        difference = f"{off:.1g}"
    except Exception as error:  # noqa: BLE001, a failed check is reported, and the next one runs
        off, difference = np.inf, brief(error)
    name = f"Shapley values of 1 to {MOST_PLAYERS} players against all orders"
    return [Check(name, bool(off < LARGEST_DIFFERENCE), difference), _pixel_check()]


def memory_speed() -> float | None:
    """Return how many times faster new arrays are if freed memory is kept, or None if it is not.

    The smallest of a few times in turns, for arrays of 32 MB that are written once.
    """

    def seconds() -> float:
        started = perf_counter()
        for _ in range(ARRAYS):
            np.full(ARRAY_BYTES, 1, np.uint8)
        return perf_counter() - started

    found: list[float] = []
    kept: list[float] = []
    for _ in range(3):
        found.append(seconds())
        with keep_memory() as memory:
            if not memory.active:
                return None
            seconds()  # takes the memory that the next ones reuse
            kept.append(seconds())
    return min(found) / min(kept)


def _told(memory: float | None) -> str:
    if memory is None:
        return "not measured: for glibc on Linux, without variables MALLOC_... of your own"
    return f"{memory:.1f} times as fast; commands keep it, in Python use hshap.keep_memory()"


def _pixel_check() -> Check:
    image = np.zeros((1, 16, 16))
    image[0, 5, 11] = 1.0
    name = "explaining an image with one relevant pixel"
    try:
        explainer = Explainer(brightest, baseline=Constant(0.0), partition=Dyadic(min_size=1))
        found = explainer.explain(image, target=0)
    except Exception as error:  # noqa: BLE001, a failed check is reported
        return Check(name, passed=False, difference=brief(error))
    off = float(np.abs(found.saliency() - image[0]).max())
    return Check(name, passed=off == 0, difference=f"{off:.1g}")


def _version(package: str) -> str | None:
    try:
        return version_of(package)
    except PackageNotFoundError:
        return None


def conflicts(installed: Callable[[str], str | None]) -> list[str]:
    """Return packages that are imported by the name of this one, and the way out.

    >>> conflicts(lambda name: None)
    []
    """
    found = installed(THEIRS)
    if found is None:
        return []
    line = (
        f"{THEIRS} {found}, the authors' own package, is installed; it is imported as hshap too, "
        f"and each replaces files of the other: pip uninstall {THEIRS}, then install this hshap "
        "again with pip install --force-reinstall --no-deps, or keep them in two environments"
    )
    return [line]


def _devices() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, ask in (("torch", _torch_devices), ("onnxruntime", _onnx_devices)):
        if find_spec(name) is None:
            continue
        try:
            found[name] = ask()
        except Exception as error:  # noqa: BLE001, a broken library is a result of this command
            found[name] = [f"broken: {brief(error)}"]
    return found or {"numpy": ["cpu"]}


def _torch_devices() -> list[str]:
    torch = require("torch", extra="torch", needed_by="hshap doctor")
    found = [f"cpu ({torch.get_num_threads()} threads)"]
    found += [
        f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())
    ]
    return found + (["mps"] if torch.backends.mps.is_available() else [])


def _onnx_devices() -> list[str]:
    onnx = require("onnxruntime", extra="onnx", needed_by="hshap doctor")
    return list(onnx.get_available_providers())
