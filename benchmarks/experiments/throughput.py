"""Runs over an archive: own cost beside the model, memory over time, and reading rows again.

Run `benchmarks/run throughput`. Times are CPU seconds of one process, so other work on the machine
changes them little.

- own cost: the library alone and a whole run explain the same made images of 100 x 120 pixels by
  the paper's quadtree and a small convolutional network.
- memory: 10,000 small images with a model that costs nothing, in one process.
- reading: rows are read again, from the disk to boxes and to maps, one by one.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hshap
from benchmarks.core import markdown, results
from benchmarks.core.provenance import provenance, versions
from hshap import runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OWN, CHUNK, MANY, PHOTOGRAPHS, READ = 384, 128, 10_000, 200, 1000
GRID = (100, 120)
BATCH, CHANNELS = 32, 20


def noise_with_squares(number: int) -> np.ndarray:
    """Return an image of noise with one to three bright squares."""
    rng = np.random.default_rng(number)
    image = (0.2 * rng.random((3, *GRID))).astype(np.float32)
    for _ in range(rng.integers(1, 4)):
        y, x = rng.integers(0, GRID[0] - 10), rng.integers(0, GRID[1] - 10)
        image[0, y : y + 8, x : x + 8] = 1.0
    return image


def one_square(number: int) -> np.ndarray:
    """Return an image of 32 x 32 pixels with one bright square."""
    image = np.zeros((1, 32, 32), np.float32)
    y, x = number % 28, number // 28 % 28
    image[0, y : y + 4, x : x + 4] = 1.0
    return image


def photograph(number: int, side: int = 224) -> np.ndarray:
    """Return an image like a photograph: patches of several sizes, noise, and a bright disk."""
    rng = np.random.default_rng(number)
    image = np.zeros((3, side, side))
    for size in (56, 28, 14, 7):
        patches = rng.random((3, side // size + 1, side // size + 1))
        image += size / 56 * np.kron(patches, np.ones((size, size)))[:, :side, :side]
    image = image / image.max() + 0.03 * rng.normal(size=image.shape)
    y, x = rng.integers(30, side - 30, 2)
    rows, columns = np.mgrid[:side, :side]
    image[0][(rows - y) ** 2 + (columns - x) ** 2 < 400] += 1.5
    return image.astype(np.float32)


class Lazily:
    """A sequence of images that are made when they are asked for."""

    def __init__(self, make: Callable[[int], np.ndarray], count: int) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> np.ndarray:
        return self.make(number)


class Watched:
    """A small network as a function, with a watch on the CPU time of its calls."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers: list[torch.nn.Module] = [torch.nn.Conv2d(3, CHANNELS, 5, 2, 2), torch.nn.ReLU()]
        for _ in range(2):
            layers += [torch.nn.Conv2d(CHANNELS, CHANNELS, 3, 1, 1), torch.nn.ReLU()]
        last = torch.nn.Linear(CHANNELS, 1)
        torch.nn.init.uniform_(last.weight, 0.2, 1.0)
        ends = (torch.nn.AdaptiveMaxPool2d(1), torch.nn.Flatten(), last)
        self._network = torch.nn.Sequential(*layers, *ends).eval()
        self.seconds, self.inputs = 0.0, 0

    @torch.inference_mode()
    def __call__(self, batch: np.ndarray) -> np.ndarray:
        begun = time.process_time()
        scores = self._network(torch.from_numpy(batch)).numpy()
        self.seconds += time.process_time() - begun
        self.inputs += len(batch)
        return scores


def explained(made: hshap.Explainer, images: Sequence[np.ndarray], folder: Path) -> runs.Run:
    return runs.explain_dataset(made, images, folder, target=0, positives=None, model_id="made")


def own_cost(home: Path) -> dict[str, float]:
    """Return CPU milliseconds of an image: the model, the library beside it, and a whole run."""
    watched = Watched()
    made = hshap.Explainer(
        hshap.Batched(watched, batch_size=BATCH),
        baseline=hshap.Constant(0.1),
        partition=hshap.Dyadic(min_size=8),
        search=hshap.Share(0.2, max_evaluations=100),
    )
    explained(made, [noise_with_squares(0)], home / "once")  # libraries are imported once
    found: Counter[str] = Counter()
    for begin in range(0, OWN, CHUNK):
        images = [noise_with_squares(number) for number in range(begin, begin + CHUNK)]
        for name in ("library", "run"):
            watched.seconds, watched.inputs = 0.0, 0
            begun = time.process_time()
            if name == "library":
                list(made.explain_many((image, 0) for image in images))
            else:
                explained(made, images, home / f"own-{begin}")
            taken = time.process_time() - begun
            found.update({name: taken - watched.seconds})  # type: ignore[dict-item]
        found.update({"model": watched.seconds, "inputs": watched.inputs})  # type: ignore[dict-item]
    return {
        "inputs": found["inputs"] / OWN,
        **{f"{name}_ms": 1000 * found[name] / OWN for name in ("model", "library", "run")},
    }


