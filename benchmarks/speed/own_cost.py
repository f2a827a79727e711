"""The cost of hshap and of the authors' package outside the model.

In cases A and B an oracle that costs nothing decides, so the time and memory are each library's
own. In case C the small ConvNet of the synthetic task decides, and the model's share of the time is
measured. Every measurement has a process of its own; methods take turns.

    python -m benchmarks.speed.own_cost                everything, 16 GB of memory for case B
    python -m benchmarks.speed.own_cost --skip-large   without the reference in case B
    python -m benchmarks.speed.own_cost --quick        the same, once each; writes no files
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.core.provenance import provenance, versions
from benchmarks.core.reference import install_reference
from benchmarks.speed.cases import CASES, METHODS, SEED, SHARES
from benchmarks.speed.own_cost_page import goals, markdown, plain, summarise
from benchmarks.speed.process import run_alone

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Plan:
    """How often each method is measured, and whether the reference is in case B."""

    repetitions: int
    large_reference: bool

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Yield the tasks in order: all methods once, then all once more, and so on.

        Each turn starts with another method, because a run leaves the machine's memory in a state
        that slows or speeds up the next one.
        """
        for case in CASES:
            for turn in range(self.repetitions):
                for method in _rotated(METHODS, turn):
                    large = case.name == "B" and method.library == "reference"
                    # Minutes and most of the machine's memory: once is enough to see the ratio.
                    if not large or (self.large_reference and turn == 0):
                        yield {"case": case.name, "method": method.name, "seed": SEED}
        for turn in range(self.repetitions):
            for share in _rotated(SHARES, turn):
                yield {"case": "C", "share": share.name, "seed": SEED}


def _rotated(items: tuple[T, ...], turn: int) -> tuple[T, ...]:
    first = turn % len(items)
    return items[first:] + items[:first]


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Run one task in a fresh process, and return it together with its measurement."""
    measured = {**task, **run_alone(worker_task(task))}
    name = task.get("method") or task.get("share")
    outcome = measured.get("failed") or f"{measured['outside_seconds']:.3f} s outside the model"
    print(f"{task['case']}  {name}: {outcome}", file=sys.stderr, flush=True)
    return measured


def worker_task(task: dict[str, Any]) -> dict[str, Any]:
    """Return the function of `measurements` that a task needs, with its arguments."""
    if "share" in task:
        return {"measure": "own_time.with_convnet", "share": task["share"], "seed": task["seed"]}
    return {"measure": "own_time.with_oracle", **task}


def about() -> dict[str, Any]:
    """Return the facts that a reader needs to judge the figures or to measure them again."""
    source, known = provenance(), versions()
    return {
        "date": source["date"],
        "hshap": version("hshap"),
        "h-shap": known["h-shap"],
        "commit": source["commit"],
        "python": known["python"],
        "numpy": known["numpy"],
        "torch": known["torch"],
        "cpus": os.cpu_count(),
        "seed": SEED,
    }


def _plan(arguments: argparse.Namespace) -> Plan:
    if arguments.quick:
        return Plan(1, large_reference=False)
    return Plan(arguments.repetitions, large_reference=not arguments.skip_large)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The cost of each library outside the model.")
    parser.add_argument("--repetitions", type=int, default=5, help="of each measurement")
    parser.add_argument(
        "--skip-large", action="store_true", help="leave the reference out of case B"
    )
    parser.add_argument("--quick", action="store_true", help="the same, once each; write no files")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    install_reference()
    measurements = [measure(task) for task in _plan(arguments).tasks()]
    facts, summary = about(), summarise(measurements)
    verdicts = goals(summary)
    print(plain(facts, summary, verdicts))
    if arguments.quick:
        return
    results = {
        "about": facts,
        "goals": [asdict(goal) for goal in verdicts],
        "summary": summary,
        "measurements": measurements,
    }
    (FOLDER / "own_cost.json").write_text(json.dumps(results, indent=1) + "\n")
    (FOLDER / "own_cost.md").write_text(markdown(facts, summary, verdicts))


if __name__ == "__main__":
    main()
