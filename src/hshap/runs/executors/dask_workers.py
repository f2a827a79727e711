"""Dask: tasks for the workers of a `distributed` cluster, each of which keeps the model.

The job travels as a plugin of the workers. The scheduler gives it to workers that are started
later, too, so one that was restarted loads the model again, once. A worker has one task at a time,
so that the death of one is blamed on one task.
"""

from __future__ import annotations

import pickle
import secrets
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hshap._util import checks
from hshap._util.processes import usable_cores
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError, require
from hshap.evaluators.allocator import keep_memory
from hshap.runs.storing.schema import EXTRA
from hshap.runs.tasks import Outcome, reason_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from hshap._util.types import Untyped
    from hshap.runs.executors.protocol import NextTask
    from hshap.runs.tasks import Task
    from hshap.runs.worker import Job, Worker

POLL = 0.2
"""Seconds between looks at the workers that a cluster has."""

PATIENCE = 20.0
"""Seconds without any worker after which a connection, or a cluster of this machine, is given up.

The driver then asks for the next one, so that a run waits for the workers of a cluster."""

SETTLED = 2.0
"""Seconds before a worker that appears during the run gets a task."""

GATHER = 30.0
"""Seconds for the outcome of a finished task to arrive; its worker may die meanwhile."""


@recipe
class DaskWorkers:
    """Explain in the workers of a Dask cluster, each with its own model.

    `address` is that of a scheduler, such as "tcp://scheduler:8786"; without one, and without a
    `distributed.Client` that you opened, a cluster of processes starts on this machine. `workers`
    is the number of workers that are used; by default all that the cluster has at the moment. A
    cluster does not grow during a run: scale it first. Without an address, a script must
    call under `if __name__ == "__main__"`.

    >>> DaskWorkers(workers=2).workers
    2
    """

    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            settle(self, workers=checks.integer("workers", self.workers, minimum=1))

    def run(self, job: Job, next_task: NextTask) -> Iterator[Outcome]:
        """Yield the outcome of each task; Dask replaces a worker that dies."""
        distributed: Untyped = require("distributed", extra="dask", needed_by="DaskWorkers")
        with self._client(distributed) as client, _held(distributed, client, job) as name:
            hand = _Hand(client, name, self.workers)
            try:
                while hand.give(next_task):
                    yield from hand.take()
            finally:
                with suppress(Exception):  # the scheduler may be gone
                    client.cancel([future for future, _ in hand.busy.values()], force=True)

    @contextmanager
    def _client(self, distributed: Untyped) -> Generator[Untyped]:
        """Give a client: of the address, the caller's own, or of a cluster on this machine."""
        if self.address is None and (own := _own_client(distributed)) is not None:
            yield own  # it stays open
            return
        with ExitStack() as stack:
            place = self.address or stack.enter_context(self._cluster(distributed))
            try:
                client = distributed.Client(place, set_as_default=False)
            except (OSError, ValueError) as error:
                message = (
                    f"address={self.address!r} is no scheduler of Dask that can be reached "
                    f"({type(error).__name__}); pass one such as tcp://scheduler:8786"
                )
                raise ArgumentError(message) from error
            yield stack.enter_context(client)

    @contextmanager
    def _cluster(self, distributed: Untyped) -> Generator[Untyped]:
        """Give a cluster of processes on this machine."""
        dask: Untyped = require("dask", extra="dask", needed_by="DaskWorkers")
        count = self.workers or usable_cores()
        # The driver tries a lost task again: that Dask does so, too, only takes time.
        with (
            dask.config.set({"distributed.scheduler.allowed-failures": 0}),
            # Without an address, its page takes port 8787 and warns if another cluster has it.
            distributed.LocalCluster(
                n_workers=count, threads_per_worker=1, dashboard_address="127.0.0.1:0"
            ) as cluster,
        ):
            yield cluster


