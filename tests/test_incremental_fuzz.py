"""The quick form of the fuzzer: random networks agree with full passes, and failures shrink."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.experiments.fuzz_incremental import Failure, fuzz, on_patches, shrunk
from benchmarks.experiments.fuzzing.cases import Case, Subject, WrongError
from benchmarks.experiments.fuzzing.program import Line, Program

IN_PLACE = Line("t2", "{0}.tanh_()", ("t1",))
CONVOLVED = Line("t1", "self.p1({0})", ("t0",), "self.p1 = nn.Conv2d(1, 2, 3)")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_random_networks_agree_with_full_passes():
    *_, tally = fuzz(seed=100_000, networks=60)
    assert not tally.failures, tally.failures[0].code()
    assert tally.networks == 60
    assert tally.cases > 150
    assert tally.in_boxes > 150
    assert len(tally.layers) > 30


def test_a_program_is_code_that_runs():
    program = Program((1, 9, 9), 0, "float64", (CONVOLVED, IN_PLACE), ("(t2).mean((2, 3))",))
    assert "t2 = t1.tanh_()\n        return (t2).mean((2, 3))" in program.source()
    case = Case(starts=((2, 3), (6, 6)), size=(3, 3), seed=0)
    assert Subject(program).on_patches(case) < 1e-12


def test_a_failure_shrinks_to_the_line_that_causes_it():
    # The trace of this line differs from the module: it doubles proxies alone.
    lies = "({0} if isinstance({0}, torch.Tensor) else 2 * {0})"
    lines = (CONVOLVED, IN_PLACE, Line("t3", lies, ("t2",)), Line("t4", "{0} + 1", ("t3",)))
    program = Program((1, 9, 9), 0, "float64", lines, ("(t4).mean((2, 3))", "(t2).amax((2, 3))"))
    case = Case(starts=((2, 3), (6, 6)), size=(3, 3), seed=0)
    with pytest.raises(WrongError, match="differs from the full pass"):
        Subject(program).on_patches(case)
    small = shrunk(Failure(program, case, ""), on_patches)
    assert [line.out for line in small.program.lines] == ["t3"]
    assert len(small.case.starts) == len(small.program.outputs) == 1
    assert "isinstance(t0, torch.Tensor)" in small.code()
