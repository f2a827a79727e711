"""What the paper claims, one by one, and what our own results say of it.

Verdicts are worked out from the committed results, so that they change with them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from benchmarks import results
from benchmarks.folders import RESULTS

YES, NO = "confirmed", "not confirmed"
OWN = "confirmed only under its own measure"
PARTLY = "confirmed in part"

ZERO, RELATIVE = "h-shap quadtree tau=0", "h-shap quadtree tau=70%"
QUADTREES = (ZERO, RELATIVE)
GRAD_CAM = "Grad-CAM"
SHAPLEY = (
    "GradientExplainer",
    "DeepExplainer",
    "PartitionExplainer 500",
    "PartitionExplainer 64",
    "PartitionExplainer 32",
    "PartitionExplainer 16",
)
PEERS = (*SHAPLEY, "LIME", "LIME paper", GRAD_CAM)
SETS = ("synthetic", "malaria", "boards")
PAPER, VALIDATED = "f1", "f1_validated"

Entries = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Claim:
    """Hold a claim, what became of it, and by what."""

    text: str
    verdict: str
    evidence: str


def claims() -> list[Claim]:
    """Return every claim with its verdict."""
    groups = {
        f"{task}, {group}" if group != "all" else task: entries
        for task in SETS
        for group, entries in results.read_summary(task)["groups"].items()
    }
    synthetic = results.read_summary("synthetic")["groups"]
    return [
        *_proved(),
        _network(),
        _more_accurate(groups),
        _faster(groups),
        _only_grad_cam(groups),
        _relative(groups),
        _number_of_crosses(synthetic),
        _partition(synthetic),
        *(_ablation(task) for task in SETS),
        _randomisation(),
    ]


def _proved() -> list[Claim]:
    tests = {
        "Under the OR rule h-Shap finds the exact Shapley values (theorem 3.1)": "test_paper",
        "It visits at most gamma k log n nodes, and as many as expected on average": "test_paper",
        "The similarity to the exact values has a lower bound in s": "test_paper",
    }
    return [
        Claim(text, YES, f"against brute force in tests/{name}.py") for text, name in tests.items()
    ]


def _network() -> Claim:
    test = json.loads((RESULTS / "train_synthetic.json").read_text())["splits"]["test"]
    verdict = YES if test["wilson_95"][0] > 0.99 else NO
    low, high = (100 * limit for limit in test["wilson_95"])
    shown = f"{100 * test['accuracy']:.1f} % [{low:.1f}, {high:.1f}]"
    return Claim("The ConvNet is right on over 99 % of the synthetic test images", verdict, shown)


def _more_accurate(groups: dict[str, Entries]) -> Claim:
    text = "h-Shap's maps have a higher F1 than those of the other Shapley-based methods"
    under = {m: [_leads(e, m) for e in groups.values()] for m in (PAPER, VALIDATED)}
    if all(under[PAPER]) and all(under[VALIDATED]):
        verdict = YES
    elif all(under[PAPER]):
        verdict = OWN
    else:
        verdict = PARTLY if any(under[PAPER]) else NO
    told = [
        f"{name}: {_best(e, QUADTREES, PAPER)} against {_best(e, SHAPLEY, PAPER)} at 1e-6, "
        f"{_best(e, QUADTREES, VALIDATED)} against {_best(e, SHAPLEY, VALIDATED)} validated"
        for name, e in groups.items()
    ]
    return Claim(text, verdict, "; ".join(told))


def _faster(groups: dict[str, Entries]) -> Claim:
    text = "It is one to two orders of magnitude faster than the other Shapley-based methods"
    ratios = {
        name: [_cost(e, m) / _cost(e, ZERO) for m in SHAPLEY if m in e]
        for name, e in groups.items()
    }
    every = [ratio for some in ratios.values() for ratio in some]
    verdict = YES if min(every) >= 10 else PARTLY if max(every) >= 10 else NO
    told = [f"{name}: {min(r):.2g} to {max(r):.2g} times its time" for name, r in ratios.items()]
    return Claim(text, verdict, "; ".join(told))


def _only_grad_cam(groups: dict[str, Entries]) -> Claim:
    text = "Only Grad-CAM is faster, and it is less accurate"
    faster = {
        name: [m for m in PEERS if m in e and _cost(e, m) < _cost(e, ZERO)]
        for name, e in groups.items()
    }
    worse = all(
        _value(e, GRAD_CAM, PAPER) < max(_value(e, q, PAPER) for q in QUADTREES)
        for e in groups.values()
        if GRAD_CAM in e
    )
    only = all(set(names) <= {GRAD_CAM} for names in faster.values())
    verdict = YES if only and worse else PARTLY if only or worse else NO
    told = [f"{name}: faster are {', '.join(names) or 'none'}" for name, names in faster.items()]
    return Claim(text, verdict, "; ".join(told))


def _relative(groups: dict[str, Entries]) -> Claim:
    text = "A relative tolerance of 70 % raises F1 and lowers the runtime"
    better = [_value(e, RELATIVE, PAPER) > _value(e, ZERO, PAPER) for e in groups.values()]
    faster = [_cost(e, RELATIVE) < _cost(e, ZERO) for e in groups.values()]
    verdict = YES if all(better + faster) else PARTLY if any(better + faster) else NO
    told = [
        f"{name}: F1 {_value(e, ZERO, PAPER):.2f} to {_value(e, RELATIVE, PAPER):.2f}, "
        f"{_cost(e, RELATIVE) / _cost(e, ZERO):.2f} of the time"
        for name, e in groups.items()
    ]
    return Claim(text, verdict, "; ".join(told))


def _number_of_crosses(groups: dict[str, Entries]) -> Claim:
    text = "Its F1 does not depend on the number of crosses; that of others is lower with one"
    one, six = groups["1 cross"], groups["6 crosses"]

    def change(method: str) -> float:
        return _value(one, method, PAPER) - _value(six, method, PAPER)

    others = [m for m in PEERS if m in one]
    steady = all(abs(change(m)) < 0.05 for m in QUADTREES)
    fall = all(change(m) < 0 for m in others)
    verdict = YES if steady and fall else PARTLY if steady or fall else NO
    told = [f"{m} {_value(one, m, PAPER):.2f} and {_value(six, m, PAPER):.2f}" for m in QUADTREES]
    lower = sum(change(m) < 0 for m in others)
    return Claim(text, verdict, f"{'; '.join(told)}; {lower} of {len(others)} others are lower")


def _partition(groups: dict[str, Entries]) -> Claim:
    text = "h-Shap is more accurate than PartitionExplainer at every budget (appendix C)"
    budgets = [m for m in SHAPLEY if m.startswith("Partition")]
    under = {
        measure: all(_leads(e, measure, budgets) for e in groups.values())
        for measure in (PAPER, VALIDATED)
    }
    verdict = (YES if under[VALIDATED] else OWN) if under[PAPER] else NO
    told = [
        f"{name}: {_best(e, QUADTREES, m)} against {_best(e, budgets, m)} {how}"
        for name, e in groups.items()
        for m, how in ((PAPER, "at 1e-6"), (VALIDATED, "validated"))
    ]
    return Claim(text, verdict, "; ".join(told))


def _ablation(task: str) -> Claim:
    text = f"With all it calls relevant removed, the logit is near 0 or falls fastest ({task})"
    curves = results.read_summary(task)["ablation"]
    told, fastest = [], []
    for group, methods in curves.items():
        areas = {m: _relative_area(curve) for m, curve in methods.items()}
        peers = {m: areas[m] for m in PEERS if m in areas}
        least = min(peers, key=lambda m: peers[m])
        fastest.append(areas[ZERO] < peers[least])
        told.append(
            f"{group}: mean of the curve, of the logit at the start, {areas[ZERO]:.2f}; "
            f"lowest of the others {peers[least]:.2f} ({least})"
        )
    verdict = YES if all(fastest) else PARTLY if any(fastest) else NO
    return Claim(text, verdict, "; ".join(told))


def _randomisation() -> Claim:
    text = "Every method's map is gone when all weights are random (appendix E)"
    summary = json.loads((RESULTS / "sanity" / "summary.json").read_text())
    last = {m: abs(s["spearman"][-1][0]) for m, s in summary["similarity"].items() if m in PEERS}
    last |= {m: abs(summary["similarity"][m]["spearman"][-1][0]) for m in QUADTREES}
    kept = {m: value for m, value in last.items() if value > 0.2}
    told = ", ".join(f"{m} {value:.2f}" for m, value in sorted(last.items()))
    return Claim(text, NO if kept else YES, f"rank correlation before and after: {told}")


def _leads(entries: Entries, measure: str, others: tuple[str, ...] | list[str] = SHAPLEY) -> bool:
    return max(_value(entries, m, measure) for m in QUADTREES) > max(
        _value(entries, m, measure) for m in others if m in entries
    )


def _best(entries: Entries, methods: tuple[str, ...] | list[str], measure: str) -> str:
    return f"{max(_value(entries, m, measure) for m in methods if m in entries):.2f}"


def _value(entries: Entries, method: str, measure: str) -> float:
    return entries[method][measure][0]


def _cost(entries: Entries, method: str) -> float:
    return entries[method]["seconds"][0]


def _relative_area(curve: dict[str, list[float]]) -> float:
    """Return the mean of a curve over its log-spaced counts, as a share of where it starts."""
    scores = curve["mean"]
    return sum(scores[1:]) / len(scores[1:]) / scores[0]
