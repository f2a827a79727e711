"""The questions of group testing beside the fewest possible, and its certificate on networks.

Run `benchmarks/run floor`. First, on grids of single pixels under the OR rule: evaluations as a
multiple of log2 C(n, k), the bits that name k of n leaves. Everything counts: the baseline, the
image, a question for each leaf alone and the certificate. The constants of the search were chosen
on other seeds. Then on networks, beside the games of bisection at the same tolerance, over grids
and trees: evaluations, F1 of the leaves, average precision of the attribution, and the share of
runs in which every check of the certificate agreed with the OR rule.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hshap
from benchmarks.core.folders import MissingDataError
from benchmarks.core.markdown import table
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.results import folder, write_experiment
from benchmarks.core.tasks import TASKS, Synthetic, fitted
from benchmarks.methods.common import probability
from benchmarks.methods.ours import tree_of
from hshap import Bisection, DepthFirst, Explainer, Fixed, GroupTesting, metrics, theory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.core.protocol import Example, Subject
    from hshap.games.search import SearchResult

SEED = 2024  # the constants were chosen on other streams
SIDES = (64, 256, 1024)
FINDINGS = (1, 4, 10, 30, 100)
RUNS = 10
IMAGES = {"synthetic": 40, "boards": 12, "malaria": 11}  # of each number of crosses; of a set
TOLERANCE = 0.15  # as in sizes.py, for both searches
BUDGET = 500
SEARCHES = {
    "bisection, tolerance 0": DepthFirst(0.0, max_evaluations=BUDGET),
    "bisection": DepthFirst(TOLERANCE, max_evaluations=BUDGET),
    "group": GroupTesting(TOLERANCE, max_evaluations=BUDGET),
}
SIMULATED = ("leaves", "findings", "floor", "group", "worst", "bisection", "rounds", "held")
ON_NETWORKS = (
    "set",
    "partition",
    "search",
    "images",
    "evaluations",
    "median",
    "leaves",
    "F1",
    "AUPRC",
    "checks agreed",
    "finished",
)


def run(sets: Sequence[str] = ()) -> None:
    """Simulate, explain and compare; the tables are written anew after each image.

    `sets` names those to run: `simulated`, or a set of images. All run if none is named.
    """
    torch.set_num_threads(1)
    if not sets or "simulated" in sets:
        write({"simulated": simulated()})
    for name in [name for name in IMAGES if not sets or name in sets]:
        try:
            for rows in on_network(name):
                write({name: rows})
        except MissingDataError as missing:
            print(f"{name} is skipped: {missing}.")


def write(found: dict[str, list[dict[str, Any]]]) -> None:
    """Write results; those of other sets of earlier runs stay, and each tells its commit."""
    path = folder("floor") / "summary.json"
    before = json.loads(path.read_text())["results"] if path.exists() else {}
    made = provenance()
    own = {key: made[key] for key in ("commit", "date")}
    results = before | {name: {"rows": rows, **own} for name, rows in found.items()}
    content = {"task": "floor", **made, "versions": versions(), "results": results}
    write_experiment(content, page(content))


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    results = content["results"]
    simulations = [
        (
            f"{row['side']} x {row['side']}",
            row["findings"],
            f"{row['floor']:.0f}",
            f"{row['ratio']:.2f}",
            f"{row['worst']:.2f}",
            f"{row['bisection']:.2f}",
            f"{row['rounds']:.0f}",
            f"{row['held']:.0%}",
        )
        for row in results.get("simulated", {"rows": []})["rows"]
    ]
    networks = [
        (
            row["group"],
            row["partition"],
            row["search"],
            row["images"],
            f"{row['evaluations']:.0f}",
            f"{row['median']:.0f}",
            f"{row['leaves']:.1f}",
            f"{row['f1']:.3f}",
            f"{row['auprc']:.3f}",
            "" if row["held"] is None else f"{row['held']:.0%}",
            f"{row['finished']:.0%}",
        )
        for name in IMAGES
        for row in results.get(name, {"rows": []})["rows"]
    ]
    return (
        f"Evaluations under the OR rule as multiples of log2 C(n, k), means of {RUNS} runs:\n\n"
        f"{table(SIMULATED, simulations)}\n\n"
        f"On networks, tolerance {TOLERANCE} unless told, at most {BUDGET} evaluations:\n\n"
        f"{table(ON_NETWORKS, networks)}\n\n{_sources(results)}\n"
    )


def _sources(results: dict[str, Any]) -> str:
    told = (f"{name} {found['commit']}, {found['date']}" for name, found in results.items())
    return f"Commits: {'; '.join(told)}."


def simulated() -> list[dict[str, Any]]:
    """Return the evaluations of group testing on grids, for several numbers of findings."""
    rows: list[dict[str, Any]] = []
    for side, findings in product(SIDES, FINDINGS):
        runs = [_simulation(side, findings, number) for number in range(RUNS)]
        least = theory.question_floor(side * side, findings)
        asked = np.array([run["questions"] for run in runs]) / least
        rows.append(
            {
                "side": side,
                "findings": findings,
                "floor": least,
                "ratio": float(asked.mean()),
                "worst": float(asked.max()),
                "bisection": float(np.mean([run["bisection"] for run in runs])) / least,
                "rounds": float(np.mean([run["rounds"] for run in runs])),
                "held": float(np.mean([run["held"] for run in runs])),
            }
        )
        print(rows[-1], flush=True)
    return rows


def _simulation(side: int, findings: int, number: int) -> dict[str, Any]:
    rng = np.random.default_rng([SEED, side, findings, number])
    flat = rng.choice(side * side, findings, replace=False)
    places = np.stack(np.unravel_index(flat, (side, side)), axis=1)
    root = Bisection(min_size=1)(np.zeros((1, side, side)))
    questions, rounds, found = _driven(root, places)
    right = {tuple(place) for place in places.tolist()}
    made = {leaf.start for leaf in found.leaves if isinstance(leaf, hshap.Box)}
    if made != right:
        message = f"other leaves than those of the OR rule: side {side}, run {number}"
        raise AssertionError(message)
    return {
        "questions": questions,
        "rounds": rounds,
        # Bisection plays exactly these games, of two new evaluations each.
        "bisection": 2 + 2 * len(found.games),
        "held": found.certificate is not None and not found.certificate.reason,
    }


def _driven(root: Any, places: Any) -> tuple[int, int, SearchResult]:
    """Answer the questions of a search by the OR rule."""
    steps: Any = GroupTesting()(root, 1)
    asked, questions, rounds = next(steps), 0, 0
    while True:
        questions, rounds = questions + len(asked), rounds + 1
        answers = [np.array([float(_holds(one.kept, places))]) for one in asked]
        try:
            asked = steps.send(answers)
        except StopIteration as done:
            return questions, rounds, done.value


def _holds(kept: Sequence[Any], places: Any) -> bool:
    return any(((places >= box.start) & (places < box.stop)).all(1).any() for box in kept)


def on_network(name: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the results of one set so far, for each partition and search, after each image."""
    task: Any = TASKS[name]()
    subject = task.subject()
    judged: defaultdict[tuple[str, str, str], list[dict[str, float]]] = defaultdict(list)
    for example in _examples(task, name):
        own = fitted(subject, example)
        group = ", ".join(filter(None, (name, example.group)))
        partitions: dict[str, Any] = {"grid": Bisection(own.size), "tree": tree_of(own)}
        for (kind, partition), (label, search) in product(partitions.items(), SEARCHES.items()):
            judged[group, kind, label].append(
                _judged(own, example, task.concept, partition, search)
            )
        print(group, example.name, flush=True)
        yield [_row(*key, found) for key, found in judged.items()]