class Memory(threading.Thread):
    """Notes the memory of this process once a second, in MiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[float] = []
        self._ended = threading.Event()

    def run(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE") / 2**20
        while not self._ended.wait(1.0):
            self.samples.append(int(Path("/proc/self/statm").read_text().split()[1]) * page)

    def close(self) -> tuple[float, float]:
        """Return the medians of the first and the last third of the time."""
        self._ended.set()
        self.join()
        first, last = np.array_split(self.samples, 3)[::2]
        return float(np.median(first)), float(np.median(last))


def memory(home: Path) -> dict[str, float]:
    """Explain many small images in this process; return its memory, and sizes."""
    watch = Memory()
    watch.start()
    made = hshap.Explainer(
        lambda batch: batch.max(axis=(1, 2, 3)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Dyadic(min_size=4),
    )
    run = explained(made, Lazily(one_square, MANY), home / "small")
    first, last = watch.close()
    size = sum(file.stat().st_size for file in (home / "small").rglob("*.parquet"))
    return {"images": len(run), "bytes": size / MANY, "first": first, "last": last}


def reading(folder: Path) -> dict[str, float]:
    """Return the CPU seconds to read a thousand rows again, to boxes and to maps."""

    def of_a_thousand(use: Callable[[hshap.Explanation], object]) -> float:
        begun, done = time.process_time(), 0
        for explanation, _ in zip(runs.open(folder), range(READ), strict=False):
            use(explanation)
            done += 1
        return 1000 * (time.process_time() - begun) / done

    list(zip(runs.open(folder), range(8), strict=False))  # libraries are imported once
    return {
        "boxes": of_a_thousand(lambda one: one.boxes()),
        "maps": of_a_thousand(lambda one: one.attribution()),
    }


def run() -> None:
    """Measure, and write the table."""
    torch.set_num_threads(1)
    hshap.keep_memory()
    with tempfile.TemporaryDirectory(prefix="throughput-") as folder:
        home = Path(folder)
        content: dict[str, Any] = {"task": "throughput", **provenance(), "versions": versions()}
        content["own_cost"] = own_cost(home)
        content["memory"] = memory(home)
        bright = hshap.Explainer(lambda b: np.maximum(b[:, 0] - 1.2, 0).sum(axis=(1, 2)) / 300)
        explained(bright, Lazily(photograph, PHOTOGRAPHS), home / "photographs")
        read = {"32 x 32, quadtree": "small", "224 x 224, default call": "photographs"}
        content["reading"] = {shown: reading(home / name) for shown, name in read.items()}
    results.write_experiment(content, page(content))


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    own, memory = content["own_cost"], content["memory"]
    lines = [
        ("evaluations of an image of 100 x 120 pixels", f"{own['inputs']:.0f}"),
        ("the network's time for an image", f"{own['model_ms']:.0f} ms"),
        ("own cost of an image: the library alone", f"{own['library_ms']:.1f} ms"),
        (
            "own cost of an image: the whole run, with row, audit, boxes and shard",
            f"{own['run_ms']:.1f} ms",
        ),
        (f"memory of {MANY:,} small images, first third of the time", f"{memory['first']:.0f} MiB"),
        ("the same, last third of the time", f"{memory['last']:.0f} MiB"),
        ("a stored row of a small image", f"{memory['bytes'] / 1000:.1f} kB"),
    ]
    for shown, read in content["reading"].items():
        lines.append((f"boxes of 1,000 rows, {shown}", f"{read['boxes']:.1f} s"))
        lines.append((f"maps of 1,000 rows, {shown}", f"{read['maps']:.1f} s"))
    source = f"CPU time of one process. Commit {content['commit']}, {content['date']}."
    return f"{markdown.table(['', 'measured'], lines)}\n\n{source}\n"
