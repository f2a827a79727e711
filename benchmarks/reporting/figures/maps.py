"""Gather the maps that runs kept in the cache into one small file for each task.

Maps are bytes, shares of their greatest magnitude. Photographs are never among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core import folders, results
from benchmarks.core.tasks import SEED
from benchmarks.reporting.figures.data import NoResultsError, as_bytes, read_arrays, write_arrays
from benchmarks.reporting.figures.style import ORDER, ordered

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

LARGEST = 2_500_000  # bytes of a file; beyond, it holds the first image alone


def collect(task: str) -> None:
    """Write results/<task>/maps.npz from the runner's maps, by "<image>|<method>"."""
    folder = folders.CACHE / "runs" / task / "maps"
    images = sorted(path for path in folder.glob("*") if path.is_dir())
    found = {f"{at.name}|{name}": heat for at in images for name, heat in _kept(at).items()}
    if not found:
        message = f"the cache holds no maps of {task}, run `benchmarks/run {task}`"
        raise NoResultsError(message)
    path = results.folder(task) / "maps.npz"
    write_arrays(path, found, SEED)
    if path.stat().st_size > LARGEST:
        first = images[0].name
        alone = {key: heat for key, heat in found.items() if key.startswith(f"{first}|")}
        write_arrays(path, alone, SEED)


def collect_sanity() -> None:
    """Write results/sanity/maps.npz: maps of the first image, trained and all random."""
    folder = folders.CACHE / "sanity"
    files = {name: _matching(folder, name, "-0") for name in ORDER}
    found: dict[str, NDArray[Any]] = {}
    for name, path in files.items():
        if path is not None:
            with np.load(path) as stored:
                steps, image = stored["maps"], stored["image"]
            found |= {f"trained|{name}": as_bytes(steps[0]), f"random|{name}": as_bytes(steps[-1])}
            found["image"] = np.rint(255 * image).astype(np.uint8)
    if not found:
        message = "the cache holds no maps of randomised networks, run `benchmarks/run sanity`"
        raise NoResultsError(message)
    write_arrays(results.folder("sanity") / "maps.npz", found, SEED)


def read(task: str, command: str) -> dict[str, dict[str, NDArray[np.int8]]]:
    """Return the maps of each image (or step) and method, in the order of the tables."""
    arrays, _ = read_arrays(results.folder(task) / "maps.npz", command)
    images: dict[str, dict[str, Any]] = {}
    for key, heat in arrays.items():
        image, _, method = key.partition("|")
        images.setdefault(image, {})[method] = heat
    return {image: {m: of[m] for m in ordered(of)} for image, of in images.items()}


def _kept(folder: Path) -> dict[str, NDArray[np.int8]]:
    heats = {}
    for name in ORDER:
        path = _matching(folder, name)
        if path is not None:
            with np.load(path) as stored:
                heats[name] = stored["heat"]
    return heats


def _matching(folder: Path, name: str, ending: str = "") -> Path | None:
    """Return the file of a method: names hold slashes and spaces, which file names may not."""
    for path in sorted(folder.rglob(f"*{ending}.npz")):
        stem = path.relative_to(folder).as_posix().removesuffix(f"{ending}.npz")
        if _plain(stem) == _plain(name):
            return path
    return None


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name))
