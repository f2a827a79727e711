"""Explanations of large images for tests of the page, and a reader of pages without a browser."""

from __future__ import annotations

import base64
import io
import json
import re
import zlib
from dataclasses import replace

import numpy as np

import hshap
from hshap.explanation.region_tables import unpack_labels

TILE = 1024
"""The side of a tile in pixels."""


def spotted(side, number=80):
    """Explain an image with spots of different strength, in boxes of a twentieth of its side."""
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, side, (2, number))
    image = np.zeros((1, side, side), np.float32)
    image[0, rows, columns] = 1 + rng.random(number)
    return hshap.Explainer(
        lambda batch: batch[:, 0, rows, columns].sum(axis=1),
        baseline=hshap.Constant(0.0),
        partition=hshap.Dyadic(side // 20),
    ).explain(image, 0)


def enlarged(explanation, factor):
    """Return the explanation of an image in which every pixel is a square of pixels."""

    def large(box):
        return hshap.protocols.Box(
            tuple(factor * place for place in box.start),
            tuple(factor * place for place in box.stop),
        )

    games = tuple(
        replace(game, region=large(game.region), children=tuple(map(large, game.children)))
        for game in explanation.games
    )
    grid = tuple(factor * length for length in explanation.grid)
    return replace(
        explanation,
        grid=grid,
        games=games,
        leaves=tuple(map(large, explanation.leaves)),
        unfinished=(),
        placement=hshap.images.Placement(grid),
    )


def in_contexts():
    """Explain two places of which one is enough, and a third that only adds to the first."""

    def model(batch):
        one, other, third = batch[:, 0, 2, 3], batch[:, 0, 12, 17], batch[:, 0, 12, 3]
        return np.maximum(one, other) + one * third

    image = np.ones((1, 16, 20))
    return image, hshap.Explainer(
        model,
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(1),
        search=hshap.BestFirst(contexts=4),
    ).explain(image, target=0)


def page_labels(packed, count, grid):
    """Return the labels of pixels that a page stores."""
    data = zlib.decompress(base64.b64decode(packed))
    return unpack_labels(data, count, tuple(grid)).reshape(grid)


def page_map(packed, grid):
    """Return the map that a page stores, and the most by which a value differs from its own."""
    steps = np.frombuffer(zlib.decompress(base64.b64decode(packed["values"])), np.int8)
    roots = steps.reshape(grid) / 127
    error = packed["top"] * (np.abs(roots) + 1 / 254) / 127
    return packed["top"] * np.sign(roots) * roots**2, error


class ReadPage:
    """A page as text or as a file, with the folder beside it: index, parts, tables and pixels."""

    def __init__(self, page):
        text = page if isinstance(page, str) else page.read_text("utf-8")
        self.parts = dict(re.findall(r'<script type="[a-z/]+" id="([^"]+)">([^<]*)</script>', text))
        self.data = self.parts.pop("data")
        self.index = json.loads(self.data)
        if self.index["folder"]:
            for file in (page.parent / self.index["folder"]).rglob("*.js"):
                for line in file.read_text().splitlines():
                    name, part = re.fullmatch(r'hshapPart\(("[^"]*"), (".*")\);', line).groups()
                    assert json.loads(name).startswith(f"{file.parent.name}/")
                    assert not set("<>&\u2028\u2029") & set(part)
                    self.parts[json.loads(name)] = json.loads(part)

    def home(self, number=0):
        """Return the first part of the names of an image's parts."""
        return self.index["views"][number]["home"]

    def table(self, number=0):
        return json.loads(self.parts[f"{self.home(number)}/view"])

    def by_name(self, name):
        """Return the number of the view with a name."""
        return [view["name"] for view in self.index["views"]].index(name)

    def pixels(self, number=0):
        """Return the image from its tiles: bytes `(h, w, 3)`, or grey values `(h, w)`."""
        facts = self.table(number)["image"]
        height, width = facts["levels"][0]
        kind = np.uint8 if facts["bits"] == 8 else np.uint16
        channels = (3,) if facts["kind"] == "colour" else ()
        out = np.zeros((height, width, *channels), kind)
        for row in range(0, height, TILE):
            for column in range(0, width, TILE):
                name = f"{self.home(number)}/0-{row // TILE}-{column // TILE}"
                part = out[row : row + TILE, column : column + TILE]
                part[:] = _tile(base64.b64decode(self.parts[name]), part.shape, kind)
        return out


def _tile(data, shape, kind):
    if len(shape) == 3:
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(data)))
    raw = np.frombuffer(zlib.decompress(data), np.uint8)
    if kind == np.uint16:
        high, low = raw.reshape(2, -1).astype(np.uint16)
        raw = high << 8 | low
    return np.cumsum(raw.reshape(shape), axis=1, dtype=kind)
