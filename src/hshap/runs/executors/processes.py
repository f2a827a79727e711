"""Local processes: workers on this machine, each with a model of its own.

Each worker has its own pipe, so that the death of one is known at once and blamed on one task.
"""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Literal, cast

from hshap._util import checks
from hshap._util.processes import usable_cores
from hshap._util.recipes import recipe, settle
from hshap.errors import require
from hshap.evaluators.allocator import keep_memory
from hshap.runs.storing.schema import EXTRA
from hshap.runs.tasks import Outcome, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.process import BaseProcess

    from hshap._util.types import Untyped
    from hshap.runs.executors.protocol import NextTask
    from hshap.runs.tasks import Task
    from hshap.runs.worker import Job

Start = Literal["forkserver", "spawn", "fork"]


@recipe
class Processes:
    """Explain in several processes of this machine, by default one for each core.

    `start` is the way to start them, as `multiprocessing` names it. With "forkserver", the default
    where there is one, and "spawn", a script must call under `if __name__ == "__main__"`. "fork" is
    quick, but a model of torch may hang in it, and Python 3.12 and later warn of it: a driver has a
    second thread, which shows others that it lives. `threads` limits the threads of torch in a
    worker; by default the cores are divided among the workers.

    >>> Processes(workers=2).workers
    2
    """

    workers: int | None = None
    start: Start | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            settle(self, workers=checks.integer("workers", self.workers, minimum=1))
        if self.threads is not None:
            settle(self, threads=checks.integer("threads", self.threads, minimum=1))

    def run(self, job: Job, next_task: NextTask) -> Iterator[Outcome]:
        """Yield the outcome of each task; a worker that dies is replaced."""
        cores = usable_cores()
        count = self.workers or cores
        threads = self.threads or max(1, cores // count)
        pool = _Pool(job, self.start or _usual_start(), threads)
        try:
            yield from pool.run(count, next_task)
        finally:
            pool.close()


@dataclass
class _Member:
    """A worker process, the pipe to it, and the task that it has."""

    process: BaseProcess
    pipe: Connection
    task: Task | None = None


class _Pool:
    def __init__(self, job: Job, start: Start, threads: int) -> None:
        cloudpickle: Untyped = require("cloudpickle", extra=EXTRA, needed_by="worker processes")
        self._job: bytes = cloudpickle.dumps(job)
        self._threads = threads
        self._context: Untyped = multiprocessing.get_context(start)
        self._is_fork = start == "fork"
        if start == "forkserver":
            self._context.set_forkserver_preload(["hshap.runs.executors.processes"])
        self._members: list[_Member] = []

    def run(self, count: int, next_task: NextTask) -> Iterator[Outcome]:
        while True:
            self._hand_out(count, next_task)
            busy = [member for member in self._members if member.task is not None]
            if not busy:
                return
            ready = set(wait([member.pipe for member in busy]))
            for member in busy:
                if member.pipe in ready:
                    yield self._outcome(member)

    def _hand_out(self, count: int, next_task: NextTask) -> None:
        idle = [member for member in self._members if member.task is None]
        while idle or len(self._members) < count:
            task = next_task()
            if task is None:
                return
            member = idle.pop() if idle else self._started()
            member.task = task
            with suppress(OSError):  # it has died; its pipe says so when it is waited for
                member.pipe.send(task)

    def _outcome(self, member: _Member) -> Outcome:
        task = cast("Task", member.task)
        try:
            outcome: Outcome = member.pipe.recv()
        except (EOFError, OSError):
            self._members.remove(member)
            member.pipe.close()
            member.process.join()
            lost = f"the worker process ended with code {member.process.exitcode}"
            return Outcome(task, lost=lost)
        member.task = None
        return outcome

    def _started(self) -> _Member:
        ours, theirs = self._context.Pipe()
        # A fork holds the driver's ends, too, and a pipe lasts as long as any copy of its ends.
        held = [ours, *(member.pipe for member in self._members)] if self._is_fork else []
        process = self._context.Process(
            target=_work, args=(theirs, held, self._job, self._threads), daemon=True
        )
        process.start()
        theirs.close()
        member = _Member(process, ours)
        self._members.append(member)
        return member

    def close(self) -> None:
        for member in self._members:
            member.pipe.close()  # an idle worker then ends by itself
            if member.task is not None:
                member.process.terminate()
        for member in self._members:
            member.process.join(timeout=5)
            if member.process.is_alive():
                member.process.kill()
                member.process.join()
        self._members.clear()


def _work(pipe: Connection, held: list[Connection], job: bytes, threads: int) -> None:
    """Run tasks until the pipe is closed, as it is when the driver ends in any way."""
    for end in held:
        end.close()
    keep_memory()  # the process is the run's own
    try:
        made: Job = pickle.loads(job)  # noqa: S301, it comes from the driver, through memory
        worker = made.open()
        if "torch" in sys.modules:  # only now, since a function of the caller may import it
            sys.modules["torch"].set_num_threads(threads)
        gc.freeze()  # libraries and model stay: the collector need not look through them again
    except Exception as error:  # noqa: BLE001, whatever it is, the driver must tell it
        with suppress(EOFError, OSError):
            pipe.send(Outcome(pipe.recv(), stop=f"a worker could not start: {reason_of(error)}"))
        return
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            task: Task = pipe.recv()
            try:
                outcome = worker.do(task)
            except Exception as error:  # noqa: BLE001
                outcome = Outcome(task, stop=reason_of(error))
            pipe.send(outcome)


def _usual_start() -> Start:
    return "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
