"""How evaluations and own time grow with side, findings, smallest size, classes and images.

An oracle that costs nothing decides, so the time is the library's own.
"""

from __future__ import annotations

from math import lgamma, log
from typing import TYPE_CHECKING, Any

import numpy as np

import hshap
from benchmarks.core.meter import timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

FINDINGS = (1, 2, 4, 10, 30, 100)
SIZES = (1, 2, 4, 8, 16, 32)
SEVERAL = (1, 2, 5, 10, 20)
DRAWS = 5


def floor(cells: int, findings: int) -> float:
    """Return the bits that name the cells with findings: no search can do with fewer questions."""
    ways = lgamma(cells + 1) - lgamma(findings + 1) - lgamma(cells - findings + 1)
    return ways / log(2)


def by_findings(side: int) -> dict[str, Any]:
    """Count evaluations on grids of single pixels, for several numbers of findings."""
    rows: list[dict[str, Any]] = []
    for findings in FINDINGS:
        for partition in ("Bisection", "Dyadic"):
            spent = [
                _run(side, findings, partition=partition, seed=seed)["evaluations"]
                for seed in range(DRAWS if side <= 256 else 2)
            ]
            least = floor(side * side, findings)
            rows.append(
                {
                    "side": side,
                    "findings": findings,
                    "partition": partition,
                    "evaluations": float(np.mean(spent)),
                    "floor": least,
                    "ratio": float(np.mean(spent)) / least,
                    "worst": float(np.max(spent)) / least,
                }
            )
    return {"rows": rows}


def by_side(side: int) -> dict[str, Any]:
    """Explain one image of a side with ten findings, down to cells of 8 pixels."""
    return {"side": side, **_run(side, 10, min_size=8)}


def by_size() -> dict[str, Any]:
    """Explain one image down to several smallest sizes."""
    return {"rows": [{"min_size": n} | _run(1024, 10, min_size=n) for n in SIZES]}


def by_classes() -> dict[str, Any]:
    """Explain several classes of one image together."""
    return {"rows": [{"classes": n} | _run(256, 10, classes=n) for n in SEVERAL]}


def by_images() -> dict[str, Any]:
    """Explain several images in one call."""
    return {"rows": [{"images": n} | _run(256, 10, images=n) for n in SEVERAL]}


def _run(  # noqa: PLR0913, all are settings of one run
    side: int,
    findings: int,
    *,
    partition: str = "Bisection",
    min_size: int = 1,
    classes: int = 1,
    images: int = 1,
    seed: int = 0,
) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    places = rng.choice(side * side, (classes, findings), replace=False)
    image = np.zeros((1, side, side), dtype=np.float32)
    image.reshape(-1)[places.reshape(-1)] = 1.0
    explainer = hshap.Explainer(
        _oracle(places),
        baseline=hshap.Constant(0.0),
        partition=getattr(hshap, partition)(min_size),
    )

    def explain() -> list[hshap.Explanation]:
        if images > 1:
            return list(explainer.explain_many((image.copy(), 0) for _ in range(images)))
        return explainer.explain(image, target=list(range(classes)))

    found, seconds = timed(explain)
    return {"seconds": seconds, "evaluations": sum(e.evaluations for e in found)}


def _oracle(places: NDArray[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return a model with a class for each row of places: 1 iff any of them is shown."""

    def oracle(batch: NDArray[Any]) -> NDArray[Any]:
        flat = batch.reshape(len(batch), -1)
        return np.stack([(flat[:, mine] > 0).any(axis=1) for mine in places], axis=1).astype(float)

    return oracle