def _examples(task: Any, name: str) -> Iterator[Example]:
    if isinstance(task, Synthetic):
        return replace(task, each=IMAGES[name]).positives("fresh", quick=False)
    return islice(task.positives("test", quick=False), IMAGES[name])


def _judged(
    subject: Subject, example: Example, concept: str, partition: Any, search: Any
) -> dict[str, float]:
    model = hshap.Batched(subject.model, check_batches=False)
    explainer = Explainer(model, Fixed(subject.baseline), partition, search)
    found = explainer.explain(example.image, target=probability)
    truth, made = example.truths[concept], found.certificate
    return {
        "evaluations": found.evaluations,
        "leaves": len(found.leaves),
        "f1": float(metrics.f1(found.saliency(), truth)),
        "auprc": float(metrics.average_precision(found.attribution(), truth)),
        "held": float("nan") if made is None else float(not made.reason),
        "finished": float(found.complete),
    }


def _row(group: str, partition: str, search: str, found: Sequence[Any]) -> dict[str, Any]:
    means = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
    held = None if np.isnan(means["held"]) else means["held"]
    return {
        "group": group,
        "partition": partition,
        "search": search,
        "images": len(found),
        **means,
        "median": float(np.median([one["evaluations"] for one in found])),
        "held": held,
    }


if __name__ == "__main__":
    run()
