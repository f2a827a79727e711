"""Evaluations and time: against the authors' package, and against full forward passes.

Run `benchmarks/run speed`. Three comparisons:

- Synthetic images: evaluations of both packages on the same images, and the leaves they find.
- ResNet-18 on 1200 x 1600 pixels with 1 and 10 markers: hshap with `Incremental` and bisection,
  against the authors' package. Its time is its own time, with a model that costs nothing, plus its
  games times the time of one game of 16 inputs.
- Explanations by `Incremental` and by full passes of several networks, on 448 x 512 pixels.

Networks have random weights: they take the time, and an oracle that sees the markers gives the
scores. Times are CPU seconds of one thread, the smaller of two, each in a process of its own, so
other work on the machine changes them little.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hshap
from benchmarks.core import markdown, results
from benchmarks.core.meter import Meter, Watch
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.reference import load_reference
from benchmarks.datasets import synthetic
from benchmarks.methods.common import probability
from benchmarks.models import modern
from benchmarks.models.resnet import ResNet18
from hshap.demo import bundled, load
from hshap.partitions.regions import blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hshap.evaluators.canvas import Row

SEED, TURNS, IMAGES = 11, 2, 20  # images for each number of crosses
CLASSES = 10
SIZE = 8  # both packages then end at leaves of 6 to 8 pixels a side
NOISE = 1e-6  # above the rounding noise of the reference, whose rounding makes it visit more
LARGE, SMALL = (3, 1200, 1600), (3, 448, 512)
MARKERS = (1, 10)
LEAST = {LARGE: (75, 100), SMALL: (28, 32)}  # sides of the leaves
REACHED_BY = 80  # the side that makes the reference end at the same leaves of the large image
SHOWN = 0.8  # a marker is brighter; all else is darker
PARTITIONS = {"quadtree": hshap.Dyadic, "bisection": hshap.Bisection}
NETWORKS: dict[str, Callable[[], torch.nn.Module]] = {
    "ResNet-18": partial(ResNet18, CLASSES),
    "ConvNeXt-T": lambda: modern.convnext(
        (96, 192, 384, 768), (3, 3, 9, 3), modern.PermutedNorm, CLASSES
    ),
    "RegNetX-400MF-like": lambda: modern.regnet(
        (32, 64, 160, 384), (1, 2, 7, 12), 16, "X", CLASSES
    ),
    "MobileNet-v3-like": lambda: modern.mobilenet_v3(1.0, CLASSES),
    "EfficientNet-B0-like": lambda: modern.efficientnet(1.0, CLASSES),
}


@dataclass(frozen=True, eq=False)
class Scene:
    """An image of noise with markers, a baseline of its shape, and the markers' places."""

    image: NDArray[Any]
    baseline: NDArray[Any]
    rows: NDArray[Any]
    columns: NDArray[Any]

    @classmethod
    def drawn(cls, shape: tuple[int, int, int], markers: int) -> Scene:
        rng = np.random.default_rng(SEED)
        places = rng.choice(shape[1] * shape[2], size=markers, replace=False)
        rows, columns = np.unravel_index(places, shape[1:])
        image = rng.random(shape, dtype=np.float32) * np.float32(SHOWN / 2)
        image[:, rows, columns] = 1.0
        return cls(image, np.full(shape, SHOWN / 4, np.float32), rows, columns)

    def sees(self, batch: torch.Tensor) -> torch.Tensor:
        """Score 1 for each image that shows a marker."""
        shown = batch[:, 0, torch.from_numpy(self.rows), torch.from_numpy(self.columns)] > SHOWN
        return shown.any(dim=1, keepdim=True).float()


class Decided:
    """An evaluator whose network computes every input, while the scene gives the scores."""

    def __init__(self, inner: Any, scene: Scene) -> None:
        self.inner, self.scene = inner, scene

    def open_session(self) -> DecidedSession:
        return DecidedSession(self.inner.open_session(), self.scene)


