"""Runs whose cost is compared with predictions: crosses and drawings, by several searches.

The drawings are of families for judging. Nothing of `hshap cost` was chosen on these images.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hshap
from benchmarks.core.tasks import Synthetic
from benchmarks.datasets.families import FAMILIES, TARGETS, example
from benchmarks.methods.common import probability
from benchmarks.models import finder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZE = 10
"""Smallest side of regions in pixels, as `--min-size 10`."""

TOLERANCE = 0.15
EACH = 12
"""Images of each source with one number of objects."""

STYLES = ("stroke 2", "size 28 to 40")
NUMBERS = (1, 6)
PARTITIONS: dict[str, Any] = {
    "quadtree": hshap.Dyadic(SIZE),
    "bisection": hshap.Bisection(SIZE),
    "superpixels": hshap.Superpixels(min_area=SIZE**2),
}
SEARCHES: dict[str, Any] = {
    "DepthFirst": hshap.DepthFirst(TOLERANCE),
    "BreadthFirst": hshap.BreadthFirst(70),
    "Share": hshap.Share(0.2),
    "GroupTesting": hshap.GroupTesting(TOLERANCE),
}


@dataclass(frozen=True, eq=False)
class Asked:
    """An image with its model, its baseline, its target and the number of its objects."""

    source: str
    model: Any
    image: Any
    baseline: Any
    target: Callable[[Any], Any]
    findings: int


def runs() -> Iterator[dict[str, Any]]:
    """Explain every image with every partition and search; yield evaluations and CPU seconds."""
    torch.set_num_threads(1)
    each: dict[int, float] = {}
    for number, asked in enumerate(images()):
        each.setdefault(id(asked.model), seconds_of_an_evaluation(asked.model, asked.image.shape))
        for (partition, made), (search, way) in itertools.product(
            PARTITIONS.items(), SEARCHES.items()
        ):
            model = hshap.Batched(asked.model, check_batches=False)
            explainer = hshap.Explainer(model, hshap.Fixed(asked.baseline), made, way)
            started = time.process_time()
            found = explainer.explain(asked.image, target=asked.target)
            yield {
                "source": asked.source,
                "findings": asked.findings,
                "image": number,
                "partition": partition,
                "search": search,
                "evaluations": found.evaluations,
                "seconds": time.process_time() - started,
                "seconds_of_an_evaluation": each[id(asked.model)],
            }


def images() -> Iterator[Asked]:
    """Yield images that their model finds positive."""
    task = Synthetic(each=EACH)
    subject = task.subject()
    for one in task.positives("fresh", quick=False):
        count = len(one.objects[task.concept])
        yield Asked("crosses", subject.model, one.image, subject.baseline, probability, count)
    model = finder.load()
    for family in FAMILIES["judging"]:
        for number in NUMBERS if family.name in STYLES else ():
            drawn = (example(family, number, seed) for seed in itertools.count())
            asked = (
                Asked(family.name, model, one.image, one.ground, Presence(shape), number)
                for one, shape in drawn
            )
            yield from itertools.islice(filter(_is_positive, asked), EACH)


@dataclass(frozen=True)
class Presence:
    """The target: the probability that an image holds a kind of shape."""

    kind: str

    def __call__(self, outputs: Any) -> Any:
        logits = np.asarray(outputs, dtype=np.float64)[:, TARGETS.index(self.kind)]
        return 1 / (1 + np.exp(-logits))


def seconds_of_an_evaluation(model: Any, shape: tuple[int, ...]) -> float:
    """Return the CPU time of one input in a full batch, the median of a few."""
    batch, found = torch.rand(32, *shape), list[float]()
    with torch.inference_mode():
        for _ in range(5):
            started = time.process_time()
            model(batch)
            found.append(time.process_time() - started)
    return float(np.median(found)) / len(batch)


def _is_positive(asked: Asked) -> bool:
    with torch.no_grad():
        outputs = asked.model(torch.from_numpy(asked.image[None])).numpy()
    return bool(asked.target(outputs)[0] > 0.5)
