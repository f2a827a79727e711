"""Slurm, through submitit: each job of an array works through its share of the tasks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import require
from hshap.evaluators.allocator import keep_memory
from hshap.runs.tasks import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hshap._util.types import Untyped
    from hshap.runs.executors.protocol import NextTask
    from hshap.runs.tasks import Task
    from hshap.runs.worker import Job, Worker

POLL = 0.2


@recipe
class Slurm:
    """Explain in jobs of Slurm.

    `folder` is for the files of submitit, which are pickles: a folder of your own, outside of the
    run folder, that all machines see. `workers` is the number of jobs; each gets an equal share of
    all tasks. `options` go to `update_parameters`, such as `{"slurm_partition": "gpu",
    "timeout_min": 600, "gpus_per_node": 1}`. `cluster="local"` runs the jobs on this machine.

    A job that is killed loses its shards in flight. Its tasks are submitted again.

    >>> Slurm("jobs", workers=8).workers
    8
    """

    folder: str
    workers: int = 1
    options: Mapping[str, object] | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        settle(self, workers=checks.integer("workers", self.workers, minimum=1))

    def run(self, job: Job, next_task: NextTask) -> Iterator[Outcome]:
        """Yield the outcome of each task, when its job has ended."""
        submitit: Untyped = require("submitit", extra="slurm", needed_by="Slurm")
        executor = submitit.AutoExecutor(folder=self.folder, cluster=self.cluster)
        executor.update_parameters(**dict(self.options or {"timeout_min": 60}))
        # On this machine a job is seen to end at once, and none of its files is late.
        is_local = executor.cluster == "local"
        while tasks := list(iter(next_task, None)):
            share = -(-len(tasks) // self.workers)
            shares = [tasks[i : i + share] for i in range(0, len(tasks), share)]
            with executor.batch():
                jobs = [executor.submit(work_through, job, mine) for mine in shares]
            waiting = list(zip(jobs, shares, strict=True))
            while waiting:
                ended = [pair for pair in waiting if pair[0].done(force_check=is_local)]
                for pair in ended:
                    waiting.remove(pair)
                    yield from _outcomes(*pair, is_local=is_local)
                if not ended:
                    time.sleep(POLL)


def work_through(job: Job, tasks: Sequence[Task]) -> list[Outcome]:
    """Explain the images of several tasks, one after the other."""
    with keep_memory():
        return _work_through(job.open(), tasks)


def _work_through(worker: Worker, tasks: Sequence[Task]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for task in tasks:
        outcomes.append(worker.do(task))
        if outcomes[-1].stop:
            break
    return outcomes


def _outcomes(job: Untyped, tasks: Sequence[Task], *, is_local: bool) -> Iterator[Outcome]:
    # submitit waits 15 s for the file of a job that was killed: a network disk may be slow.
    is_killed = is_local and not job.paths.result_pickle.exists()
    error = None if is_killed else job.exception()
    if error is None and not is_killed:
        yield from job.result()
        return
    reason = "killed" if error is None else type(error).__name__
    told = f"the job {job.job_id} of Slurm ended early ({reason})"
    for task in tasks:
        yield Outcome(task, lost=told)
