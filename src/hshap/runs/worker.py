"""Workers: they read images, explain them in shared batches, and commit shards by themselves.

A worker tells its driver only numbers. If it is killed, the rows in its memory are lost and
computed again; rows in a shard are safe.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, cast

from hshap._util.visible import visible
from hshap.errors import ArgumentError, HshapError, MissingExtraError
from hshap.explainer import Explainer
from hshap.games.targets import as_targets, describe_target
from hshap.runs.large import LargeResult, LargeWork, explain_large, forget_parts, parts_key
from hshap.runs.sources.protocol import Decoded
from hshap.runs.storing.folder import Writer
from hshap.runs.storing.identity import Digest
from hshap.runs.storing.rows import KeptEvidence, Origin, as_rows, attempt, digest_of
from hshap.runs.storing.tiled import store_tiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hshap._util.types import Array, Grid
    from hshap.evaluators.tiles import Tiles
    from hshap.explanation.explanation import Explanation
    from hshap.games.pairs import Pair
    from hshap.games.targets import Target
    from hshap.runs.sources.protocol import Item, Source
    from hshap.runs.storing.files import Files
    from hshap.runs.storing.identity import Fingerprint
    from hshap.runs.storing.rows import Row

TOGETHER = 16
"""Explanations that become rows at once: between batches of the model, caches hold other code."""

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


@dataclass(frozen=True)
class Work:
    """An image to explain, and the identities that the folder has of it already."""

    item: Item
    explained: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()


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
    skipped: int = 0
    failed: int = 0
    evaluations: int = 0
    first_error: str = ""
    lost: str = ""
    stop: str = ""


@dataclass(frozen=True)
class Job:
    """All that a worker needs: it is pickled once for each worker, and read from no file."""

    explainer: Explainer | Callable[[], Explainer]
    source: Source
    files: Files
    fingerprint: Fingerprint
    targets: tuple[AnyTarget, ...] | None
    layout: str | None = None
    keep: KeptEvidence = "leaves"
    shard_rows: int = 256
    shard_seconds: float = 60.0
    tiles: Tiles | None = None

    def open(self) -> Worker:
        """Return a worker, with the model in memory."""
        made = self.explainer if isinstance(self.explainer, Explainer) else self.explainer()
        return Worker(self, made, Writer(self.files))


@dataclass(frozen=True)
class _Asked:
    """An image in the hands of the explainer: its targets that are not explained yet."""

    work: Work
    origins: dict[int | str, Origin]
    identity: str
    sha256: str
    original: Grid | None

    @property
    def wanted(self) -> tuple[str, ...]:
        """The targets that are asked for."""
        return tuple(origin.target for origin in self.origins.values())


@dataclass
class Worker:
    """Explains the images of tasks, and commits the rows."""

    job: Job
    explainer: Explainer
    writer: Writer

    def do(self, task: Task) -> Outcome:
        """Explain the images of a task that the folder lacks; all rows are committed on return."""
        turn = _Turn(self, task)
        try:
            for found in self._explained(turn):
                turn.add(found)
            turn.commit()
            turn.forget()
        except (MissingExtraError, MemoryError, OSError) as error:
            return Outcome(task, stop=reason_of(error))
        return turn.outcome()

    def _explained(self, turn: _Turn) -> Iterator[Explanation | LargeResult]:
        """Yield the explanations of the images of a task: whole ones, or large ones by tiles."""
        job = self.job
        if job.tiles is None:
            yield from self.explainer.explain_many(
                turn.pairs(), layout=job.layout, on_error=turn.on_error
            )
        else:
            works = turn.large_works()
            yield from explain_large(self.explainer, works, job.tiles, job.files, turn.on_error)

    def pair(self, work: Work, asked: list[_Asked]) -> Pair | None:
        """Read an image, and note it in `asked`; None if the folder has its rows, or its error."""
        job, sha256, asked_for = self.job, None, tuple[str, ...]()
        print_of = job.fingerprint
        try:
            read = job.source.read(work.item)
            sha256 = read.sha256
            targets = self._targets(read.label)
            identities = {text: print_of.identity(text, sha256) for text in targets}
            identity = print_of.identity(f"all of {sorted(targets)}", sha256)
            missing = {text: one for text, one in identities.items() if one not in work.explained}
            if not missing and job.tiles is not None:
                # Of a worker that was killed after its commit.
                forget_parts(job.files, parts_key(identity, work.item.name))
            if not missing or identity in work.failed:
                return None
            asked_for = tuple(missing)
            decoded = read.image()
            transform, original = {}, None
            if isinstance(decoded, Decoded):
                transform, original = decoded.transform, decoded.original
                decoded = decoded.image
            wanted = {text: self._settled(targets[text], decoded) for text in missing}
        except Exception as error:
            identity = print_of.identity("no image", sha256 or work.item.name)
            if identity in work.failed:
                return None
            raise _FailedError(identity, sha256, asked_for, error) from error
        origins = {
            describe_target(target): Origin(
                work.item.name,
                identities[text],
                read.path,
                sha256,
                text,
                json.dumps(transform, sort_keys=True) if transform else "",
            )
            for text, target in wanted.items()
        }
        asked.append(_Asked(work, origins, identity, sha256, original))
        return cast("Pair", (decoded, list(wanted.values())))

    def _targets(self, label: object) -> dict[str, AnyTarget]:
        """Return the targets of an image by the texts that tell them apart."""
        given = self.job.targets
        if given is None:
            if label is None:
                message = "target is missing: the data set gives no class for this image; pass one"
                raise ArgumentError(message)
            if isinstance(label, Exception):
                raise label
            given = as_targets(label, self.explainer.facts.index)
        return {target_text(target): target for target in given}

    def _settled(self, target: AnyTarget, image: object) -> Target:
        if isinstance(target, Chosen):
            return target.choose(self.explainer, cast("Array", image))
        return target

    def rows(
        self, given: Sequence[tuple[Explanation | LargeResult, _Asked]]
    ) -> Iterable[Row | Exception]:
        """Return the row of each explanation, or its error; those of large images one by one."""
        if self.job.tiles is not None:
            # A full disk ends the run at the first file that does not fit: no other one is tried.
            return (
                attempt(self._large_row, cast("LargeResult", found), one) for found, one in given
            )
        placed = [attempt(self._placed, cast("Explanation", found), one) for found, one in given]
        made = iter(
            as_rows([one for one in placed if not isinstance(one, Exception)], self.job.keep)
        )
        return [one if isinstance(one, Exception) else next(made) for one in placed]

    def _large_row(self, found: LargeResult, one: _Asked) -> Row:
        origin = one.origins[found.target]
        return store_tiled(found.found, origin, self.job.keep, self.job.files)

    def _placed(self, found: Explanation, one: _Asked) -> tuple[Explanation, Origin]:
        numbered = replace(found, position=one.work.item.number)
        if one.original is not None:
            numbered = numbered.placed(one.original)
        return numbered, one.origins[found.target]


class _Turn:
    """A task while it is worked on: its images in hand, its counts, and rows in no shard yet."""

    def __init__(self, worker: Worker, task: Task) -> None:
        self._worker, self._task = worker, task
        self._asked: list[_Asked] = []
        self._rows: dict[str, list[Row]] = {"explanations": [], "errors": []}
        self._found: list[Explanation | LargeResult] = []
        self._done = set[int]()
        self._failed: dict[int, str] = {}
        self._skipped = self._evaluations = 0
        self._since = time.monotonic()

    def pairs(self) -> Iterator[Pair]:
        """Yield images and targets for the explainer; an image is read when it is needed."""
        for work in self._task.works:
            try:
                pair = self._worker.pair(work, self._asked)
            except _FailedError as error:
                row = error_row(work, error.identity, error.sha256, error.wanted, error.reason)
                self._fail(work, row, error.reason)
                continue
            if pair is None:
                self._skipped += 1
            else:
                yield pair

    def large_works(self) -> Iterator[LargeWork]:
        """Yield large images with their targets."""
        for position, pair in enumerate(self.pairs()):
            one = self._asked[position]
            path, targets = cast("tuple[str, list[Target]]", pair)
            texts = [origin.target for origin in one.origins.values()]
            key = parts_key(one.identity, one.work.item.name)
            yield LargeWork(position, key, path, list(zip(texts, targets, strict=True)))

    def on_error(self, position: int, error: Exception) -> None:
        """Note that an image failed."""
        one = self._asked[position]
        row = error_row(one.work, one.identity, one.sha256, one.wanted, error)
        self._fail(one.work, row, error)

    def add(self, found: Explanation | LargeResult) -> None:
        """Take an explanation, and commit a shard when it is time."""
        job, rows = self._worker.job, self._rows["explanations"]
        self._found.append(found)
        late = time.monotonic() - self._since > job.shard_seconds
        if late or len(rows) + len(self._found) >= job.shard_rows:
            self.commit()
        elif len(self._found) >= TOGETHER:
            self._make_rows()

    def _make_rows(self) -> None:
        """Make rows of the explanations that have none yet."""
        given = [(found, self._asked[found.position]) for found in self._found]
        for (found, one), row in zip(given, self._worker.rows(given), strict=True):
            if isinstance(row, OSError):
                raise row  # of the run folder, which gets files of large images: ends the run
            if isinstance(row, Exception):  # any other fault is that of this image
                self.on_error(found.position, row)
                continue
            self._rows["explanations"].append(row)
            self._done.add(one.work.item.number)
            self._evaluations += found.evaluations
        self._found.clear()

    def commit(self) -> None:
        """Write all explanations and errors that are in no shard yet."""
        self._make_rows()
        for table, rows in self._rows.items():
            if rows:
                self._worker.writer.commit(table, rows)
                rows.clear()
        self._since = time.monotonic()

    def forget(self) -> None:
        """Remove the finished parts of large images whose rows are all committed."""
        for one in self._asked if self._worker.job.tiles is not None else ():
            if one.work.item.number not in self._failed:
                key = parts_key(one.identity, one.work.item.name)
                forget_parts(self._worker.job.files, key)

    def outcome(self) -> Outcome:
        """Return the counts of the task."""
        return Outcome(
            self._task,
            done=len(self._done - self._failed.keys()),
            skipped=self._skipped,
            failed=len(self._failed),
            evaluations=self._evaluations,
            first_error=next(iter(self._failed.values()), ""),
        )

    def _fail(self, work: Work, row: Row, error: Exception) -> None:
        if isinstance(error, (MissingExtraError, MemoryError)):
            raise error  # concerns all images
        self._failed.setdefault(work.item.number, row["reason"])
        if row["identity"] not in work.failed:
            self._rows["errors"].append(row)


class _FailedError(Exception):
    """An image that could not be read, with the identity of its error."""

    def __init__(
        self, identity: str, sha256: str | None, wanted: tuple[str, ...], reason: Exception
    ) -> None:
        super().__init__(identity, sha256, wanted, reason)
        self.identity, self.sha256, self.wanted, self.reason = identity, sha256, wanted, reason


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


def split(task: Task) -> Sequence[Task]:
    """Return the halves of a task."""
    half = len(task.works) // 2
    return [
        Task(f"{task.name}.{i}", works)
        for i, works in enumerate((task.works[:half], task.works[half:]))
        if works
    ]
