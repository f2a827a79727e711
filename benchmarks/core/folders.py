"""The folders of data, weights, results and the cache."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
WEIGHTS = ROOT / "benchmarks" / "models" / "weights"
CACHE = ROOT / "benchmarks" / ".cache"
VARIABLE = "HSHAP_DATA"


class MissingDataError(FileNotFoundError):
    """A data set is missing; the message says where to get it and where to put it."""


def data_folder(name: str, must_hold: str, source: str) -> Path:
    """Return the folder of a data set, which must hold a certain file or folder."""
    root = Path(os.environ.get(VARIABLE, ROOT / "data"))
    folder = root / name
    if not (folder / must_hold).exists():
        message = (
            f"no {must_hold!r} in {folder}. Get it from {source}, and unpack it there; or set "
            f"{VARIABLE} to the folder that holds {name!r}"
        )
        raise MissingDataError(message)
    return folder


def cache(*parts: str) -> Path:
    """Return a path in the cache, whose folder is made and kept out of git."""
    path = CACHE.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    ignore = CACHE / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    return path
