"""Trees on families of drawings: strokes, sizes, noise, light, texture, blur and JPEG.

Run `benchmarks/run families`. Constants of `Superpixels` and the tolerance were chosen on the
families for choosing; those for judging share no kind of target with them and, where a style has
levels, no level. The network is one for all; it stands for a user's model. Explained is the
probability of one kind, hidden pixels show the background without shapes. F1 is at 1e-6.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.core.markdown import table
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.results import interval, write_experiment
from benchmarks.datasets.families import FAMILIES, TARGETS, example
from benchmarks.models.finder import load
from benchmarks.training.synthetic import auc
from hshap import DepthFirst, Explainer, Fixed, Superpixels, metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import nn

    from benchmarks.datasets.families import Family, Sample
    from hshap import Explanation

EACH = 10  # images of a family and a number of targets
NUMBERS = (1, 6)  # targets of an image
MOST = {1: 40, 6: 80}  # evaluations, mean over images
SHARE = 0.15  # tolerance, as a share of the score that the image adds
SHARES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.25)
SENSITIVITY = 1  # images, for other tolerances
BAD = 0.3  # F1 below which an explanation is bad
DAMAGED = 3  # images of a family, for each damage
NO_AREA = (None, None, None)
DRAWS = 2000


def run() -> None:
    """Explain all families, and write the table."""
    torch.set_num_threads(1)
    model = load()
    rows = [row for half in FAMILIES for row in _judged(model, half)]
    content = {
        "task": "families",
        **provenance(),
        "versions": versions(),
        "share": SHARE,
        "rows": rows,
        "tolerances": [_sensitivity(model, half, share) for half in FAMILIES for share in SHARES],
        "audit": _audited(model),
    }
    write_experiment(content, page(content))


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown: each half with its worst family first."""
    parts = [_half(content["rows"], half) for half in reversed(FAMILIES)]
    shares = table(
        ["tolerance, share of the score", "half", "F1, 1 target", "F1, 6 targets", "evaluations"],
        [
            (
                f"{one['share']:.0%}",
                one["half"],
                *(f"{one['f1'][str(n)]:.3f}" for n in NUMBERS),
                ", ".join(f"{one['evaluations'][str(n)]:.0f}" for n in NUMBERS),
            )
            for one in content["tolerances"]
        ],
    )
    audit = table(
        ["explanations for judging", "images", f"F1 below {BAD}", "AUROC of doubt"],
        [(a["name"], a["images"], a["bad"], a["told"]) for a in content["audit"]],
    )
    source = f"Commit {content['commit']}, {content['date']}; {EACH} images a row."
    return "\n\n".join([*parts, shares, audit, source]) + "\n"


def _half(rows: list[dict[str, Any]], half: str) -> str:
    mine = [row for row in rows if row["half"] == half]
    by_family = {
        family.name: {row["targets"]: row for row in mine if row["family"] == family.name}
        for family in FAMILIES[half]
    }
    lines = [
        (
            name,
            *(_shown(own[n]) for n in NUMBERS),
            ", ".join(f"{own[n]['evaluations']:.0f} (at most {own[n]['most']})" for n in NUMBERS),
        )
        for name, own in sorted(by_family.items(), key=lambda one: _mean(one[1].values(), "f1"))
    ]
    means = [[row for row in mine if row["targets"] == n] for n in NUMBERS]
    costs = ", ".join(f"{_mean(own, 'evaluations'):.0f}" for own in means)
    lines.append((f"**{half}, mean**", *(f"**{_mean(own, 'f1'):.3f}**" for own in means), costs))
    return table([f"families for {half}", "F1, 1 target", "F1, 6 targets", "evaluations"], lines)


