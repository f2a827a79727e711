"""Files as `hshap explain` reads them: what the model sees, and what the page shows.

The model is asked for the whole image once and for the baseline, so it notes its inputs, and its
score tells which input was which image.
"""

from __future__ import annotations

import importlib.machinery
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pages import ReadPage
from typer.testing import CliRunner

from hshap.cli.app import app


class Read(NamedTuple):
    """One image: the model's input `(h, w)` or `(h, w, 3)`, the page's pixels and its table."""

    seen: Any
    page: Any
    table: dict[str, Any]


class Run(NamedTuple):
    """The images that were read by their names, those skipped with the reason, and the notes."""

    images: dict[str, Read]
    skipped: dict[str, str]
    told: str


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def explain(*words):
    """Run `hshap explain` with a model that notes its inputs; return the outcome and these."""
    seen = {}

    def model(batch):
        numbers = []
        for each in np.array(batch):
            number, _ = seen.setdefault((each.shape, each.tobytes()), (len(seen), each))
            numbers.append(float(number))
        return np.array(numbers)

    sys.modules["looker"] = types.ModuleType("looker")
    sys.modules["looker"].model = model
    sys.modules["looker"].__spec__ = importlib.machinery.ModuleSpec("looker", None)
    words = ("explain", *words, "--model", "looker:model", "--baseline", "constant:0")
    done = run(*words, "--partition", "quadtree", "--min-size", 10**6, "--target", 0)
    del sys.modules["looker"]
    return done, [each for _, each in seen.values()]


def opened(*words, code=0):
    """Read files by one run of the command."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found"
        done, seen = explain(*words, "--out", out)
        assert done.exit_code == code, done.output
        summary = json.loads((out / "summary.json").read_text("utf-8"))
        page = ReadPage(out / "index.html")
        images = {}
        for number, image in enumerate(summary["images"]):
            pixels = seen[int(image["explanations"][0]["score"])]
            name = Path(image["image"]).name
            pixels = pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1)
            images[name] = Read(pixels, page.pixels(number), page.table(number))
        skipped = {Path(one["image"]).name: one["reason"] for one in summary.get("skipped", [])}
    return Run(images, skipped, done.stderr)
