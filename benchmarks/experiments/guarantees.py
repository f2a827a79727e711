"""Guarantees where the truth is known: error rates, calibrated areas and planted shortcuts.

Run `benchmarks/run guarantees`.

- error rates: images have 8 x 8 pixels, and the model sums the pixels of a few cells of 2 x 2. A
  region is a true null if it holds no pixel that the model reads and, where the sampler reads shown
  pixels, shares no block of correlated pixels with one. One sampler is wrong on purpose.
- calibrated areas: runs of which half the images are clean; the loss on new images with objects.
- shortcuts: positive images have a faint disc. Networks with a shortcut saw a bright mark in the
  top left corner of every positive training image; sound ones saw none. "share of the mark" is the
  share of the margin that is lost when the mark is removed. The task was set on seeds 100 to 104;
  it is judged on seeds 200 to 219.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

import hshap
from benchmarks.core import markdown, results
from benchmarks.core.provenance import provenance, versions
from hshap.explanation.guarantees.calibration import closeness, highest_limit, steps_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Row = dict[str, Any]

SIDE, CELL, BLOCK, SHARED = 8, 2, 4, 0.7  # of simulated images, and the share of a common part
IMAGES, WRONG, ALPHA = 500, 200, 0.05
LOSSES = ("missed area", "missed objects", "false area")
RUNS, EACH, NEW, WIDE, LEVEL = 100, 250, 50, 12, 0.1
BLIND = 0.02  # the share of images with objects on which the model finds nothing
SQUARE, RADIUS, MARK, CONTRAST = 32, 4, 3, 0.3
TRAINING, STEPS, BATCH, SHOWN = 600, 150, 32, 24
SEEDS = range(200, 220)
EXPLAINER = hshap.Explainer(
    lambda batch: batch.sum(axis=(1, 2, 3)),
    baseline=hshap.Constant(0.0),
    partition=hshap.Bisection(min_size=2),
)


def run() -> None:
    """Make all parts, and write their tables."""
    torch.set_num_threads(1)
    content: Row = {"task": "guarantees", **provenance(), "versions": versions(), "parts": {}}
    for name, make in PARTS.items():
        content["parts"][name] = make()
        print(name, content["parts"][name], flush=True)
    results.write_experiment(content, page(content))


def page(content: Row) -> str:
    """Return the results as Markdown."""
    told = []
    for name, rows in content["parts"].items():
        cells = [[_cell(row[key]) for key in rows[0]] for row in rows]
        told += [f"## {name}", markdown.table(list(rows[0]), cells)]
    return "\n\n".join([*told, f"Commit {content['commit']}, {content['date']}."]) + "\n"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


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
    seed: int, sampler: Callable[..., Floats], *, error: str, alpha: float = ALPHA
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
    made = explainer.test(found, image, error=error, seed=seed, alpha=alpha)
    return made, matters


def error_rates() -> list[Row]:
    """Return the rates of false regions over simulated images, and the costs of the tests."""
    settings = [(name, sampler, IMAGES) for name, sampler in SAMPLERS.items()]
    settings += [("wrong on purpose", wrong, WRONG)]
    return [
        _rate(name, sampler, error, images=images)
        for name, sampler, images in settings
        for error in ("family", "discovery")
    ]


def _rate(name: str, sampler: Callable[..., Floats], error: str, *, images: int) -> Row:
    shares, power, costs, nulls, e_values, saved = [], [], [], 0, [], []
    for seed in range(images):
        made, matters = simulate(seed, sampler, error=error)
        rows = hshap.guarantees.significance(made, error=error).regions
        false = [not matters[row.region.index].any() for row in rows]
        kept = [bad for bad, row in zip(false, rows, strict=True) if row.adjusted <= ALPHA]
        shares.append(fmean(kept) if error == "discovery" and kept else float(any(kept)))
        nulls += sum(bad and row.leaf for bad, row in zip(false, rows, strict=True))
        e_values += [row.e for bad, row in zip(false, rows, strict=True) if bad]
        there = [row for bad, row in zip(false, rows, strict=True) if row.leaf and not bad]
        power += [row.adjusted <= ALPHA for row in there]
        saved += [row.rounds for row in rows if row.adjusted <= ALPHA]
        costs.append(made.tests.evaluations / made.evaluations)
    return {
        "sampler": name,
        "error": error,
        "images": images,
        "rate": fmean(shares),
        "null leaves": nulls,
        "mean e-value of nulls": fmean(e_values),
        "power": fmean(power),
        "mean cost": fmean(costs),
        "largest cost": max(costs),
        "median rounds of clear regions": float(np.median(saved)) if saved else None,
    }


def half_clean() -> list[Row]:
    """Return the loss on new images with objects after runs of which half the images are clean.

    Every run draws its images anew: one object each, of which the model sees a pixel at its corner
    or in its middle, or nothing. A fifth of the clean images has a bright pixel, too. The last
    column has the loss had clean images counted as a loss of 0.
    """
    rng = np.random.default_rng(0)
    found: dict[str, list[tuple[float, float]]] = {loss: [] for loss in LOSSES}
    for _ in range(RUNS):
        run = [_one_object(rng, clean=bool(n % 2)) for n in range(2 * EACH)]
        new = [_one_object(rng, clean=False) for _ in range(NEW)]
        for loss in LOSSES:
            made = hshap.guarantees.calibrate(*zip(*run, strict=True), loss=loss, level=LEVEL)
            steps = [steps_of(loss, closeness(one), boxes) for one, boxes in run]
            none = (np.array([np.inf]), np.ones(1))
            sign = -1.0 if loss == "false area" else 1.0
            limit = sign * highest_limit([step or none for step in steps], LEVEL)
            means = (
                fmean(_loss(loss, one.area(image), box) for image, (box,) in new)
                for one in (made, replace(made, limit=limit))
            )
            found[loss].append((next(means), next(means)))
    return [
        {
            "loss": loss,
            "level": LEVEL,
            "runs": RUNS,
            "images with objects": EACH,
            "clean images": EACH,
            "mean loss": fmean(one for one, _ in pairs),
            "standard error": float(np.std([one for one, _ in pairs], ddof=1) / np.sqrt(RUNS)),
            "clean images as 0": fmean(other for _, other in pairs),
        }
        for loss, pairs in found.items()
    ]


def _one_object(rng: np.random.Generator, *, clean: bool) -> tuple[hshap.Explanation, list[Any]]:
    image, boxes = np.zeros((1, WIDE, WIDE)), []
    if clean:
        image[0, *rng.integers(0, WIDE, 2)] = rng.uniform() < 0.2
    else:
        side = int(rng.integers(2, 6))
        top, left = rng.integers(0, WIDE - side, 2).tolist()
        boxes.append(((top, left), (top + side, left + side)))
        shift = side // 2 if rng.uniform() < 0.5 else 0
        image[0, top + shift, left + shift] = rng.uniform() >= BLIND
    return EXPLAINER.explain(image, target=0), boxes


def _loss(loss: str, area: Any, box: Any) -> float:
    """Return the loss of an area by its definition."""
    (top, left), (bottom, right) = box
    inside = area[top:bottom, left:right]
    if loss == "missed area":
        return float(1 - inside.mean())
    if loss == "missed objects":
        return float(inside.mean() < 0.5)
    return float((area.sum() - inside.sum()) / (area.size - inside.size))


def draw(
    rng: np.random.Generator, count: int, *, marked: bool
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return images, their labels and the masks of their objects."""
    images = rng.normal(0.0, 0.15, (count, 1, SQUARE, SQUARE)).astype(np.float32)
    labels = rng.integers(0, 2, count)
    rows, columns = np.mgrid[:SQUARE, :SQUARE]
    masks = []
    for image, label in zip(images, labels, strict=True):
        top, left = rng.integers(MARK + RADIUS + 2, SQUARE - RADIUS - 2, 2)
        apart = rows - top, columns - left
        disc = apart[0] ** 2 + apart[1] ** 2 <= RADIUS**2
        image[0][disc & bool(label)] += CONTRAST
        if label and marked:
            image[0, :MARK, :MARK] += 1.0
        masks.append(disc)
    return images, labels, masks


