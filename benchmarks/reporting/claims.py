"""The claims of the paper, one by one, and the verdict of our own results.

Verdicts are computed from the committed rows, so they change with them. One method leads
another where the 95 % interval of the difference, image by image, is above zero. The paper's
h-Shap is represented by our quadtree and by the authors' package, whichever is better. Cost is
evaluations of the model for one image: unlike seconds, they are the same on every machine.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.core import results
from benchmarks.core.folders import RESULTS
from benchmarks.core.tasks import SEED
from hshap.metrics import paired_bootstrap

YES, NO = "confirmed", "not confirmed"
OWN = "confirmed only under its own measure"
PARTLY = "confirmed in part"
PROVED = "proved in the paper, tested here"

ZERO = ("h-shap quadtree tau=0", "h-shap 0.1.6 tau=0")
RELATIVE = ("h-shap quadtree tau=70%", "h-shap 0.1.6 tau=70%")
PAPER = (*ZERO, *RELATIVE)
GRAD_CAM = "Grad-CAM"
PARTITION = tuple(f"PartitionExplainer {budget}" for budget in (500, 64, 32, 16))
SHAPLEY = ("GradientExplainer", "DeepExplainer", *PARTITION)
PEERS = (*SHAPLEY, "LIME", "LIME paper", GRAD_CAM)  # the methods that the paper compares with
SETS = ("synthetic", "malaria")
NOISE, VALIDATED = "f1", "f1_validated"
MEASURES = {NOISE: "at 1e-6", VALIDATED: "validated"}
GONE = 0.2  # below this rank correlation nothing is left of a map
STEADY = 0.05

Scores = dict[str, dict[str, dict[str, float]]]  # method, measure, image


@dataclass(frozen=True)
class Claim:
    """A claim, the verdict, and the evidence for it."""

    text: str
    verdict: str
    evidence: str


@dataclass(frozen=True, eq=False)
class Group:
    """The results of one set, or of one group of its images."""

    name: str
    scores: Scores
    entries: dict[str, dict[str, Any]]
    curves: dict[str, dict[str, list[float]]]

    def best(self, methods: tuple[str, ...], measure: str) -> str:
        """Return the method with the highest mean."""
        there = [m for m in methods if m in self.entries]
        return max(there, key=lambda m: self.entries[m][measure][0])

    def value(self, method: str, measure: str) -> float:
        return self.entries[method][measure][0]

    def lead(self, one: str, other: str, measure: str) -> tuple[float, float, float]:
        """Return the mean difference of two methods over images, with its interval."""
        first, second = self.scores[one][measure], self.scores[other][measure]
        images = sorted(first.keys() & second.keys())
        pairs = [[scores[i] for i in images] for scores in (first, second)]
        return tuple(paired_bootstrap(*pairs, draws=results.DRAWS, seed=SEED))


def claims() -> list[Claim]:
    """Return every claim with its verdict."""
    parts = [part for task in SETS for part in groups(task)]
    synthetic = {part.name: part for part in groups("synthetic")}
    return [
        *_proved(),
        _network(),
        _more_accurate("the other Shapley-based methods", SHAPLEY, parts),
        _more_accurate("PartitionExplainer at every budget (appendix C)", PARTITION, parts),
        _faster(parts),
        _only_grad_cam(parts),
        _relative(parts),
        _number_of_crosses(synthetic),
        _ablation(parts),
        _randomisation(),
    ]


@cache
def groups(task: str) -> tuple[Group, ...]:
    """Return a task's groups."""
    summary = results.read_summary(task)
    scores: dict[str, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for row in results.read_rows(task):
        for measure in MEASURES:
            group = row["group"] or "all"
            scores[group][row["method"]][measure][row["image"]] = float(row[measure])
    return tuple(
        Group(
            task if name == "all" else f"{task}, {name}",
            scores[name],
            entries,
            summary["ablation"][name],
        )
        for name, entries in summary["groups"].items()
    )


def _proved() -> list[Claim]:
    texts = (
        "Under the OR rule h-Shap finds the exact Shapley values",
        "It visits at most gamma k log n nodes, and on average as many as the formula says",
        "The similarity to the exact values has a lower bound in s",
    )
    return [Claim(text, PROVED, "brute force in tests/test_paper.py") for text in texts]


def _network() -> Claim:
    test = json.loads((RESULTS / "train_synthetic.json").read_text())["splits"]["test"]
    verdict = YES if test["wilson_95"][0] > 0.99 else NO
    low, high = (100 * limit for limit in test["wilson_95"])
    shown = f"{100 * test['accuracy']:.1f} % [{low:.1f}, {high:.1f}]"
    return Claim("The ConvNet is right on over 99 % of the synthetic test images", verdict, shown)


def _more_accurate(whom: str, others: tuple[str, ...], parts: list[Group]) -> Claim:
    outcomes, told = defaultdict(list), []
    for part in parts:
        for measure, how in MEASURES.items():
            one, other = part.best(PAPER, measure), part.best(others, measure)
            lead = part.lead(one, other, measure)
            outcomes[measure].append(_sign(lead))
            told.append(
                f"{part.name} {how}: {part.value(one, measure):.2f} against "
                f"{part.value(other, measure):.2f} ({other}), difference {_shown(lead)}"
            )
    ahead = {measure: [sign > 0 for sign in signs] for measure, signs in outcomes.items()}
    if all(ahead[NOISE]):
        verdict = YES if all(ahead[VALIDATED]) else OWN
    else:
        verdict = PARTLY if any(ahead[NOISE]) else NO
    return Claim(f"h-Shap's maps have a higher F1 than {whom}", verdict, "; ".join(told))


def _faster(parts: list[Group]) -> Claim:
    text = "It is one to two orders of magnitude faster than the other Shapley-based methods"
    ratios = {
        (part.name, m): _spent(part, m) / _spent(part, ZERO[0])
        for part in parts
        for m in SHAPLEY
        if m in part.entries
    }
    share = np.mean([ratio >= 10 for ratio in ratios.values()])
    verdict = YES if share == 1 else PARTLY if share > 0 else NO
    told = [
        f"{part.name}: "
        + ", ".join(f"{m} {ratio:.2g}" for (name, m), ratio in ratios.items() if name == part.name)
        for part in parts
    ]
    return Claim(text, verdict, "times the quadtree's evaluations: " + "; ".join(told))


def _only_grad_cam(parts: list[Group]) -> Claim:
    text = "Only Grad-CAM is faster, and it is less accurate"
    told, only, worse = [], [], []
    for part in parts:
        limit = _spent(part, ZERO[0])
        cheaper = [m for m in PEERS if m in part.entries and _spent(part, m) < limit]
        lead = part.lead(part.best(PAPER, NOISE), GRAD_CAM, NOISE)
        only.append(set(cheaper) <= {GRAD_CAM})
        worse.append(_sign(lead) > 0)
        told.append(
            f"{part.name}: fewer evaluations have {', '.join(cheaper) or 'none'}; "
            f"F1 at 1e-6 {_shown(lead)} above Grad-CAM's"
        )
    verdict = YES if all(only + worse) else PARTLY if all(only) or all(worse) else NO
    return Claim(text, verdict, "; ".join(told))


def _relative(parts: list[Group]) -> Claim:
    text = "A relative tolerance of 70 % raises F1 and lowers the runtime"
    told, better, faster = [], [], []
    for part in parts:
        lead = part.lead(RELATIVE[0], ZERO[0], NOISE)
        ratio = _spent(part, RELATIVE[0]) / _spent(part, ZERO[0])
        better.append(_sign(lead) > 0)
        faster.append(ratio < 1)
        told.append(f"{part.name}: F1 at 1e-6 {_shown(lead)}, {ratio:.2f} of the evaluations")
    verdict = YES if all(better + faster) else PARTLY if all(better) or all(faster) else NO
    return Claim(text, verdict, "; ".join(told))


def _number_of_crosses(parts: dict[str, Group]) -> Claim:
    text = "Its F1 does not depend on the number of crosses; that of others is lower with one"
    one, six = parts["synthetic, 1 cross"], parts["synthetic, 6 crosses"]

    def change(method: str) -> float:
        return one.value(method, NOISE) - six.value(method, NOISE)

    others = [m for m in PEERS if m in one.entries]
    steady = [abs(change(m)) < STEADY for m in PAPER]
    fall = [change(m) < 0 for m in others]
    verdict = YES if all(steady + fall) else PARTLY if any(steady) else NO
    told = [f"{m} {one.value(m, NOISE):.2f} and {six.value(m, NOISE):.2f}" for m in PAPER]
    blind = f"but so is a random map ({one.value('random', NOISE):.2f} and "
    blind += f"{six.value('random', NOISE):.2f}): there is less to find"
    return Claim(text, verdict, f"{'; '.join(told)}; {sum(fall)} of {len(others)} fall, {blind}")


def _ablation(parts: list[Group]) -> Claim:
    text = "The logit falls fastest as the pixels it ranks highest are removed"
    told, fastest = [], []
    for part in parts:
        areas = {m: _remaining(curve) for m, curve in part.curves.items()}
        ours, other = (
            min((m for m in some if m in areas), key=lambda m: areas[m]) for some in (ZERO, PEERS)
        )
        fastest.append(areas[ours] < areas[other])
        told.append(f"{part.name}: {areas[ours]:.2f}, and {areas[other]:.2f} for {other}")
    verdict = YES if all(fastest) else PARTLY if any(fastest) else NO
    evidence = "share of the evidence that remains, on average over log-spaced counts: "
    return Claim(text, verdict, evidence + "; ".join(told))


def _randomisation() -> Claim:
    text = "Every method's map is gone when all weights are random (appendix E)"
    found = results.read_summary("sanity")["similarity"]
    last = {m: found[m]["absolute"][-1][0] for m in (*PAPER, *PEERS) if m in found}
    kept = [m for m, value in last.items() if value > GONE]
    told = ", ".join(f"{m} {value:.2f}" for m, value in last.items())
    blind = found["centre"]["absolute"][-1][0]
    evidence = f"size of the rank correlation before and after: {told}; a map that never asks the "
    evidence += f"model keeps {blind:.2f}"
    return Claim(text, PARTLY if kept and len(kept) < len(last) else NO if kept else YES, evidence)


def _spent(part: Group, method: str) -> float:
    return part.entries[method]["evaluations"][0]


def _remaining(curve: dict[str, list[float]]) -> float:
    """Return the mean height of a curve, from 0 at its end to 1 at the whole image."""
    scores = np.array(curve["mean"])
    share = (scores[1:] - scores[-1]) / (scores[0] - scores[-1])
    return float(np.clip(share, 0, 1).mean())


def _sign(lead: tuple[float, float, float]) -> int:
    _, low, high = lead
    return 1 if low > 0 else -1 if high < 0 else 0


def _shown(lead: tuple[float, float, float]) -> str:
    value, low, high = lead
    return f"{value:+.2f} [{low:+.2f}, {high:+.2f}]"
