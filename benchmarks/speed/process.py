"""Run one measurement in a process of its own, so that its peak memory is that of it alone.

Importing this costs next to nothing, so that the process that starts the others stays small: a
child's peak memory, as the kernel counts it, begins with that of the process that started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.core.folders import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

THREADS = 2


def run_alone(task: Mapping[str, Any], *, return_freed_memory: bool = False) -> dict[str, Any]:
    """Return the measurement that a task asks for, or the reason as `{"failed": reason}`.

    `task["measure"]` is a function of `measurements`, such as "growth.by_side"; the rest are its
    arguments. The allocator's settings of `benchmarks/run` keep freed memory for speed, which then
    counts as memory in use; `return_freed_memory` undoes them.
    """
    command = [sys.executable, "-m", "benchmarks.speed.worker", json.dumps(task)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS)}
    if return_freed_memory:
        environment = {k: v for k, v in environment.items() if not k.startswith("MALLOC_")}
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, env=environment
    )
    if done.returncode:
        return {"failed": f"ended with {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])
