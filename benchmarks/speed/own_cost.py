"""Measure what hshap and the authors' own package cost outside the model.

An oracle that costs nothing decides, so that what is left is each library's own time and memory
(cases A and B); with the small ConvNet of the synthetic task, the model's share of the time is
measured (case C). Every measurement has a process of its own; methods take turns.

    python -m benchmarks.speed.own_cost            everything, 16 GB of memory for case B
    python -m benchmarks.speed.own_cost --skip-large   without the reference in case B
    python -m benchmarks.speed.own_cost --quick    once each, without it too; writes no files
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.core.reference import VERSION, install_reference
from benchmarks.speed.cases import CASES, METHODS, SEED, SHARES
from benchmarks.speed.report import goals, markdown, plain, summarise

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


@dataclass(frozen=True)
class Plan:
    """How often each thing is measured."""

    repetitions: int
    large_reference: bool

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Yield what to measure, in order: all methods once, then all once more, and so on.

        Each turn starts with another method: what runs before leaves the machine's memory in a
        state that the next one feels.
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
    """Run one task in a fresh process and return it together with what was measured."""
    command = [sys.executable, "-m", "benchmarks.speed.worker", json.dumps(task)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    measured = {**task, **json.loads(done.stdout.splitlines()[-1])}
    what = task.get("method") or task.get("share")
    outcome = measured.get("failed") or f"{measured['outside_seconds']:.3f} s outside the model"
    print(f"{task['case']}  {what}: {outcome}", file=sys.stderr, flush=True)
    return measured


def about() -> dict[str, Any]:
    """Return what a reader needs to judge the figures or to take them again."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "hshap": version("hshap"),
        "h-shap": VERSION,
        "commit": _commit(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "torch": version("torch"),
        "cpus": os.cpu_count(),
        "seed": SEED,
    }


def _commit() -> str | None:
    """Return the commit that was measured; a + marks changes to the library on top of it."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return None
    changed = subprocess.run(
        [*git, "status", "--porcelain", "src"], capture_output=True, text=True, check=False
    )
    return head.stdout.strip() + ("+" if changed.stdout else "")


def _plan(arguments: argparse.Namespace) -> Plan:
    if arguments.quick:
        return Plan(1, large_reference=False)
    return Plan(arguments.repetitions, large_reference=not arguments.skip_large)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What each library costs outside the model.")
    parser.add_argument("--repetitions", type=int, default=5, help="of each measurement")
    parser.add_argument(
        "--skip-large", action="store_true", help="leave the reference out of case B"
    )
    parser.add_argument(
        "--quick", action="store_true", help="once each, without it too; write no files"
    )
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
        "goals": verdicts,
        "summary": summary,
        "measurements": measurements,
    }
    (FOLDER / "own_cost.json").write_text(json.dumps(results, indent=1) + "\n")
    (FOLDER / "own_cost.md").write_text(markdown(facts, summary, verdicts))


if __name__ == "__main__":
    main()