class DecidedSession:
    """Scores rows twice: by the network, which takes the time, and by the markers in sight."""

    def __init__(self, inner: Any, scene: Scene) -> None:
        self.inner, self.scene = inner, scene

    def put(self, array: NDArray[Any]) -> Any:
        return self.inner.put(array)

    def capacity(self, shape: tuple[int, ...], itemsize: int) -> int:
        return self.inner.capacity(shape, itemsize)

    def score(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        self.inner.score(rows)
        return np.array([[float(self._shows(row))] for row in rows])

    def _shows(self, row: Row) -> bool:
        points = list(zip(self.scene.rows, self.scene.columns, strict=True))
        bounds = [b for region in row.kept for b in blocks(region, row.canvas.grid)]
        return any(
            top <= y < bottom and left <= x < right
            for (top, left), (bottom, right) in bounds
            for y, x in points
        )


def ours(network: str, shape: Any, markers: int, *, incremental: bool) -> dict[str, Any]:
    """Explain a scene with hshap and a network."""
    hshap.keep_memory()
    torch.manual_seed(SEED)
    model, scene = NETWORKS[network]().eval(), Scene.drawn(shape, markers)
    inner = hshap.Incremental(model) if incremental else hshap.Batched(model)
    explainer = hshap.Explainer(
        Decided(inner, scene),
        baseline=hshap.Fixed(scene.baseline),
        partition=hshap.Bisection(LEAST[shape]),
        search=hshap.DepthFirst(0.0),
    )
    begun = time.process_time()
    found = explainer.explain(scene.image, target=0)
    return {"seconds": time.process_time() - begun, "evaluations": found.evaluations}


def game(shape: Any) -> dict[str, Any]:
    """Time the 16 inputs of one game in one forward pass, as the authors' package does."""
    network, batch = ResNet18(2).eval(), torch.rand(16, *shape)
    with torch.no_grad():
        network(batch[:1])
        begun = time.process_time()
        network(batch)
        return {"seconds": time.process_time() - begun}


def reference(shape: Any, markers: int) -> dict[str, Any]:
    """Explain a scene with the authors' package and a model that costs nothing."""
    package, scene, watch = load_reference(), Scene.drawn(shape, markers), Watch()
    model = Meter(scene.sees, watch, pixels_at_once=None).eval()
    begun = time.process_time()
    explainer = package.Explainer(model, torch.from_numpy(scene.baseline))
    given = {"label": 0, "s": REACHED_BY, "threshold_mode": "absolute", "threshold": NOISE}
    with torch.no_grad():
        # A view, since it changes the shape of the very tensor that it is given.
        explainer.explain(torch.from_numpy(scene.image)[:], softmax_activation=False, **given)
    return {"seconds": time.process_time() - begun, "games": watch.evaluations // 16}


def alone(measure: Callable[..., dict[str, Any]], *args: Any, **settings: Any) -> dict[str, Any]:
    """Return the fastest of a few measurements, each in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        made = [pool.apply(_measured, (measure, args, settings)) for _ in range(TURNS)]
    fastest = min(made, key=lambda one: one["seconds"])
    print(measure.__name__, *args, settings, fastest, flush=True)
    return fastest


def _measured(measure: Any, args: Any, settings: Any) -> dict[str, Any]:
    torch.set_num_threads(1)
    found = measure(*args, **settings)
    return found | {"gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def leaves() -> dict[str, Any]:
    """Return mean evaluations of both packages on synthetic images, and how leaves agree."""
    model, mean = Meter(load(), pixels_at_once=None).eval(), bundled()["mean"]
    package = load_reference()
    rng = np.random.default_rng(SEED)
    images = [synthetic.draw(rng, crosses).image for crosses in [1] * IMAGES + [6] * IMAGES]
    spent: dict[str, list[int]] = {"h-shap 0.1.6": [], **{name: [] for name in PARTITIONS}}
    same = rounding = 0
    for image in images:
        explainer = package.Explainer(model, torch.from_numpy(mean.copy()))
        model.watch.reset()
        with torch.no_grad():
            theirs = explainer.explain(torch.from_numpy(image.copy()), label=1, s=SIZE, threshold=0)
        spent["h-shap 0.1.6"].append(model.watch.evaluations)
        for name, partition in PARTITIONS.items():
            explained = hshap.Explainer(
                hshap.Batched(model, check_batches=False),
                baseline=hshap.Fixed(mean),
                partition=partition(SIZE),
                search=hshap.DepthFirst(0.0),
            ).explain(image, target=probability)
            spent[name].append(explained.evaluations)
            if name == "quadtree":
                differ = (theirs[0].numpy() > 0) != (explained.saliency() > 0)
                least = np.full(differ.shape, np.inf)
                for one in explained.games:
                    for phi, part in zip(one.coefficients, one.children, strict=True):
                        least[part.index] = np.minimum(least[part.index], abs(phi))
                same += not differ.any()
                rounding += not least[differ].any()
    return {
        "images": len(images),
        "evaluations": {name: float(np.mean(counts)) for name, counts in spent.items()},
        "same": same,
        "same_but_rounding": rounding,
    }


def run() -> None:
    """Measure, and write the tables."""
    torch.set_num_threads(1)
    load_reference()
    content: dict[str, Any] = {"task": "speed", **provenance(), "versions": versions()}
    content["leaves"] = leaves()
    one = alone(game, LARGE)
    content["authors"] = [
        {
            "markers": markers,
            "game": one,
            "reference": alone(reference, LARGE, markers),
            "ours": alone(ours, "ResNet-18", LARGE, markers, incremental=True),
        }
        for markers in MARKERS
    ]
    content["networks"] = {
        name: {
            way: alone(ours, name, SMALL, max(MARKERS), incremental=way == "incremental")
            for way in ("full", "incremental")
        }
        for name in NETWORKS
    }
    results.write_experiment(content, page(content))


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    found = content["leaves"]
    counts = [(name, f"{mean:.0f}") for name, mean in found["evaluations"].items()]
    rows = []
    for case in content["authors"]:
        games = case["reference"]["games"]
        theirs = case["reference"]["seconds"] + games * case["game"]["seconds"]
        mine = case["ours"]
        cells = (f"{games} games, {theirs:.0f} s", f"{mine['seconds']:.1f} s, {mine['gb']:.1f} GB")
        rows.append((case["markers"], *cells, f"{theirs / mine['seconds']:.0f}"))
    networks = [
        (
            name,
            ways["full"]["evaluations"],
            f"{ways['full']['seconds']:.1f}",
            f"{ways['incremental']['seconds']:.1f}",
            f"{ways['full']['seconds'] / ways['incremental']['seconds']:.1f}",
        )
        for name, ways in content["networks"].items()
    ]
    agree = (
        f"The leaves of the quadtree are the same on {found['same']} of {found['images']} images, "
        f"and on {found['same_but_rounding']} but for regions whose coefficient is rounding noise."
    )
    head = ("network, 448 x 512", "evaluations", "full passes, s", "`Incremental`, s", "faster")
    return "\n\n".join(
        [
            markdown.table(
                [f"tolerance 0, {found['images']} synthetic images", "evaluations"], counts
            ),
            agree,
            markdown.table(
                ["markers, ResNet-18, 1200 x 1600", "h-shap 0.1.6", "hshap", "times faster"], rows
            ),
            markdown.table(head, networks),
            f"CPU seconds of one thread. Commit {content['commit']}, {content['date']}.\n",
        ]
    )