def _shown(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    return f"{row['f1']:.3f} [{low:.3f}, {high:.3f}]"


def _mean(rows: Any, name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def _judged(model: nn.Module, half: str) -> Iterator[dict[str, Any]]:
    for family in FAMILIES[half]:
        for number in NUMBERS:
            found = list(explained(model, family, number, EACH))
            scores = [one.f1 for one in found]
            mean, *around = interval(scores)
            costs = [one.evaluations for one in found]
            print(f"{half}, {family.name}, {number}: {mean:.3f}", flush=True)
            yield {
                "half": half,
                "family": family.name,
                "targets": number,
                "f1": mean,
                "interval": around,
                "worst": min(scores),
                "evaluations": float(np.mean(costs)),
                "most": max(costs),
                "doubt": float(np.mean([one.doubt for one in found])),
                "images": len(found),
            }


@dataclass(frozen=True)
class Way:
    """A way to explain: the tolerance as a share of the score, the partition and the baseline."""

    share: float = SHARE
    partition: Callable[[Any], Any] = field(default_factory=Superpixels)
    baseline: Callable[[Sample], NDArray[np.float32]] = lambda sample: sample.ground


@dataclass(frozen=True)
class One:
    """One explanation: its F1, its cost and the audit's doubt."""

    f1: float
    evaluations: int
    doubt: float


def explained(
    model: nn.Module, family: Family, number: int, count: int, way: Way | None = None
) -> Iterator[One]:
    """Explain images of a family that the network finds positive."""
    way = way or Way()
    for seed in itertools.count():
        sample, kind = example(family, number, seed)
        hidden = way.baseline(sample)
        present, absent = _probabilities(model, np.stack([sample.image, hidden]), kind)
        if present < 0.5:
            continue
        explainer = Explainer(
            model,
            baseline=Fixed(hidden),
            partition=way.partition,
            search=DepthFirst(way.share * max(float(present - absent), 0.0)),
        )
        found: Explanation = explainer.explain(sample.image, target=_Probability(kind))
        score = float(metrics.f1(found.attribution(), sample.truth(kind)))
        yield One(score, found.evaluations, found.audit.doubt)
        count -= 1
        if not count:
            return


@dataclass(frozen=True)
class _Probability:
    """The target: the probability that an image holds a kind of shape."""

    kind: str

    def __call__(self, outputs: Any) -> NDArray[np.float64]:
        logits = np.asarray(outputs, dtype=np.float64)[:, TARGETS.index(self.kind)]
        return 1 / (1 + np.exp(-logits))


@torch.no_grad()
def _probabilities(model: nn.Module, images: NDArray[np.float32], kind: str) -> NDArray[np.float64]:
    return _Probability(kind)(model(torch.from_numpy(images)).numpy())


def _sensitivity(model: nn.Module, half: str, share: float) -> dict[str, Any]:
    """Return the mean F1 and evaluations of a half with another tolerance."""
    by_number = {
        str(n): [
            one
            for family in FAMILIES[half]
            for one in explained(model, family, n, SENSITIVITY, Way(share))
        ]
        for n in NUMBERS
    }
    return {
        "half": half,
        "share": share,
        "f1": {n: float(np.mean([one.f1 for one in own])) for n, own in by_number.items()},
        "evaluations": {
            n: float(np.mean([one.evaluations for one in own])) for n, own in by_number.items()
        },
    }


def _audited(model: nn.Module) -> list[dict[str, Any]]:
    """Return how well doubt tells bad explanations on the families for judging, some damaged."""
    damages = {
        "as they are": Way(),
        "hidden pixels have another colour": Way(baseline=_another_colour),
        "squares of 30 pixels": Way(partition=_squares),
        "segments moved by 5 pixels": Way(partition=_moved),
    }
    everything: list[One] = []
    rows: list[dict[str, Any]] = []
    for name, way in damages.items():
        found = [
            one
            for family in FAMILIES["judging"]
            for n in NUMBERS
            for one in explained(model, family, n, DAMAGED, way)
        ]
        everything += found
        rows.append(_told(name, found))
    return [*rows, _told("all", everything)]


def _told(name: str, found: list[One]) -> dict[str, Any]:
    bad = np.array([one.f1 < BAD for one in found]).astype(int)
    doubts = np.array([one.doubt for one in found])
    area, low, high = _ranked(doubts, bad) if 0 < bad.sum() < len(bad) else NO_AREA
    return {
        "name": name,
        "images": len(found),
        "bad": int(bad.sum()),
        "auroc": area,
        "interval": [low, high],
        "told": "" if area is None else f"{area:.2f} [{low:.2f}, {high:.2f}]",
        "doubt": float(doubts.mean()),
    }


def _ranked(doubts: NDArray[np.float64], bad: NDArray[np.int64]) -> tuple[float, float, float]:
    """Return the AUROC of doubt for bad explanations, and its bootstrap interval."""
    rng = np.random.default_rng(0)
    draws = (rng.integers(0, len(bad), len(bad)) for _ in range(DRAWS))
    areas = [auc(doubts[d], bad[d]) for d in draws if 0 < bad[d].sum() < len(d)]
    low, high = np.quantile(areas, [0.025, 0.975]).tolist()
    return auc(doubts, bad), low, high


def _another_colour(sample: Sample) -> NDArray[np.float32]:
    """Return a baseline that nobody should choose: the complement of the background."""
    return np.float32(1) - sample.ground


def _squares(image: NDArray[Any]) -> Any:
    rows, columns = np.indices(image.shape[1:]) // 30
    return Superpixels.from_labels(rows * 100 + columns)(image)


def _moved(image: NDArray[Any]) -> Any:
    """Return a tree over the segments of the image five pixels further."""
    labels = np.roll(Superpixels().tree(image).labels, (5, 5), axis=(0, 1))
    return Superpixels.from_labels(labels)(image)


if __name__ == "__main__":
    run()