@dataclass
class _Hand:
    """The tasks in the hands of workers, by the address of the worker."""

    client: Untyped
    job: str
    most: int | None
    busy: dict[str, tuple[Untyped, Task]] = field(default_factory=dict[str, "tuple[Untyped, Task]"])
    _event: threading.Event = field(default_factory=threading.Event)
    _seen: dict[str, float] | None = None

    def give(self, next_task: NextTask) -> bool:
        """Give tasks to workers that have none; False if there are no tasks, or no workers."""
        idle = [one for one in self._settled() if one not in self.busy]
        room = len(idle) if self.most is None else self.most - len(self.busy)
        for address in idle[: max(0, room)]:
            task = next_task()
            if task is None:
                break
            future = self.client.submit(
                do, self.job, task, workers=[address], pure=False, retries=0
            )
            future.add_done_callback(self._ended)
            self.busy[address] = future, task
        return bool(self.busy)

    def _ended(self, future: Untyped) -> None:
        del future
        self._event.set()

    def _settled(self) -> list[str]:
        """Return the workers that have run for a while; if all have died, wait for new ones.

        A nanny does not always start a worker again that dies soon after its start.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            now, before = time.monotonic(), self._seen
            begun = now - SETTLED if before is None else now  # those of the start run for long
            self._seen = {one: (before or {}).get(one, begun) for one in self.client.nthreads()}
            settled = [one for one, since in self._seen.items() if now - since >= SETTLED]
            if settled or self.busy or now > deadline:
                return settled
            time.sleep(POLL)

    def take(self) -> Iterator[Outcome]:
        """Wait a moment; yield the outcomes of tasks that have ended, or whose workers have."""
        self._event.wait(POLL)
        self._event.clear()
        alive = self.client.nthreads()
        for address, (future, task) in list(self.busy.items()):
            if future.done() or address not in alive:
                del self.busy[address]
                outcome = _outcome(future, task)
                self.client.cancel([future], force=True)
                yield outcome


class Held:
    """The job in a worker of Dask: the first task opens it, and tasks follow each other."""

    def __init__(self, job: bytes) -> None:
        self.job = job
        self._worker: Worker | None = None
        self._turn = threading.Lock()

    def __reduce__(self) -> tuple[type[Held], tuple[bytes]]:
        return Held, (self.job,)

    def do(self, task: Task) -> Outcome:
        """Explain the images of a task."""
        with self._turn, keep_memory():
            if self._worker is None:
                try:
                    made: Job = pickle.loads(self.job)  # noqa: S301, it comes from the driver
                    self._worker = made.open()
                except Exception as error:  # noqa: BLE001, whatever it is, the driver must tell it
                    return Outcome(task, stop=f"a worker could not start: {reason_of(error)}")
            return self._worker.do(task)


def do(name: str, task: Task) -> Outcome:
    """Explain the images of a task in a worker of Dask that has the job of this name."""
    distributed: Untyped = require("distributed", extra="dask", needed_by="DaskWorkers")
    held: Held = distributed.get_worker().plugins[name].held
    return held.do(task)


@contextmanager
def _held(distributed: Untyped, client: Untyped, job: Job) -> Generator[str]:
    """Keep a job in all workers, and those that come later; give its name there."""
    cloudpickle: Untyped = require("cloudpickle", extra=EXTRA, needed_by="DaskWorkers")

    class Plugin(distributed.WorkerPlugin):
        """Brings the job to a worker."""

        def __init__(self, name: str, held: Held) -> None:
            self.name, self.held = name, held

    name = f"hshap-{secrets.token_hex(6)}"
    client.register_plugin(Plugin(name, Held(cloudpickle.dumps(job))), name=name)
    try:
        yield name
    finally:
        with suppress(Exception):  # the scheduler may be gone
            client.unregister_worker_plugin(name)


def _own_client(distributed: Untyped) -> Untyped:
    """Return the client that the caller opened; None if there is none."""
    try:
        return distributed.default_client()
    except ValueError:
        return None


def _outcome(future: Untyped, task: Task) -> Outcome:
    """Return the outcome of a task that has ended, or whose worker has."""
    if future.status == "finished":
        with suppress(TimeoutError):
            return future.result(timeout=GATHER)
    if future.status != "error":
        return Outcome(task, lost="the worker of Dask ended")
    error = future.exception()
    if type(error).__name__ == "KilledWorker":
        return Outcome(task, lost="the worker of Dask ended")
    return Outcome(task, stop=reason_of(error))
