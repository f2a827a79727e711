"""Runs at full speed: the share of the time that goes into the model, and memory over time.

Run `benchmarks/run throughput`, about 13 minutes on two cores that do nothing else. Made images of
100 x 120 pixels are explained by a small convolutional network. It measures as a user finds the
machine: in a process without the settings of `benchmarks/run` for threads and memory.

- whole: 10,000 images in two local processes, as `Processes(2)` starts them: images and inputs a
  second, and the memory of all processes over time. Thirds of it count from the first finished task
  on: before it, workers import their libraries. Before and after the run, two processes do nothing
  but full batches of the network: the raw throughput of the machine.

- own cost: the library alone and a whole run take turns on the same images, in one process. Every
  tenth batch of the network is followed by a full one by itself, which gives the raw throughput of
  that moment. All times are CPU times. A run of one image comes first: the time to import libraries
  comes once, and is told by itself.
- workers: runs in one process and in two take turns, on the same images; wall-clock time.
- small: 10,000 small images with a model that costs nothing, in one process: memory over time.
- reading: CPU time to read rows again, for the small images, for those of 100 x 120 pixels of the
  first run, and for made photographs of 224 x 224 pixels by the default call.

`HSHAP_IMAGES` is the number of images of the first one, 10,000 if it is not given; the others take
a twentieth and a fiftieth of it. Results go to `results/throughput`, with the load of the
machine.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import hshap
from benchmarks.core.folders import RESULTS
from hshap import runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap._util.types import Untyped

IMAGES = 10_000
READ = 1000
CHANNELS = 20
PRIVATE = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
)
"""Settings that `benchmarks/run` makes and a user does not."""

RAW_SECONDS = 10.0
"""Time for which the network runs alone, before and after."""

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
    layers = [torch.nn.Conv2d(3, CHANNELS, 5, 2, 2), torch.nn.ReLU()]
    for _ in range(2):
        layers += [torch.nn.Conv2d(CHANNELS, CHANNELS, 3, 1, 1), torch.nn.ReLU()]
    made = torch.nn.Sequential(
        *layers, torch.nn.AdaptiveMaxPool2d(1), torch.nn.Flatten(), torch.nn.Linear(CHANNELS, 1)
    ).eval()
    with torch.no_grad():
        made[-1].weight[:] = torch.nn.init.uniform_(torch.empty(1, CHANNELS), 0.2, 1.0)
    return made


def explainer(model: Untyped = None) -> hshap.Explainer:
    """Return the explainer: the paper's quadtree, with at most 100 evaluations."""
    return hshap.Explainer(
        hshap.Batched(model or network(), batch_size=BATCH),
        baseline=hshap.Constant(0.1),
        partition=hshap.Dyadic(min_size=8),
        search=hshap.Share(0.2, max_evaluations=100),
    )


class Watched:
    """The network with a watch: the CPU time of its calls, and of full batches by themselves.

    A function and no module, so that nothing but its calls is measured.
    """

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self._network, self._torch = network(), torch
        self._full = torch.rand(BATCH, 3, *GRID)
        self.begin()

    def begin(self) -> None:
        """Forget everything that was measured."""
        self.seconds, self.beside, self.inputs, self.calls = 0.0, 0.0, 0, 0
        self.raw: list[float] = []

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        begun = time.process_time()
        scores = self._scores(self._torch.from_numpy(batch))
        ended = time.process_time()
        self.seconds += ended - begun
        self.inputs += len(batch)
        self.calls += 1
        if self.calls % 10 == 1:
            self._scores(self._full)
            self.raw.append((time.process_time() - ended) / BATCH)
            self.beside += time.process_time() - ended
        return scores

    def _scores(self, batch: Untyped) -> np.ndarray:
        with self._torch.inference_mode():
            return self._network(batch).numpy()


def own_cost(count: int, home: Path, chunk: int = 128) -> dict:
    """Return the share of raw throughput and the own cost of a run, and of the library alone.

    Every chunk is a run of its own. It includes the work that each run does once, such as the two
    explanations of its first image that tell how far batches agree; a run over an archive does this
    once for all images.
    """
    watched = Watched()
    made = explainer(watched)
    found = {name: Counter() for name in ("library", "run")}
    ratios = []
    begun = time.process_time()  # once for each process: libraries are imported, a model warms up
    runs.explain_dataset(
        made, [Crosses(1)[0]], home / "once", target=0, positives=None, model_id="synthetic"
    )
    once = time.process_time() - begun - watched.beside - watched.seconds
    for begin in range(0, count, chunk):
        images = [Crosses(count)[n] for n in range(begin, min(begin + chunk, count))]
        for name in found:
            watched.begin()
            begun = time.process_time()
            if name == "library":
                made_now = list(made.explain_many((image, 0) for image in images))
                del made_now
            else:
                folder = home / f"own-{begin}"
                runs.explain_dataset(
                    made, images, folder, target=0, positives=None, model_id="synthetic"
                )
            taken = time.process_time() - begun - watched.beside
            raw = float(np.median(watched.raw)) * watched.inputs
            found[name] += Counter(taken=taken, model=watched.seconds, raw=raw)
            found[name] += Counter(images=len(images), inputs=watched.inputs)
            if name == "run":
                ratios.append(raw / taken)
    return {
        "chunks": len(ratios),
        "once_seconds_beside_the_model": once,
        "share_of_raw_throughput": found["run"]["raw"] / found["run"]["taken"],
        "share_quartiles": np.percentile(ratios, [25, 50, 75]).tolist(),
        "inputs_per_image": found["run"]["inputs"] / found["run"]["images"],
        **{
            f"{name}_ms_beside_the_model": 1000 * (one["taken"] - one["model"]) / one["images"]
            for name, one in found.items()
        },
        "model_ms": 1000 * found["run"]["model"] / found["run"]["images"],
    }


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


