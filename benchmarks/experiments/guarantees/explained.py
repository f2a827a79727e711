"""The images of the conformal experiment: explained once, and kept in the cache.

Every set is explained by the default call with at most 40 evaluations; boards over the cells where
they differ from their template. Run `python -m benchmarks.experiments.guarantees.explained`.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch

import hshap
from benchmarks.core.folders import cache
from benchmarks.core.tasks import TASKS, fitted
from benchmarks.methods.common import probability

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from benchmarks.core.protocol import Corners, Subject

SETS = {"synthetic": 120, "boards": 100, "platelets": 40, "malaria": 40, "malaria-made": 80}
"""The most images of each set."""

BUDGET = 40


def explained(
    name: str,
) -> list[tuple[hshap.Explanation, NDArray[np.bool_], tuple[Corners, ...]]]:
    """Return the explanations of a set, with the masks and boxes of its objects."""
    return list(_explained(name))


def _explained(
    name: str,
) -> Iterator[tuple[hshap.Explanation, NDArray[np.bool_], tuple[Corners, ...]]]:
    torch.set_num_threads(1)
    task = TASKS[name]()
    subject = None
    for split in ("test", "validation"):
        every = task.positives(split, quick=False)
        if name == "synthetic":  # as many with six crosses as with one
            half = SETS[name] // 2
            every = (e for n, e in enumerate(every) if n < half or 300 <= n < 300 + half)
        for example in islice(every, SETS[name]):
            path = cache("guarantees", f"{name}-{split}-{example.name.replace('/', '_')}.npz")
            if not path.exists():
                subject = subject or task.subject()
                _explain(fitted(subject, example), example.image).save(path)
                print(name, split, example.name, flush=True)
            boxes = example.objects[task.concept]
            grid = example.image.shape[1:]
            yield hshap.Explanation.load(path), _truth(example.truths, boxes, grid), boxes
        if name == "synthetic":
            return


def _truth(
    truths: dict[str, NDArray[np.bool_]], boxes: Sequence[Corners], grid: tuple[int, ...]
) -> NDArray[np.bool_]:
    for mask in truths.values():
        return mask
    mask = np.zeros(grid, dtype=bool)
    for (top, left), (bottom, right) in boxes:
        mask[max(top, 0) : bottom, max(left, 0) : right] = True
    return mask


def _explain(subject: Subject, image: NDArray[np.float32]) -> hshap.Explanation:
    return hshap.Explainer(
        hshap.Batched(subject.model, check_batches=False),
        baseline=hshap.Fixed(subject.baseline),
        partition=hshap.Spots(subject.size) if subject.template else None,
        search=hshap.DepthFirst(max_evaluations=BUDGET),
    ).explain(image, target=probability)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or SETS:
        print(chosen, len(explained(chosen)), flush=True)
