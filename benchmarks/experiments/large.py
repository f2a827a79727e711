"""A picture of 32,768 x 32,768 pixels on a disk: memory, time, and findings against known objects.

Run `benchmarks/run large`. A tiled TIFF file without coarse levels is made, tile by tile: red
crosses on a texture, and blue crosses and red discs beside them. A small network of torch answers
whether a tile holds a red cross. A fresh process explains the file with `explain_tiles`, saves the
result, exports it and writes its page. The process tells its own peak memory after each step
(`resource.getrusage`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core import markdown, results
from benchmarks.core.provenance import provenance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

SIDE = 32_768
TILE = 256
"""The side of tiles, both in the file and in the explanation."""

OVERLAP = 32
CROSSES, OTHERS = 40, 120
ARM, THICK = 8, 2
"""Half the length of a cross, and half its width, in pixels; a cross fits into the overlap."""

RED, BLUE = (200, 40, 40), (40, 60, 200)
LEAST = 0.5
"""A finding shows a cross if their boxes have this intersection over union."""


@dataclass(frozen=True)
class Scene:
    """The objects of a picture: centres of crosses, and of objects that are none."""

    side: int
    crosses: NDArray[np.int64]
    blue: NDArray[np.int64]
    discs: NDArray[np.int64]

    @classmethod
    def drawn(cls, side: int, seed: int = 0) -> Scene:
        """Place objects at random, apart; every fourth cross on a border of the file's tiles."""
        rng = np.random.default_rng(seed)
        count = CROSSES + OTHERS
        kept: list[tuple[int, int]] = []
        while len(kept) < count:
            y, x = rng.integers(2 * ARM, side - 2 * ARM, 2).tolist()
            if len(kept) < CROSSES and len(kept) % 4 == 0:
                x = max(2 * ARM, min(side - 2 * ARM, round(x / TILE) * TILE))
            if all(max(abs(y - a), abs(x - b)) > 8 * ARM for a, b in kept):
                kept.append((y, x))
        places = np.array(kept)
        half = CROSSES + OTHERS // 2
        return cls(side, places[:CROSSES], places[CROSSES:half], places[half:])

    def tiles(self) -> Iterator[NDArray[np.uint8]]:
        """Yield the tiles of the file, row by row."""
        rng = np.random.default_rng(1)
        ground = (225 + rng.integers(-6, 7, (TILE, TILE, 1)) * np.ones(3, int)).astype(np.uint8)
        for top in range(0, self.side, TILE):
            for left in range(0, self.side, TILE):
                tile = np.roll(ground, (int(rng.integers(TILE)), int(rng.integers(TILE))), (0, 1))
                self._draw(tile, top, left)
                yield tile

    def _draw(self, tile: NDArray[np.uint8], top: int, left: int) -> None:
        y, x = np.ogrid[top : top + TILE, left : left + TILE]
        for places, colour in ((self.crosses, RED), (self.blue, BLUE)):
            for a, b in self._near(places, top, left):
                down, across = np.abs(y - a), np.abs(x - b)
                bars = (down <= THICK) & (across <= ARM) | (across <= THICK) & (down <= ARM)
                tile[bars] = colour
        for a, b in self._near(self.discs, top, left):
            tile[(y - a) ** 2 + (x - b) ** 2 <= (ARM // 2) ** 2] = RED

    @staticmethod
    def _near(places: NDArray[np.int64], top: int, left: int) -> list[tuple[int, int]]:
        corner = np.array([top, left])
        near = ((places > corner - ARM - 1) & (places < corner + TILE + ARM + 1)).all(axis=1)
        return [(int(a), int(b)) for a, b in places[near]]

    def boxes(self) -> NDArray[np.int64]:
        """Return the boxes of the crosses: first and one past the last row and column."""
        return np.concatenate([self.crosses - ARM, self.crosses + ARM + 1], axis=1)


def write(path: Path, scene: Scene) -> None:
    """Write the picture as a tiled TIFF file, one tile at a time."""
    import tifffile

    shape = (scene.side, scene.side, 3)
    tifffile.imwrite(
        path,
        scene.tiles(),
        shape=shape,
        dtype=np.uint8,
        tile=(TILE, TILE),
        photometric="rgb",
        compression="zlib",
        compressionargs={"level": 1},
        bigtiff=True,
    )


def network():  # noqa: ANN201, a torch module
    """Return a network whose first output is the logit of "holds a red cross"."""
    import torch

    class Crosses(torch.nn.Module):
        """Matches red with the form of a cross, and takes the best place."""

        def __init__(self) -> None:
            super().__init__()
            size = 2 * ARM + 1
            form = torch.full((1, 1, size, size), 0.0)
            middle = slice(ARM - THICK, ARM + THICK + 1)
            form[..., middle, :] = 1
            form[..., :, middle] = 1
            around = (form == 0).float()
            kernel = form / form.sum() - around / around.sum()
            self.match = torch.nn.Conv2d(1, 1, size, stride=2, padding=ARM, bias=False)
            self.match.weight = torch.nn.Parameter(kernel, requires_grad=False)

        def forward(self, tiles: torch.Tensor) -> torch.Tensor:
            redness = tiles[:, :1] - tiles[:, 1:].amax(dim=1, keepdim=True)
            best = self.match(redness).amax(dim=(1, 2, 3))
            return torch.stack([20 * (best - 0.4), 20 * (0.4 - best)], dim=1)

    return Crosses().eval()


def child(path: Path, out: Path) -> None:
    """Explain a file in this process, and print the measurements as JSON."""
    import resource

    import torch

    import hshap

    torch.set_num_threads(1)

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    steps: dict[str, dict[str, float]] = {}
    clock = [time.perf_counter(), time.process_time()]

    def step(name: str) -> None:
        now = [time.perf_counter(), time.process_time()]
        steps[name] = {
            "seconds": now[0] - clock[0],
            "cpu_seconds": now[1] - clock[1],
            "peak_gb": peak(),
        }
        clock[:] = now

    model = hshap.Batched(network(), batch_size=8)
    step("start")
    explainer = hshap.Explainer(model)
    found = hshap.large.explain_tiles(
        explainer, path, hshap.Output(0, "sigmoid"), tiles=hshap.large.Tiles(TILE, overlap=OVERLAP)
    )
    step("explain")
    found.save(out / "found.npz")
    hshap.export.write_json(out / "found.geojson", hshap.export.geojson(found, name="cross"))
    step("save and export")
    hshap.export.page.write_page(
        out / "page.html", hshap.export.page.large_views(path, {"cross": found}), title="Crosses"
    )
    step("page")
    rows, columns = found.scores.shape
    print(
        json.dumps(
            {
                "steps": steps,
                "tiles": rows * columns,
                "found_tiles": len(found.inside),
                "unexplained": found.unexplained,
                "evaluations": found.evaluations,
                "boxes": [[*box.start, *box.stop] for box in found.boxes()],
                "concerns": [str(one) for one in found.concerns],
            }
        )
    )


def measure(side: int, folder: Path) -> dict[str, Any]:
    """Make the picture, explain it in a fresh process, and compare findings with the objects."""
    scene = Scene.drawn(side)
    path = folder / "crosses.tif"
    if not path.exists():
        write(path, scene)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.experiments.large", str(path), str(folder)],
        check=True,
        capture_output=True,
        text=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    boxes = np.array(told.pop("boxes")).reshape(-1, 4)
    page = sum(file.stat().st_size for file in (folder / "page_files").rglob("*") if file.is_file())
    return {
        "side": side,
        "file_gb": path.stat().st_size / 2**30,
        "page_gb": page / 2**30,
        **told,
        **judged(boxes, scene.boxes()),
    }


def judged(found: NDArray[np.int64], truth: NDArray[np.int64]) -> dict[str, Any]:
    """Return how many crosses were found, how many findings are none, and how well boxes fit."""
    low = np.maximum(found[:, None, :2], truth[None, :, :2])
    high = np.minimum(found[:, None, 2:], truth[None, :, 2:])
    common = np.clip(high - low, 0, None).prod(axis=2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(axis=1) for boxes in (found, truth)]
    overlap = common / (areas[0][:, None] + areas[1][None] - common)
    matched = overlap >= LEAST
    return {
        "objects": len(truth),
        "found": int(matched.any(axis=0).sum()),
        "findings": len(found),
        "false": int((~matched.any(axis=1)).sum()),
        "twice": int((matched.sum(axis=0) > 1).sum()),
        "median_overlap": float(np.median(overlap.max(axis=0))),
        "smallest_overlap": float(overlap.max(axis=0).min()),
    }


def run() -> None:
    """Measure the large picture, and write the result."""
    with tempfile.TemporaryDirectory(prefix="hshap-large-") as folder:
        made = {"task": "large", **measure(SIDE, Path(folder)), **provenance()}
    results.write_experiment(made, page(made))


def page(made: dict[str, Any]) -> str:
    """Return the result as Markdown."""
    steps = [
        (name, f"{one['seconds']:.0f}", f"{one['cpu_seconds']:.0f}", f"{one['peak_gb']:.2f}")
        for name, one in made["steps"].items()
    ]
    lines = [
        ("file, GiB", f"{made['file_gb']:.2f}"),
        ("as bytes in memory, GiB", f"{3 * made['side'] ** 2 / 2**30:.1f}"),
        (f"tiles of {TILE} pixels, overlapping by {OVERLAP}", f"{made['tiles']:,}"),
        ("tiles found and looked into", made["found_tiles"]),
        ("evaluations", f"{made['evaluations']:,}"),
        ("red crosses found", f"{made['found']} of {made['objects']}"),
        (f"findings among {OTHERS} blue crosses and red discs", made["false"]),
        ("crosses found twice", made["twice"]),
        ("overlap with the true boxes, median", f"{made['median_overlap']:.2f}"),
        ("the page, GiB", f"{made['page_gb']:.2f}"),
    ]
    head = ["step", "seconds", "CPU seconds", "peak memory so far, GiB"]
    source = f"One process, one thread. Commit {made['commit']}, {made['date']}."
    return (
        "\n\n".join([markdown.table(head, steps), markdown.table(["", ""], lines), source]) + "\n"
    )


if __name__ == "__main__":
    child(Path(sys.argv[1]), Path(sys.argv[2]))
