"""Tasks: the images of a worker, their targets, and the counts and errors that come back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hshap._util.visible import visible
from hshap.errors import HshapError
from hshap.games.targets import describe_target
from hshap.runs.storing.identity import Digest
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
    told = str(describe_target(target))
    if isinstance(target, int) or type(target).__module__.startswith("hshap."):
        return told
    made = Digest()
    made.add(target)
    return f"{told} {made.hex[:16]}"


@dataclass(frozen=True)
class Work:
    """An image to explain, and the identities that the folder has of it already."""

    item: Item
    explained: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    negative: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Task:
    """Images that one worker explains together. `deaths` counts the workers that died on it."""

    name: str
    works: tuple[Work, ...]
    deaths: int = 0


@dataclass(frozen=True)
class Outcome:
    """The end of a task: counts of images, or the reason why the task was lost.

    `stop` is a reason to end the whole run, such as a full disk.
    """

    task: Task
    done: int = 0
    negative: int = 0
    skipped: int = 0
    failed: int = 0
    evaluations: int = 0
    first_error: str = ""
    lost: str = ""
    stop: str = ""


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


def error_row(
    work: Work, identity: str, sha256: str | None, wanted: tuple[str, ...], error: Exception | str
) -> Row:
    """Return a row of the table of errors; a text is the reason why worker processes ended."""
    row: Row = {
        "image": work.item.name,
        "identity": identity,
        "path": "",
        "image_sha256": sha256,
        "targets": list(wanted),
        "kind": "worker" if isinstance(error, str) else "image",
        "reason": error if isinstance(error, str) else reason_of(error),
        "moment": time.time(),
    }
    return {**row, "digest": digest_of(row)}
