"""In process: the tasks run one after the other in the process that started the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hshap._util.recipes import recipe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hshap.runs.executors.protocol import NextTask
    from hshap.runs.tasks import Outcome
    from hshap.runs.worker import Job


@recipe
class InProcess:
    """Explain in this process. Nothing is pickled, so any model will do.

    >>> InProcess()
    InProcess()
    """

    def run(self, job: Job, next_task: NextTask) -> Iterator[Outcome]:
        """Yield the outcome of each task."""
        worker = job.open()
        while (task := next_task()) is not None:
            yield worker.do(task)
