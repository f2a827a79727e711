"""Runs at full speed: the share of the time that goes into the model, and memory over time.

Run `benchmarks/run throughput`. Synthetic images of 100 x 120 pixels are explained by a small
convolutional network, in one process and then in two, one thread each. The network alone, on
batches of the same size, gives the throughput to compare with. Results go to `results/throughput`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hshap
from benchmarks.core.folders import RESULTS
from hshap import runs

IMAGES = 10_000
READ = 1000
GRID = (100, 120)
BATCH = 32


@dataclass(frozen=True)
class Crosses:
    """Images of noise with one to three bright squares, made when they are asked for."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> np.ndarray:
        rng = np.random.default_rng(number)
        image = (0.2 * rng.random((3, *GRID))).astype(np.float32)
        for _ in range(rng.integers(1, 4)):
            y, x = rng.integers(0, GRID[0] - 10), rng.integers(0, GRID[1] - 10)
            image[0, y : y + 8, x : x + 8] = 1.0
        return image


def network():  # noqa: ANN201, torch is imported here alone
    """Return a network whose score is high if a square is there."""
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 32, 5, 2, 2), torch.nn.ReLU()]
    for _ in range(2):
        layers += [torch.nn.Conv2d(32, 32, 3, 1, 1), torch.nn.ReLU()]
    made = torch.nn.Sequential(
        *layers, torch.nn.AdaptiveMaxPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 1)
    ).eval()
    with torch.no_grad():
        made[-1].weight[:] = torch.nn.init.uniform_(torch.empty(1, 32), 0.2, 1.0)
    return made


def explainer() -> hshap.Explainer:
    """Return the explainer: the paper's quadtree, with at most 100 evaluations."""
    return hshap.Explainer(
        hshap.Batched(network(), batch_size=BATCH),
        baseline=hshap.Constant(0.1),
        partition=hshap.Dyadic(min_size=8),
        search=hshap.Share(0.2, max_evaluations=100),
    )


def raw_throughput(seconds: float = 5.0) -> float:
    """Return the inputs a second of the network alone, in one thread."""
    import torch

    torch.set_num_threads(1)
    made = network()
    batch = torch.rand(BATCH, 3, *GRID)
    with torch.inference_mode():
        made(batch)
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            made(batch)
            done += BATCH
        return done / (time.perf_counter() - begun)


class Memory(threading.Thread):
    """Notes the memory of this process and its children once a second, in MiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[float] = []
        self._stop_now = threading.Event()

    def run(self) -> None:
        while not self._stop_now.wait(1.0):
            self.samples.append(sum(map(_resident, [os.getpid(), *_children(os.getpid())])))

    def close(self) -> list[float]:
        self._stop_now.set()
        self.join()
        return self.samples


def _resident(process: int) -> float:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _children(process: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            found += [int(stat.parent.name), *_children(int(stat.parent.name))]
    return found


def timed(count: int, workers: int, folder: Path) -> dict:
    """Explain `count` images; return times, counts and memory."""
    seen: list[runs.RunProgress] = []
    memory = Memory()
    memory.start()
    begun = time.perf_counter()
    run = runs.explain_dataset(
        explainer(),
        Crosses(count),
        folder,
        target=0,
        executor=runs.Processes(workers, threads=1),
        progress=seen.append,
    )
    seconds = time.perf_counter() - begun
    samples = memory.close()
    size = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
    return {
        "workers": workers,
        "images": len(run),
        "seconds": seconds,
        "evaluations": seen[-1].evaluations,
        "images_per_second": count / seconds,
        "bytes_per_row": size / max(len(run), 1),
        "memory_mib": samples[:: max(1, len(samples) // 200)],
    }


def reading(folder: Path, count: int) -> dict:
    """Return the seconds to read up to `count` rows again in several ways."""
    begun = time.perf_counter()
    run = runs.open(folder)
    found = run.boxes()
    boxes = time.perf_counter() - begun
    begun = time.perf_counter()
    read = [explanation for explanation, _ in zip(run, range(count), strict=False)]
    explanations = time.perf_counter() - begun
    begun = time.perf_counter()
    for explanation in read:
        explanation.at(min_size=25).boxes()
    return {
        "rows": len(found),
        "boxes_of_all_rows": boxes,
        "explanations": explanations,
        "coarser_boxes": time.perf_counter() - begun,
        "of": len(read),
    }


def run(count: int | None = None) -> None:
    """Measure, print, and write the results."""
    count = count or int(os.environ.get("HSHAP_IMAGES", IMAGES))
    home = Path(tempfile.mkdtemp(prefix="throughput-"))
    try:
        raw = raw_throughput()
        made = [timed(count, workers, home / str(workers)) for workers in (1, 2)]
        read = reading(home / "1", READ)
    finally:
        shutil.rmtree(home)
    for one in made:
        ideal = one["evaluations"] / raw / one["workers"]
        one["share_of_raw_throughput"] = ideal / one["seconds"]
        one["own_ms_per_image"] = 1000 * (one["seconds"] - ideal) * one["workers"] / count
    document = {
        "raw_inputs_per_second": raw,
        "load_average": os.getloadavg()[0],
        "speed_up": made[0]["seconds"] / made[1]["seconds"],
        "runs": made,
        "reading": read,
    }
    folder = RESULTS / "throughput"
    if count >= IMAGES:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "throughput.json").write_text(json.dumps(document, indent=1) + "\n")
    for one in made:
        memory = one.pop("memory_mib")
        print(one, f"memory {min(memory, default=0):.0f} to {max(memory, default=0):.0f} MiB")
    print({key: value for key, value in document.items() if key != "runs"})


if __name__ == "__main__":
    run(int(sys.argv[1]))