def raw_rate(seconds: float) -> float:
    """Return the inputs a second of the network alone, in this process: full batches, no more."""
    import torch

    torch.set_num_threads(1)  # as in a worker, whose cores are divided among the workers
    hshap.keep_memory()  # as in a worker
    model, full = network(), torch.rand(BATCH, 3, *GRID)
    with torch.inference_mode():
        model(full)
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            model(full)
            done += BATCH
    return done / (time.perf_counter() - begun)


def raw_of_two(seconds: float) -> float:
    """Return the inputs a second of two processes at once that do nothing else."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return sum(pool.map(raw_rate, [seconds] * 2, chunksize=1))


def whole(count: int, home: Path, seconds: float) -> dict:
    """Explain all images in two processes; return throughput, its share of the raw one, memory."""
    raw = [raw_of_two(seconds)]
    watch, told, starts = Memory(), [], []

    def note(progress: runs.RunProgress) -> None:
        told.append(progress)
        starts.append(len(watch.samples))

    watch.start()
    run = runs.explain_dataset(
        explainer(),
        Crosses(count),
        home / "whole",
        target=0,
        positives=None,
        executor=runs.Processes(2),
        progress=note,
    )
    samples = watch.close()
    raw.append(raw_of_two(seconds))
    last = told[-1]
    rate = last.evaluations / last.seconds
    at_work = np.array(samples[starts[0] :])
    first, end = np.array_split(at_work, 3)[::2] if len(at_work) > 2 else ([0], [0])
    return {
        "images": len(run),
        "seconds": last.seconds,
        "images_per_second": last.rate,
        "inputs_per_second": rate,
        "raw_inputs_per_second": raw,
        "share_of_raw_throughput": rate / float(np.mean(raw)),
        "mib_first_third": float(np.median(first)),
        "mib_last_third": float(np.median(end)),
        "mib": [round(value, 1) for value in samples[:: max(1, len(samples) // 200)]],
    }


def workers(count: int, home: Path, rounds: int = 3) -> dict:
    """Return how much faster two processes are than one, in turns on the same images."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(rounds):
        for number, times in rates.items():
            told: list[runs.RunProgress] = []
            runs.explain_dataset(
                explainer(),
                Crosses(count),
                home / f"{number}-{turn}",
                target=0,
                positives=None,
                executor=runs.Processes(number, threads=1),
                task_images=16,
                progress=told.append,
            )
            # From the first task on: a process takes seconds to start, whatever it has to do.
            first, last = told[0], told[-1]
            times.append((last.finished - first.finished) / (last.seconds - first.seconds))
    faster = np.array(rates[2]) / np.array(rates[1])
    return {
        "images": count,
        "images_per_second": [rates[1], rates[2]],
        "speed_up": float(np.median(faster)),
        "lowest": float(faster.min()),
        "highest": float(faster.max()),
    }


@dataclass(frozen=True)
class Small:
    """Images of 32 x 32 pixels with one bright square."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> np.ndarray:
        image = np.zeros((1, 32, 32), np.float32)
        y, x = number % 28, number // 28 % 28
        image[0, y : y + 4, x : x + 4] = 1.0
        return image


def brightest(batch: np.ndarray) -> np.ndarray:
    """Score the brightest pixel."""
    return batch.max(axis=(1, 2, 3))


def memory(count: int, home: Path) -> dict:
    """Explain many small images in this process; return its memory over time, and sizes."""
    watch, seen = Memory(), []
    watch.start()
    made = hshap.Explainer(
        brightest, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(min_size=4)
    )
    begun = time.process_time()
    run = runs.explain_dataset(
        made,
        Small(count),
        home / "small",
        target=0,
        positives=None,
        progress=lambda p: seen.append(p.finished),
    )
    taken, samples = time.process_time() - begun, watch.close()
    size = sum(file.stat().st_size for file in (home / "small").rglob("*.parquet"))
    first, last = np.array_split(np.array(samples), 3)[::2] if len(samples) > 2 else ([0], [0])
    return {
        "images": len(run),
        "cpu_ms_per_image": 1000 * taken / count,
        "bytes_per_row": size / count,
        "mib_first_third": float(np.median(first)),
        "mib_last_third": float(np.median(last)),
        "mib": [round(value, 1) for value in samples[:: max(1, len(samples) // 200)]],
    }


def draw(found: dict, path: Path) -> None:
    """Draw memory over the course of a run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 2.6), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(np.linspace(0, 100, len(found["mib"])), found["mib"], color="0.2")
    axes.set(xlabel="share of the run (%)", ylabel="memory (MiB)", ylim=(0, None))
    axes.set_title(f"{found['images']} images in two processes", fontsize="medium")
    figure.savefig(path, dpi=120)


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


