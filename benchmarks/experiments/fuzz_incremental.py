"""Fuzz `Incremental`: random networks, random rectangles, compared with full forward passes.

Run `benchmarks/run fuzz incremental`. Every case must agree with the full pass to 1e-5 of the
largest output, and leave image, baseline and module as they were. A failure is shrunk to a few
lines and printed as code.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.experiments.fuzzing.cases import (
    Case,
    Subject,
    WrongError,
    in_a_session,
    random_case,
    sound,
)
from benchmarks.experiments.fuzzing.grammar import random_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.experiments.fuzzing.program import Program

    RunCase = Callable[[Program, Case], object]

NETWORKS, CASES = 5000, 20_000
CASES_EACH = 6


@dataclass(frozen=True)
class Failure:
    """A program and a case that went wrong, and how."""

    program: Program
    case: Case
    message: str

    def code(self) -> str:
        """Return the failure as code that repeats it."""
        case, program = self.case, self.program
        return "\n".join(
            [
                f"# {self.message}",
                f"# weights: torch.manual_seed({program.seed}), {program.dtype}; {case}",
                f"# image {program.shape}",
                program.source(),
            ]
        )


@dataclass
class Tally:
    """Counts of a run, and its failures."""

    networks: int = 0
    on_patches: int = 0
    cases: int = 0
    in_sessions: int = 0
    in_boxes: int = 0
    flat: int = 0
    repeated: int = 0
    largest: float = 0.0
    in_full: Counter[str] = field(default_factory=Counter[str])
    layers: Counter[str] = field(default_factory=Counter[str])
    failures: list[Failure] = field(default_factory=list[Failure])

    def __str__(self) -> str:
        return (
            f"{self.networks} networks, {self.on_patches} of them on patches, {self.cases} cases "
            f"on patches ({self.repeated} of them in 64 bits, since their full pass rounds in 32), "
            f"{self.in_boxes} of them also in boxes inside of boxes, {self.flat} over one colour, "
            f"{self.in_sessions} more in sessions, largest relative difference {self.largest:.1e}, "
            f"{len(self.failures)} failures"
        )


def fuzz(seed: int, networks: int, cases: int = 0) -> Iterator[Tally]:
    """Yield the tally after each network, until there are enough networks and enough cases."""
    tally = Tally()
    while tally.networks < networks or tally.cases < cases:
        # One seed for each network, so that each can be repeated alone.
        rng = np.random.default_rng(seed)
        program = sound(random_program(rng, seed))
        seed += 1
        if program is None:
            continue
        tally.networks += 1
        chosen = [random_case(program.shape[1:], rng) for _ in range(CASES_EACH)]
        done = check(program, chosen, tally)
        tally.on_patches += done > 0
        tally.cases += done
        yield tally


def check(program: Program, cases: Sequence[Case], tally: Tally) -> int:
    """Run a program on its cases; return the number that ran on patches."""
    subject, done = Subject(program), 0
    for case in cases:
        try:
            found = subject.on_patches(case)
        except WrongError as error:
            tally.failures.append(shrunk(Failure(program, case, str(error)), on_patches))
            return done
        if isinstance(found, str):
            tally.in_full[found] += 1
            break
        tally.largest = max(tally.largest, found)
        done += 1
    tally.layers.update(subject.kinds)
    tally.repeated += subject.repeated
    tally.in_boxes += subject.boxes
    tally.flat += subject.flat
    try:
        tally.in_sessions += in_a_session(program, cases[0])
    except WrongError as error:
        tally.failures.append(shrunk(Failure(program, cases[0], str(error)), in_a_session))
    return done


def on_patches(program: Program, case: Case) -> object:
    """Run one case alone, or raise `WrongError`."""
    return Subject(program).on_patches(case)


def shrunk(failure: Failure, run_case: RunCase) -> Failure:
    """Return a failure of a smaller program, as long as dropping a line leaves one."""
    found = failure
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(found, run_case):
            if smaller is not None:
                found, progress = smaller, True
                break
    return found


def _smaller(failure: Failure, run_case: RunCase) -> Iterator[Failure | None]:
    one_row = [replace(failure.case, starts=(start,)) for start in failure.case.starts]
    for case in one_row if len(one_row) > 1 else []:
        yield _failing(failure.program, case, run_case)
    for program in failure.program.smaller():
        yield _failing(program, failure.case, run_case)


def _failing(program: Program, case: Case, run_case: RunCase) -> Failure | None:
    """Return the failure of a program, or None if it does not fail, or cannot run at all."""
    try:
        run_case(program, case)
    except WrongError as error:
        return Failure(program, case, str(error))
    except Exception:  # noqa: BLE001, a program with a line less may be no program
        return None
    return None


def run(networks: int = NETWORKS, cases: int = CASES, seed: int = 0) -> None:
    """Fuzz, and print failures as they are found and the tally at the end."""
    torch.set_num_threads(1)
    tally, told = Tally(), 0
    for tally in fuzz(seed, networks, cases):
        for failure in tally.failures[told:]:
            print(f"\n{failure.code()}\n", flush=True)
        told = len(tally.failures)
        if tally.networks % 250 == 0:
            print(tally, flush=True)
    print(f"\n{tally}\nin full: {dict(tally.in_full.most_common())}")
    print(f"layers on patches: {dict(tally.layers.most_common())}")
    if tally.failures:
        raise SystemExit(1)