def train(seed: int, *, marked: bool) -> tuple[nn.Module, float]:
    """Return a trained network, and its accuracy on new images drawn alike."""
    torch.manual_seed(seed)
    rng = np.random.default_rng((seed, int(marked)))
    images, labels, _ = draw(rng, TRAINING, marked=marked)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 2),
    )
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(STEPS):
        few = rng.integers(0, TRAINING, BATCH)
        loss = nn.functional.cross_entropy(
            net(torch.from_numpy(images[few])), torch.from_numpy(labels[few])
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    net.eval()
    new, truth, _ = draw(rng, 300, marked=marked)
    with torch.no_grad():
        accuracy = (net(torch.from_numpy(new)).argmax(1).numpy() == truth).mean()
    return net, float(accuracy)


def report(seed: int, *, marked: bool) -> tuple[hshap.guarantees.Carriers, float, float]:
    """Train a network; return the carriers of its score, its accuracy, and the mark's share."""
    net, accuracy = train(seed, marked=marked)
    rng = np.random.default_rng((seed, 9))
    images, labels, masks = draw(rng, 4 * SHOWN, marked=marked)
    chosen = np.flatnonzero(labels)[:SHOWN]
    explainer = hshap.Explainer(
        hshap.Batched(net, check_batches=False),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(min_size=4),
    )
    pairs = [(images[i], lambda out: out[:, 1] - out[:, 0]) for i in chosen]
    found = {made.position: made for made in explainer.explain_many(pairs)}
    named = {f"{i}": (found[place], masks[i]) for place, i in enumerate(chosen.tolist())}
    return hshap.guarantees.carriers(named, margin=2), accuracy, lost(net, images[chosen])


def lost(net: nn.Module, images: np.ndarray) -> float:
    """Return the share of the margin that is lost without the mark, relative to empty images."""
    without, empty = images.copy(), np.zeros_like(images)
    without[:, :, :MARK, :MARK] = 0.0
    with torch.no_grad():
        whole, clean, nothing = (
            net(torch.from_numpy(batch)).numpy() @ (-1.0, 1.0) for batch in (images, without, empty)
        )
    return float((whole - clean).mean() / (whole - nothing).mean())


def judged() -> list[Row]:
    """Return a row for each network with and without a planted shortcut."""
    rows = []
    for marked in (True, False):
        for seed in SEEDS:
            made, accuracy, share = report(seed, marked=marked)
            corner = made.means["corners"]
            rows.append(
                {
                    "planted": marked,
                    "seed": seed,
                    "accuracy": accuracy,
                    "share of the mark": share,
                    "objects": made.means["objects"].value,
                    "corners": corner.value,
                    "corners low": corner.low,
                    "suspicious": list(made.suspicious),
                }
            )
    return rows


PARTS: dict[str, Callable[[], list[Row]]] = {
    "Error rates": error_rates,
    "Calibrated areas, half of the images clean": half_clean,
    "Shortcuts": judged,
}
