"""Explain the image of a case with either package, and the oracles that decide about it.

An oracle scores 1 if any marker is visible and looks at nothing else, so that it costs next to
nothing and the time is the package's own.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hshap
from benchmarks.core.meter import Meter, Watch
from benchmarks.core.reference import load_reference
from benchmarks.speed.cases import SHOWN
from hshap.partitions.regions import blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from benchmarks.speed.cases import Case, PartitionName, Scene
    from hshap.evaluators.canvas import Row


def with_reference(
    model: torch.nn.Module, case: Case, drawn: Scene, threshold: float
) -> NDArray[Any]:
    """Return the map of the authors' package."""
    explainer = load_reference().Explainer(model, torch.from_numpy(drawn.baseline))
    with torch.no_grad():
        found = explainer.explain(
            # The reference changes the shape of the very tensor that it is given, so give a view.
            torch.from_numpy(drawn.image)[:],
            label=0,
            s=case.s,
            threshold_mode="absolute",
            threshold=threshold,
            softmax_activation=False,
        )
    return found[0].numpy()


def with_hshap(
    model: Any,
    case: Case,
    drawn: Scene,
    partition: PartitionName,
    threshold: float = 0.0,
) -> hshap.Explanation:
    """Return our explanation, down to the leaves of the reference."""
    explainer = hshap.Explainer(
        model,
        baseline=hshap.Fixed(drawn.baseline),
        partition=getattr(hshap, partition)(min_size=case.min_size),
        search=hshap.DepthFirst(tolerance=threshold),
    )
    return explainer.explain(drawn.image, target=0)


def support_digest(heat: NDArray[Any]) -> str:
    """Return a digest of the marked pixels: maps with the same one mark the same pixels."""
    return hashlib.sha256(np.packbits(heat > 0).tobytes()).hexdigest()


def numpy_oracle(drawn: Scene, watch: Watch) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return the oracle as a function of NumPy arrays."""

    def oracle(batch: NDArray[Any]) -> NDArray[Any]:
        with watch.running(len(batch)):
            shown = batch[:, 0, drawn.rows, drawn.columns] > SHOWN
            return np.asarray(shown.any(axis=1), dtype=np.float32)

    return oracle


def torch_oracle(drawn: Scene, watch: Watch | None = None) -> Meter:
    """Return the oracle as a torch module with one class."""
    rows, columns = torch.from_numpy(drawn.rows), torch.from_numpy(drawn.columns)

    def oracle(batch: torch.Tensor) -> torch.Tensor:
        shown = batch[:, 0, rows, columns] > SHOWN
        return shown.any(dim=1, keepdim=True).float()

    return Meter(oracle, watch, pixels_at_once=None).eval()


class Decided:
    """An evaluator whose network computes every input, while an oracle gives the scores.

    The search then goes where the markers are, although the network is not trained. This is no
    dataclass, whose fields an explanation describes: fingerprints of the scene would count as time
    of the package.
    """

    def __init__(self, inner: hshap.Incremental | hshap.Batched, drawn: Scene) -> None:
        self._inner, self._drawn = inner, drawn

    def open_session(self) -> DecidedSession:
        return DecidedSession(self._inner.open_session(), self._drawn)


class DecidedSession:
    """Scores rows twice: by the network, which takes the time, and by the oracle."""

    def __init__(self, inner: Any, drawn: Scene) -> None:
        self._inner, self._drawn = inner, drawn

    def put(self, array: NDArray[Any]) -> Any:
        return self._inner.put(array)

    def capacity(self, shape: tuple[int, ...], itemsize: int) -> int:
        return self._inner.capacity(shape, itemsize)

    def score(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        self._inner.score(rows)
        return np.array([[float(self._shows(row))] for row in rows])

    def _shows(self, row: Row) -> bool:
        points = list(zip(self._drawn.rows, self._drawn.columns, strict=True))
        bounds = [b for region in row.kept for b in blocks(region, row.canvas.grid)]
        return any(
            top <= y < bottom and left <= x < right
            for (top, left), (bottom, right) in bounds
            for y, x in points
        )
