"""`hshap doctor`: installed packages, devices, the speed of settings, and a self-test."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import typer

from hshap._util.version import __version__
from hshap.baselines.recipes import Constant
from hshap.cli.faults import Code, brief
from hshap.cli.options import AsJson
from hshap.cli.output import print_json, say, table, tell
from hshap.cli.timing import Gain, measure_gains
from hshap.demo import brightest
from hshap.errors import missing_packages, packages_of, require
from hshap.explainer import Explainer
from hshap.games.shapley import shapley
from hshap.partitions.grids import Dyadic
from hshap.testing import shapley_by_permutations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Heat

USES = {
    "cli": "every command",
    "plot": "explain, serve, demo: pictures",
    "serve": "serve",
    "runs": "run, query, verify; export, view, report of runs",
    "onnx": "ONNX models",
    "torch": "torch models, demo",
    "trees": "superpixels, the usual regions",
    "medical": "DICOM and NIfTI",
    "export": "maps in TIFF",
    "large": "large TIFF, OME-Zarr, OME-TIFF",
    "slides": "whole slides",
    "dask": "run --executor dask",
    "ray": "run --executor ray",
    "slurm": "run --executor slurm",
}
"""What the extras of hshap are for."""
OTHERS = ("pandas", "xarray", "shap")
"""Packages that some functions need, and no extra has."""

THEIRS = "h-shap"
"""The package of the paper's authors on the index."""

MOST_PLAYERS = 6
LARGEST_DIFFERENCE = 1e-12
SLOWER = 0.9
"""Times as fast, below which a setting is said to be harmful: less is noise of the measurement."""


class Check(NamedTuple):
    """One check of the self-test; `difference` is the largest error, or the failure in words."""

    name: str
    passed: bool
    difference: str


def doctor(*, json: AsJson = False) -> None:
    """Show what each command lacks, packages, devices and speed; test the numbers."""
    raise typer.Exit(report(self_test(), json=json))


def report(checks: Sequence[Check], *, json: bool) -> Code:
    """Print packages, devices and the results of a self-test; return the exit code."""
    known = dict.fromkeys(name for extra in USES for name in packages_of(extra))
    packages = {name: _version(name) for name in ("numpy", *known, *OTHERS)}
    lacking = {extra: missing_packages(extra) for extra in USES}
    devices, clashes = _devices(), conflicts(_version)
    speed = measure_gains()
    healthy = all(check.passed for check in checks)
    if json:
        print_json(
            {
                "hshap": __version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "packages": packages,
                "missing": lacking,
                "conflicts": clashes,
                "devices": devices,
                "speed": [gain._asdict() for gain in speed],
                "self_test": [check._asdict() for check in checks],
                "healthy": healthy,
            }
        )
    else:
        uses = [(use, lacking[extra]) for extra, use in USES.items()]
        table(("for", "lacks"), [(use, " ".join(missing) or "nothing") for use, missing in uses])
        if any(lacking.values()):
            tell("pip install brings what is lacking, by the names above")
        rows = [("hshap", __version__), ("python", platform.python_version())]
        table(
            ("package", "version"),
            [*rows, *((name, found) for name, found in packages.items() if found)],
        )
        table(("library", "runs on"), [(k, ", ".join(v)) for k, v in devices.items()])
        table(("speed", "here"), [(gain.setting, _told(gain)) for gain in speed])
        table(
            ("self-test", "result", "largest difference"),
            [(c.name, "passed" if c.passed else "FAILED", c.difference) for c in checks],
        )
    for line in (*clashes, *slower(speed)):
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


def slower(speed: Sequence[Gain]) -> list[str]:
    """Return a line for each setting that makes evaluations slower here, with the way out.

    >>> slower([Gain("2 threads against one", 0.5, "torch.set_num_threads")])
    ['2 threads against one: 0.50 times as fast here; is the machine busy? (torch.set_num_threads)']
    """
    return [
        f"{gain.setting}: {gain.times:.2f} times as fast here; is the machine busy? ({gain.how})"
        for gain in speed
        if gain.times is not None and gain.times < SLOWER
    ]


def _told(gain: Gain) -> str:
    if gain.times is None:
        return "not measured"
    return f"{gain.times:.2f} times as fast"


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
