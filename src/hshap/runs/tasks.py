"""Tasks: the images of a worker, their targets, and the counts and errors that come back."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from hshap._util.visible import visible
from hshap.errors import ArgumentError, HshapError, ModelError
from hshap.games.targets import describe_target
from hshap.runs.storing.rows import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Array
    from hshap.explainer import Explainer
    from hshap.games.targets import Target
    from hshap.runs.sources.protocol import Item
    from hshap.runs.storing.rows import Row

LONGEST_REASON = 500
"""Letters of a reason in the table of errors."""


@dataclass(frozen=True)
class Chosen:
    """A target that is chosen for each image, such as the class with the highest score.

    `choose` takes the explainer and the image, and returns the target.

    >>> Chosen("channels", lambda explainer, image: len(image)).name
    'channels'
    """

    name: str
    choose: Callable[[Explainer, Array], Target]


AnyTarget: TypeAlias = "Target | Chosen"


def target_text(target: AnyTarget) -> str:
    """Return the text for a target in identities and rows.

    >>> target_text(3), target_text(Chosen("top", max))
    ('3', 'top')
    """
    if isinstance(target, Chosen):
        return target.name
    return str(describe_target(target))


def texts_of(targets: Sequence[AnyTarget]) -> dict[str, AnyTarget]:
    """Return targets by their texts; two different ones of one text are refused.

    >>> list(texts_of([0, 3, 3]))
    ['0', '3']
    """
    found: dict[str, AnyTarget] = {}
    for target in targets:
        text = target_text(target)
        if found.setdefault(text, target) != target:
            message = f"target holds two functions named {text!r}; give each a name of its own"
            raise ArgumentError(message)
    return found


@dataclass(frozen=True)
class Work:
    """An image to explain, with the state that the folder has of it.

    `version` and `sha256` are those of the image's last known content, and `last_error` the moment
    of its last error. Identities of its rows are in `explained`, `failed` and `negative`, by the
    rule of this run.
    """

    item: Item
    version: int = 0
    sha256: str | None = None
    explained: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    negative: frozenset[str] = frozenset()
    last_error: float = 0.0

    def seen(self, sha256: str) -> Work:
        """Return the state for the content that was read: one that has changed has no rows yet."""
        if self.sha256 in (None, sha256):
            return replace(self, sha256=sha256)
        return Work(self.item, self.version + 1, sha256)


@dataclass(frozen=True)
class Task:
    """Images that one worker explains together. `deaths` counts the workers that died on it."""

    name: str
    works: tuple[Work, ...]
    deaths: int = 0


@dataclass(frozen=True)
class Outcome:
    """The end of a task: counts of images, or the reason why the task was lost.

    Of the failed images, `unread` could not even be read. `stop` is a reason to end the whole
    run, such as a full disk, and `error` its exception, where worker and driver are one
    process.
    """

    task: Task
    done: int = 0
    negative: int = 0
    skipped: int = 0
    failed: int = 0
    unread: int = 0
    evaluations: int = 0
    first_error: str = ""
    lost: str = ""
    stop: str = ""
    error: Exception | None = None


def split(task: Task) -> Sequence[Task]:
    """Return the halves of a task."""
    half = len(task.works) // 2
    return [
        Task(f"{task.name}.{i}", works)
        for i, works in enumerate((task.works[:half], task.works[half:]))
        if works
    ]


def reason_of(error: BaseException) -> str:
    """Return an error in one short line."""
    text = visible(" ".join(str(error).split()))
    told = text if isinstance(error, HshapError) and text else f"{type(error).__name__}: {text}"
    return told if len(told) <= LONGEST_REASON else f"{told[: LONGEST_REASON - 3]}..."


def kind_of(error: Exception | str) -> str:
    """Return the kind of an error: of the image, of the model, or of the process.

    >>> kind_of(ArgumentError("no image")), kind_of(ZeroDivisionError())
    ('image', 'explaining')
    """
    if isinstance(error, str):
        return "worker"
    of_image = isinstance(error, HshapError | OSError) and not isinstance(error, ModelError)
    return "image" if of_image else "explaining"


def error_row(
    work: Work, identity: str, sha256: str | None, wanted: tuple[str, ...], error: Exception | str
) -> Row:
    """Return a row of the table of errors; a text is the reason why worker processes ended."""
    row: Row = {
        "image": work.item.name,
        "identity": identity,
        "path": "",
        "image_sha256": sha256,
        "version": work.version,
        "targets": list(wanted),
        "kind": kind_of(error),
        "reason": error if isinstance(error, str) else reason_of(error),
        # Later than the error before it, also if the clock was set back.
        "moment": max(time.time(), math.nextafter(work.last_error, math.inf)),
    }
    return {**row, "digest": digest_of(row)}
