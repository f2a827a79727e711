"""Simulations with a known truth: p-values, e-values, power, error rates and costs.

Images have 8 x 8 pixels; the model sums the pixels of a few cells of 2 x 2. A region is a true null
if it holds no pixel that the model reads and, where the sampler reads shown pixels, shares no block
of correlated pixels with one.
"""

from __future__ import annotations

import json
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

import hshap
from benchmarks.core.folders import cache
from hshap.explanation.guarantees.evidence_values import running
from hshap.explanation.guarantees.randomisation import p_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SIDE, CELL, BLOCK, SHARED = 8, 2, 4, 0.7
NULLS, IMAGES, ALPHA = 10_000, 2000, 0.05


def independent(image: Floats, visible: Any, draws: int, rng: np.random.Generator) -> Floats:
    """Draw pixels that do not depend on each other."""
    del visible
    return rng.normal(size=(draws, *image.shape))


def correlated(image: Floats, visible: Any, draws: int, rng: np.random.Generator) -> Floats:
    """Draw images with a common part in all pixels, whichever pixels are shown."""
    del visible
    shared = rng.normal(size=(draws, 1, 1, 1))
    return np.sqrt(SHARED) * shared + np.sqrt(1 - SHARED) * rng.normal(size=(draws, *image.shape))


def exact(image: Floats, visible: Any, draws: int, rng: np.random.Generator) -> Floats:
    """Draw hidden pixels given the shown ones, exactly; blocks of 4 x 4 pixels are correlated."""
    out = np.empty((draws, *image.shape))
    for top in range(0, SIDE, BLOCK):
        for left in range(0, SIDE, BLOCK):
            place = (slice(top, top + BLOCK), slice(left, left + BLOCK))
            seen = image[0][place][visible[place]]
            precision = 1 + len(seen) * SHARED / (1 - SHARED)
            mean = np.sqrt(SHARED) * seen.sum() / (1 - SHARED) / precision
            common = mean + rng.normal(size=(draws, 1, 1)) / np.sqrt(precision)
            noise = rng.normal(size=(draws, BLOCK, BLOCK))
            out[(slice(None), 0, *place)] = np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * noise
    return out


def wrong(image: Floats, visible: Any, draws: int, rng: np.random.Generator) -> Floats:
    """Draw pixels that are brighter the more is shown, although in truth they are not."""
    return rng.normal(size=(draws, *image.shape)) + 10.0 * visible.mean()


SAMPLERS = {"independent": independent, "correlated": correlated, "exact given shown": exact}


