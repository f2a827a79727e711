"""Ray: actors that hold the model, on this machine or on a cluster."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import require
from hshap.evaluators.allocator import keep_memory
from hshap.runs.tasks import Outcome, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hshap._util.types import Untyped
    from hshap.runs.executors.protocol import NextTask
    from hshap.runs.tasks import Task
    from hshap.runs.worker import Job


@recipe
class RayActors:
    """Explain in actors of Ray, each with its own model.

    `address` is that of a cluster, such as "auto" or "ray://head:10001"; without one, and without
    a connection that you opened, Ray starts on this machine. `workers` is the number of actors; by
    default the CPUs of the cluster less one: a pool as large as the cluster leaves Ray no room to
    start anything, and hangs. `cpus` and `gpus` are those of each actor. An actor that cannot be
    placed yet waits for the cluster to grow.

    >>> RayActors(workers=2, gpus=1).gpus
    1
    """

    workers: int | None = None
    address: str | None = None
    cpus: float = 1
    gpus: float = 0

    def __post_init__(self) -> None:
        if self.workers is not None:
            settle(self, workers=checks.integer("workers", self.workers, minimum=1))

    def run(self, job: Job, next_task: NextTask) -> Iterator[Outcome]:
        """Yield the outcome of each task; an actor that dies is replaced."""
        ray: Untyped = require("ray", extra="ray", needed_by="RayActors")
        if not ray.is_initialized():
            ray.init(address=self.address, log_to_driver=False, include_dashboard=False)
        cpus = ray.cluster_resources().get("CPU", 1)
        count = self.workers or max(1, int((cpus - 1) / max(self.cpus, 1e-9)))
        held = ray.put(job)
        actor: Untyped = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_restarts=0)(Actor)
        idle: list[Untyped] = []
        busy: dict[Untyped, tuple[Untyped, Task]] = {}
        try:
            while True:
                while len(busy) < count and (task := next_task()) is not None:
                    worker = idle.pop() if idle else actor.remote(held)
                    busy[worker.do.remote(task)] = (worker, task)
                if not busy:
                    return
                done, _ = ray.wait(list(busy), num_returns=1)
                for reference in done:
                    worker, task = busy.pop(reference)
                    try:
                        outcome = ray.get(reference)
                        idle.append(worker)
                    except ray.exceptions.RayActorError as error:
                        outcome = Outcome(task, lost=_died(error))
                    except ray.exceptions.RayTaskError as error:
                        outcome = Outcome(task, stop=reason_of(error.cause or error))
                    yield outcome
        finally:
            for worker in [*idle, *(worker for worker, _ in busy.values())]:
                with suppress(Exception):
                    ray.kill(worker)


class Actor:
    """A worker in a process of Ray."""

    def __init__(self, job: Job) -> None:
        keep_memory()  # the process is the run's own
        self._worker = job.open()

    def do(self, task: Task) -> Outcome:
        """Explain the images of a task."""
        return self._worker.do(task)


def _died(error: Exception) -> str:
    return f"the actor of Ray died ({type(error).__name__})"
