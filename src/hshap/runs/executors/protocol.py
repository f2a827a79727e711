"""The contract of an executor: it runs tasks somewhere, and returns their outcomes.

An executor guarantees nothing: a task may be lost, run twice, or end long after it was given up.
The guarantees lie in the run folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hshap.runs.tasks import Outcome, Task
    from hshap.runs.worker import Job

NextTask: TypeAlias = "Callable[[], Task | None]"
"""Returns the next task, or None if there is none at the moment."""


@runtime_checkable
class Executor(Protocol):
    """Runs the tasks of a job."""

    def run(self, job: Job, next_task: NextTask) -> Iterator[Outcome]:
        """Yield the outcome of each task, in any order, until none is left.

        After each outcome `next_task` is asked again. A task whose worker died has an outcome with
        `lost`.
        """
        ...