def simulate(
    seed: int, sampler: Callable[..., Floats], *, error: str, early: bool, alpha: float = ALPHA
) -> tuple[hshap.Explanation, NDArray[np.bool_]]:
    """Return a tested explanation of one simulated image, and the pixels that are no true null."""
    rng = np.random.default_rng((seed, 7))
    reads = np.zeros((SIDE, SIDE))
    for cell in rng.permutation(SIDE**2 // CELL**2)[: rng.integers(1, 4)].tolist():
        top, left = (CELL * place for place in divmod(cell, SIDE // CELL))
        reads[top : top + CELL, left : left + CELL] = 1 / CELL**2
    image = sampler(np.zeros((1, SIDE, SIDE)), np.zeros((SIDE, SIDE), bool), 1, rng)[0]
    image = image + 2.0 * (reads > 0)
    explainer = hshap.Explainer(
        lambda batch: (batch * reads).sum(axis=(1, 2, 3)),
        baseline=hshap.Conditional(sampler, draws=2, seed=seed),
        partition=hshap.Bisection(min_size=CELL),
    )
    found = explainer.explain(image, target=0)
    matters = reads > 0
    if sampler is exact:
        blocks = matters.reshape(SIDE // BLOCK, BLOCK, SIDE // BLOCK, BLOCK).any(axis=(1, 3))
        matters = np.kron(blocks, np.ones((BLOCK, BLOCK))) > 0
    made = explainer.test(found, image, error=error, early=early, seed=seed, alpha=alpha)
    return made, matters


def error_rates() -> list[dict[str, Any]]:
    """Return the rates of false regions over simulated images, and the costs of the tests.

    Rows are kept in the cache as they are made, since each takes minutes.
    """
    settings = [(name, sampler, True, IMAGES) for name, sampler in SAMPLERS.items()]
    settings += [
        ("exact given shown", exact, False, IMAGES),
        ("wrong on purpose", wrong, True, 200),
    ]
    rows: list[dict[str, Any]] = []
    for name, sampler, early, images in settings:
        for error in ("family", "discovery"):
            path = cache("guarantees", f"{name}-{error}-{early}.json")
            if not path.exists():
                made = _rate(name, sampler, error, early=early, images=images)
                path.write_text(json.dumps(made))
            rows.append(json.loads(path.read_text()))
    return rows


def _rate(
    name: str, sampler: Callable[..., Floats], error: str, *, early: bool, images: int
) -> dict[str, Any]:
    shares, power, costs, nulls, e_values, saved = [], [], [], 0, [], []
    for seed in range(images):
        made, matters = simulate(seed, sampler, error=error, early=early)
        rows = made.significance(error=error).regions
        false = [not matters[row.region.index].any() for row in rows]
        kept = [bad for bad, row in zip(false, rows, strict=True) if row.adjusted <= ALPHA]
        shares.append(fmean(kept) if error == "discovery" and kept else float(any(kept)))
        nulls += sum(bad and row.leaf for bad, row in zip(false, rows, strict=True))
        e_values += [row.e for bad, row in zip(false, rows, strict=True) if bad]
        there = [row for bad, row in zip(false, rows, strict=True) if row.leaf and not bad]
        power += [row.adjusted <= ALPHA for row in there]
        saved += [row.rounds for row in rows if row.adjusted <= ALPHA]
        costs.append(made.tests.evaluations / made.evaluations)
    print(name, error, fmean(shares), flush=True)
    return {
        "sampler": name,
        "error": error,
        "early": early,
        "images": images,
        "rate": fmean(shares),
        "null leaves": nulls,
        "mean e-value of nulls": fmean(e_values),
        "power": fmean(power),
        "mean cost": fmean(costs),
        "largest cost": max(costs),
        "median rounds of clear regions": float(np.median(saved)) if saved else None,
    }


def p_values(count: int = NULLS, rounds: int = 16) -> dict[str, Any]:
    """Return how p-values and e-values of null regions are distributed."""
    rng = np.random.default_rng(0)
    out: dict[str, Any] = {"count": count, "rounds": rounds}
    for kind in ("normal", "discrete"):
        size = (count, 2, rounds)
        pairs = rng.normal(size=size) if kind == "normal" else rng.integers(0, 3, size)
        differences = (pairs[:, 0] - pairs[:, 1]).astype(float)
        plain = np.array([p_value(d, flips=999, seed=i) for i, d in enumerate(differences)])
        split = np.array(
            [p_value(d, flips=999, seed=i, ties="random") for i, d in enumerate(differences)]
        )
        grid = np.arange(1, 1001) / 1000
        below, even = ((found[:, None] <= grid + 1e-9).mean(0) for found in (plain, split))
        values = np.array([running(d)[-1] for d in differences])
        out[kind] = {
            "most that p-values are below uniform": float((below - grid).max()),
            "largest distance with ties at random": float(np.abs(even - grid).max()),
            "1 % limit of that distance": float(1.63 / np.sqrt(count)),
            "mean e-value": float(values.mean()),
            "its standard error": float(values.std() / np.sqrt(count)),
        }
    return out


def power() -> list[dict[str, float]]:
    """Return the power at 0.05 by the number of rounds, and the one that Student's law predicts."""
    from scipy import stats

    rng, shift, images = np.random.default_rng(1), 0.5, 2000
    found = []
    for rounds in (6, 8, 12, 16, 24, 32, 48, 64):
        differences = rng.normal(shift, 1.0, (images, rounds))
        hits = [p_value(d, flips=499, seed=i) <= ALPHA for i, d in enumerate(differences)]
        by_e = [running(d).max() >= 1 / ALPHA for d in differences]
        critical = stats.t.ppf(1 - ALPHA, rounds - 1)
        predicted = stats.nct.sf(critical, rounds - 1, shift * np.sqrt(rounds))
        found.append(
            {
                "rounds": rounds,
                "power": fmean(hits),
                "predicted": float(predicted),
                "by e-values": fmean(by_e),
            }
        )
    return found