def bright_area(batch: np.ndarray) -> np.ndarray:
    """Score the bright pixels."""
    return np.maximum(batch[:, 0] - 1.2, 0).sum(axis=(1, 2)) / 300


def photographs(count: int, home: Path) -> Path:
    """Explain photographs by the default call; return the run folder."""
    images = [photograph(number) for number in range(count)]
    made = hshap.Explainer(bright_area)
    runs.explain_dataset(made, images, home / "photographs", target=0, positives=None)
    return home / "photographs"


def reading(folder: Path, count: int) -> dict:
    """Return the CPU seconds to read up to `count` rows again in several ways.

    `thousand_boxes` and `thousand_maps` are those of a thousand rows, from the disk to boxes at a
    coarser size, and to maps, one row after the other: the run is opened for each, and none is kept
    in memory.
    """
    list(zip(runs.open(folder), range(8), strict=False))  # libraries are imported once

    def timed(use: Callable[[hshap.Explanation], object]) -> tuple[int, float]:
        begun, done = time.process_time(), 0
        for explanation, _ in zip(runs.open(folder), range(count), strict=False):
            use(explanation)
            done += 1
        return done, time.process_time() - begun

    begun = time.process_time()
    found = runs.open(folder).boxes()
    boxes = time.process_time() - begun
    read, explanations = timed(lambda one: one)
    _, coarser = timed(lambda one: one.at(min_area=2 * (one.settings.min_area or 32)).boxes())
    _, maps = timed(lambda one: one.attribution())
    return {
        "rows": len(found),
        "boxes_of_all_rows": boxes,
        "of": read,
        "explanations": explanations,
        "coarser_boxes": coarser,
        "maps": maps,
        "thousand_boxes": READ / read * coarser,
        "thousand_maps": READ / read * maps,
    }


def worked_out(own: dict) -> dict:
    """Return the images an hour of one core, and the hours of a million images, on paper."""
    own_ms = own["run_ms_beside_the_model"]
    each = (own_ms + own["model_ms"]) / 1000
    hours = 1e6 * each / 3600
    return {
        "hourly_per_core": 3600 / each,
        "million": {
            "core_hours": hours,
            "hours_of_32_cores": hours / 32,
            "own_core_hours": 1e6 * own_ms / 1000 / 3600,
        },
    }


def run(count: int | None = None, *, write: bool = True) -> None:
    """Measure, print, and write the results."""
    count = count or int(os.environ.get("HSHAP_IMAGES", IMAGES))
    given = [name for name in PRIVATE if name in os.environ]
    if given:
        clean = {name: value for name, value in os.environ.items() if name not in given}
        words = [sys.executable, "-m", "benchmarks.experiments.throughput", str(count)]
        subprocess.run([*words, *(["write"] if write else [])], env=clean, check=True)
        return
    home = Path(tempfile.mkdtemp(prefix="throughput-"))
    loads = [os.getloadavg()[0]]
    seconds = RAW_SECONDS if count >= IMAGES // 10 else 1.0
    try:
        document: dict = {"images": count, "whole": whole(count, home, seconds)}
        loads.append(os.getloadavg()[0])
        document["own_cost"] = own_cost(max(count // 20, 64), home)
        document["workers"] = workers(max(count // 50, 48), home)
        loads.append(os.getloadavg()[0])
        document["small"] = memory(count, home)
        folders = {"small": home / "small", "whole": home / "whole"}
        folders["photographs"] = photographs(min(200, max(count // 10, 8)), home)
        document["reading"] = {name: reading(one, READ) for name, one in folders.items()}
    finally:
        shutil.rmtree(home)
    document["load_averages"], document["cores"] = loads, os.cpu_count()
    document["load"] = max(loads)
    document |= worked_out(document["own_cost"])
    if write:
        folder = RESULTS / "throughput"
        folder.mkdir(parents=True, exist_ok=True)
        draw(document["whole"], folder / "memory.png")
        (folder / "throughput.json").write_text(json.dumps(document, indent=1) + "\n")
    document["whole"].pop("mib")
    document["small"].pop("mib")
    print(json.dumps(document, indent=1))


if __name__ == "__main__":  # a short form by hand: python -m ... 100
    run(int(sys.argv[1]), write="write" in sys.argv[2:])
