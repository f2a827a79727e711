"""Workers: they read images, explain them in shared batches, and commit rows themselves.

A worker sends its driver only counts. If it is killed, the rows in its memory are lost and
computed again; committed rows are safe.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

from hshap._util.visible import as_text
from hshap.errors import ArgumentError, MissingExtraError
from hshap.explainer import Explainer
from hshap.explanation.guarantees.calibration import with_calibration
from hshap.games.targets import POSITIVES, Positives, as_targets, describe_target
from hshap.runs.large import LargeResult, LargeWork, explain_large, forget_parts, parts_key
from hshap.runs.sources.protocol import Decoded
from hshap.runs.storing.protocol import TABLES, Given
from hshap.runs.storing.rows import Origin, attempt
from hshap.runs.tasks import Chosen, Outcome, error_row, reason_of, texts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from hshap._util.types import Array
    from hshap.evaluators.tiles import Tiles
    from hshap.explainer.readings import Pair
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.guarantees.calibration import Calibration
    from hshap.explanation.tiled import TiledExplanation
    from hshap.games.engine import Progress
    from hshap.games.targets import Target
    from hshap.runs.sources.protocol import Source
    from hshap.runs.storing.identity import Fingerprint
    from hshap.runs.storing.protocol import Store, Writer
    from hshap.runs.storing.rows import Row
    from hshap.runs.tasks import AnyTarget, Task, Work

TOGETHER = 16
"""Explanations that become rows at once: between batches of the model, caches hold other code."""


@dataclass(frozen=True)
class Labels:
    """Texts that go with each explanation, for its title and its exports; `classes` by number.

    With a calibration, explanations get its promise.

    >>> Labels("model.onnx", ("none", "cross")).class_name(1)
    'cross'
    """

    model: str
    classes: tuple[str, ...] = ()
    calibration: Calibration | None = None

    def class_name(self, number: int | None) -> str:
        """Return the name of a class; its number where it has none."""
        if number is None:
            return ""
        return self.classes[number] if number < len(self.classes) else str(number)

    def on(self, explanation: Explanation, origin: Origin) -> Explanation:
        """Return an explanation with its source, and the promise of the calibration."""
        how = json.loads(origin.transform or "{}")
        source = {
            "image": PurePath(origin.image).name,
            "class": self.class_name(explanation.class_index),
            "model": self.model,
            **{name: str(how[name]) for name in ("orientation", "frame") if name in how},
        }
        made = replace(explanation, settings=explanation.settings.updated(source=source))
        if self.calibration is None or not made.is_explained:
            return made
        return with_calibration(made, self.calibration)

    def on_tiled(self, found: TiledExplanation, image: str) -> TiledExplanation:
        """Return the explanation of a large image with its source."""
        del image
        return found


@dataclass(frozen=True)
class Job:
    """All that a worker needs: it is pickled once for each worker, and read from no file.

    `watch` is told of the progress inside a task, where worker and driver are one process.
    """

    explainer: Explainer | Callable[[], Explainer]
    source: Source
    store: Store
    fingerprint: Fingerprint
    targets: tuple[AnyTarget, ...] | None
    layout: str | None = None
    shard_rows: int = 256
    shard_seconds: float = 60.0
    tiles: Tiles | None = None
    positives: Positives | None = POSITIVES
    labels: Labels | None = None
    spacing: tuple[float, ...] | None = None
    watch: Callable[[Progress], None] | None = None

    def open(self) -> Worker:
        """Return a worker, with the model in memory."""
        made = self.explainer if isinstance(self.explainer, Explainer) else self.explainer()
        unfinished = None if self.tiles is None else self.store.unfinished
        reading = Reading(made, self.source, self.fingerprint, self.targets, unfinished)
        return Worker(self, made, reading, self.store.writer())


@dataclass
class Worker:
    """Explains the images of tasks, and commits the rows."""

    job: Job
    explainer: Explainer
    reading: Reading
    writer: Writer

    def do(self, task: Task) -> Outcome:
        """Explain the images of a task that the store lacks; all rows are committed on return."""
        turn = _Turn(self, task)
        try:
            for found in self._explained(turn):
                turn.add(found)
            turn.commit()
            turn.forget()
        except (MissingExtraError, MemoryError, OSError) as error:
            own = self.job.watch is not None  # an error may not survive a journey
            return Outcome(task, stop=reason_of(error), error=error if own else None)
        except KeyboardInterrupt:
            turn.commit()  # what is finished stays
            raise
        return turn.outcome()

    def _explained(self, turn: _Turn) -> Iterator[Explanation | LargeResult]:
        """Yield the explanations of the images of a task: whole ones, or large ones by tiles."""
        job = self.job
        if job.tiles is None:
            yield from self.explainer.explain_many(
                turn.pairs(),
                layout=job.layout,
                spacing=job.spacing,
                positives=job.positives,
                on_error=turn.on_error,
                progress=job.watch,
            )
        else:
            works, place = turn.large_works(), job.store.unfinished
            yield from explain_large(
                self.explainer, works, job.tiles, place, turn.on_error, job.positives, job.watch
            )

    def rows(
        self, found: Sequence[tuple[Explanation | LargeResult, Asked]]
    ) -> Iterable[Row | Exception]:
        """Return the row of each explanation, or its error."""
        given = [attempt(self._given, one, asked) for one, asked in found]
        made = iter(self.writer.rows([one for one in given if not isinstance(one, Exception)]))
        # One by one: a full disk ends the run at the first file that does not fit.
        return (one if isinstance(one, Exception) else next(made) for one in given)

    def _given(self, found: Explanation | LargeResult, asked: Asked) -> Given:
        """Return a result as it is stored: with its place, its name and that of its class."""
        labels, origin, image = self.job.labels, asked.origins[found.target], asked.decoded
        if isinstance(found, LargeResult):
            name = "" if labels is None else labels.class_name(found.found.tiles.class_index)
            made = found.found if labels is None else labels.on_tiled(found.found, origin.image)
            return Given(made, replace(origin, class_name=name))
        made = replace(found, position=asked.work.item.number)
        if image.place is not None:
            shape, start, stop = image.place
            made = made.placed(shape, start=start, stop=stop)
        if labels is None:
            return Given(made, origin, image.shown)
        name = labels.class_name(made.class_index)
        return Given(labels.on(made, origin), replace(origin, class_name=name), image.shown)


@dataclass(frozen=True)
class Asked:
    """An image in the hands of the explainer: its targets that are not explained yet."""

    work: Work
    origins: dict[int | str, Origin]
    identity: str
    sha256: str
    decoded: Decoded

    @property
    def wanted(self) -> tuple[str, ...]:
        """The targets that are asked for."""
        return tuple(origin.target for origin in self.origins.values())


class UnreadError(Exception):
    """An image that could not be read: its state, and the identity of its error."""

    def __init__(
        self,
        work: Work,
        identity: str,
        sha256: str | None,
        wanted: tuple[str, ...],
        reason: Exception,
    ) -> None:
        super().__init__(work, identity, sha256, wanted, reason)
        self.work, self.identity, self.sha256 = work, identity, sha256
        self.wanted, self.reason = wanted, reason


@dataclass(frozen=True)
class Reading:
    """Reads images for the explainer, with the targets whose rows the store lacks.

    `targets` is None if the data set gives the class of each image. `unfinished` is the folder with
    the finished parts of large images; None where no image is large.
    """

    explainer: Explainer
    source: Source
    fingerprint: Fingerprint
    targets: tuple[AnyTarget, ...] | None
    unfinished: Path | None

    def pair(self, work: Work, asked: list[Asked]) -> Pair | None:
        """Read an image, and note it in `asked`; None if the store has its rows, or its error."""
        sha256, asked_for = None, tuple[str, ...]()
        print_of = self.fingerprint
        try:
            read = self.source.read(work.item)
            sha256 = read.sha256
            work = work.seen(sha256)
            targets = self._targets(read.label)
            identities = {text: print_of.identity(text, sha256) for text in targets}
            identity = print_of.identity(f"all of {sorted(targets)}", sha256)
            known = work.explained | work.negative
            missing = {text: one for text, one in identities.items() if one not in known}
            if not missing and self.unfinished is not None:
                # Of a worker that was killed after its commit.
                forget_parts(self.unfinished, parts_key(identity, work.item.name))
            if not missing or identity in work.failed:
                return None
            asked_for = tuple(missing)
            made = read.image()
            decoded = made if isinstance(made, Decoded) else Decoded(made)
            wanted = {text: self._settled(targets[text], decoded.image) for text in missing}
        except Exception as error:
            identity = print_of.identity("no image", sha256 or work.item.name)
            if identity in work.failed:
                return None
            raise UnreadError(work, identity, sha256, asked_for, error) from error
        origins = {
            describe_target(target): Origin(
                work.item.name,
                identities[text],
                as_text(read.path),
                sha256,
                text,
                json.dumps(decoded.transform, sort_keys=True) if decoded.transform else "",
                work.version,
            )
            for text, target in wanted.items()
        }
        asked.append(Asked(work, origins, identity, sha256, decoded))
        pair = decoded.image, list({describe_target(one): one for one in wanted.values()}.values())
        return cast("Pair", pair if decoded.baseline is None else (*pair, decoded.baseline))

    def _targets(self, label: object) -> dict[str, AnyTarget]:
        """Return the targets of an image by the texts that tell them apart."""
        given = self.targets
        if given is None:
            if label is None:
                message = "target is missing: the data set gives no class for this image; pass one"
                raise ArgumentError(message)
            if isinstance(label, Exception):
                raise label
            given = as_targets(label, self.explainer.facts.index)
        return texts_of(given)

    def _settled(self, target: AnyTarget, image: object) -> Target:
        if isinstance(target, Chosen):
            return target.choose(self.explainer, cast("Array", image))
        return target


class _Turn:
    """A task while it is worked on: its images in hand, its counts, and rows in no shard yet."""

    def __init__(self, worker: Worker, task: Task) -> None:
        self._worker, self._task = worker, task
        self._asked: list[Asked] = []
        self._rows: dict[str, list[Row]] = {table: [] for table in TABLES}
        self._found: list[Explanation | LargeResult] = []
        self._done, self._negative = set[int](), set[int]()
        self._failed: dict[int, str] = {}
        self._skipped = self._unread = self._evaluations = 0
        self._since = time.monotonic()

    def pairs(self) -> Iterator[Pair]:
        """Yield images and targets for the explainer; an image is read when it is needed."""
        for work in self._task.works:
            try:
                pair = self._worker.reading.pair(work, self._asked)
            except UnreadError as error:
                told = error.work
                row = error_row(told, error.identity, error.sha256, error.wanted, error.reason)
                self._fail(told, row, error.reason)
                self._unread += 1
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
        job = self._worker.job
        rows = len(self._rows["explanations"]) + len(self._rows["negatives"])
        self._found.append(found)
        late = time.monotonic() - self._since > job.shard_seconds
        if late or rows + len(self._found) >= job.shard_rows:
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
            self._add_row(found, row, one.work.item.number)
            self._evaluations += found.evaluations
        self._found.clear()

    def _add_row(self, found: Explanation | LargeResult, row: Row, number: int) -> None:
        """Take the row of an explanation, or of an image that was not explained."""
        positives = self._worker.job.positives
        if found.is_explained or positives is None:
            self._rows["explanations"].append(row)
            self._done.add(number)
        else:
            negative = self._worker.writer.negative(row, found.negative, positives.rule)
            self._rows["negatives"].append(negative)
            self._negative.add(number)

    def commit(self) -> None:
        """Write all explanations and errors that are in no shard yet."""
        self._make_rows()
        for table in TABLES:
            # Taken first, so that an interrupt in the middle commits no row twice.
            rows, self._rows[table] = self._rows[table], []
            if rows:
                self._worker.writer.commit(table, rows)
        self._since = time.monotonic()

    def forget(self) -> None:
        """Remove the finished parts of large images whose rows are all committed."""
        for one in self._asked if self._worker.job.tiles is not None else ():
            if one.work.item.number not in self._failed:
                key = parts_key(one.identity, one.work.item.name)
                forget_parts(self._worker.job.store.unfinished, key)

    def outcome(self) -> Outcome:
        """Return the counts of the task."""
        return Outcome(
            self._task,
            done=len(self._done - self._failed.keys()),
            negative=len(self._negative - self._done - self._failed.keys()),
            skipped=self._skipped,
            failed=len(self._failed),
            unread=self._unread,
            evaluations=self._evaluations,
            first_error=next(iter(self._failed.values()), ""),
        )

    def _fail(self, work: Work, row: Row, error: Exception) -> None:
        if isinstance(error, (MissingExtraError, MemoryError)):
            raise error  # concerns all images
        self._failed.setdefault(work.item.number, row["reason"])
        if row["identity"] not in work.failed:
            self._rows["errors"].append(row)
