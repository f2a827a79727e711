"""A run whose results are files: explain what is missing, then write the page and the record."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hshap.cli.faults import Code, Refusal, Refusals, few
from hshap.cli.output import say, say_notes
from hshap.cli.progress import Shown
from hshap.cli.runs.record import PAGE, files_in
from hshap.cli.runs.result_files import is_there
from hshap.cli.runs.signals import Stop
from hshap.errors import MissingExtraError
from hshap.export.page import write_page
from hshap.games.targets import POSITIVES, Positives
from hshap.runs.driver import RunStoppedError
from hshap.runs.explaining import explain_source
from hshap.runs.tasks import texts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hshap._util.types import Json
    from hshap.cli.runs.result_files import FileStore
    from hshap.evaluators.tiles import Tiles
    from hshap.explainer import Explainer
    from hshap.export.page import View
    from hshap.runs.driver import RunProgress
    from hshap.runs.sources.protocol import Source
    from hshap.runs.storing.rows import Row
    from hshap.runs.tasks import AnyTarget
    from hshap.runs.worker import Labels

Watch: TypeAlias = "Callable[[RunProgress], None]"
"""Receives the progress of a run; stops it if it raises `Stop`."""

GO_ON = "run the same command again to go on"


@dataclass(frozen=True)
class FileRun:
    """A run: its images, how they are explained, and where files, page and record go.

    `views` makes the page of rows, and `facts` go into the record. `layout` and `spacing` are those
    of volumes, `tiles` cuts large images. `notes` are those that the page made.
    """

    source: Source
    explainer: Explainer
    targets: tuple[AnyTarget, ...] | None
    store: FileStore
    labels: Labels
    facts: Mapping[str, Json]
    views: Callable[[Sequence[Row]], Iterator[View]]
    title: str
    positives: Positives | None = POSITIVES
    budget: int | None = None
    retry_failed: bool = False
    layout: str | None = None
    spacing: tuple[float, ...] | None = None
    tiles: Tiles | None = None
    watch: Watch | None = None
    notes: Mapping[str, Sequence[Path]] = field(default_factory=dict[str, "Sequence[Path]"])

    def run(self) -> Ended:
        """Explain all images without results, and write page and record.

        Without any result, the reason is raised instead, and nothing is written.
        """
        names = list(dict.fromkeys(item.name for item in self.source.items()))
        evaluations, stop = self._explain(len(names))
        store = self.store
        failed = [store.errors[name] for name in names if name in store.errors]
        rows = self._in_order(names)
        if not rows:
            if not store.results:
                store.place.forget()
            if failed and not isinstance(stop, Stop):
                raise unusable(failed, len(names), is_all=stop is None)
            raise stop or Refusal(Code.INPUT, "there are no images to explain; pass others")
        page, page_error = self._write_page(rows, len(names))
        if stop is None:
            say_notes(self.notes)
        done = {row["image"] for row in rows} - store.errors.keys()
        negative = done - {row["image"] for row in rows if row["explained"]}
        record = store.finish(
            {
                **self.facts,
                "explained": "all images" if self.positives is None else self.positives.rule,
                "evaluations": evaluations,
                "interrupted": stop is not None,
                "done": len(done),
                "negative": len(negative),
                "failed": len(failed),
                "total": len(names),
                "page": PAGE if page else None,
            },
            page,
        )
        return Ended(record, rows, failed, len(names), stop, page_error)

    def _in_order(self, names: Sequence[str]) -> list[Row]:
        """Sort the results by the images and targets of the command; return those of its images."""
        order = {name: number for number, name in enumerate(names)}
        texts = list(texts_of(self.targets or ()))
        asked = {text: number for number, text in enumerate(texts)}
        found = sorted(
            self.store.results.items(),
            key=lambda one: (order.get(one[0][0], len(order)), asked.get(one[0][1], len(asked))),
        )
        self.store.results = dict(found)
        return [row for (image, _), row in found if image in order]

    def _explain(self, count: int) -> tuple[int, Stop | Refusal | None]:
        """Explain the images; return the evaluations, and why it was stopped."""
        made = 0
        with Shown("explaining") as shown:

            def tell(progress: RunProgress) -> None:
                nonlocal made
                made = progress.evaluations
                _show(shown, progress, count, self.budget)
                if self.watch is not None:
                    self.watch(progress)

            try:
                explain_source(
                    self.explainer,
                    self.explainer,
                    self.source,
                    self.store,
                    self.targets,
                    layout=self.layout,
                    spacing=self.spacing,
                    tiles=self.tiles,
                    retry_failed=self.retry_failed,
                    positives=self.positives,
                    shard_rows=1,
                    labels=self.labels,
                    progress=tell,
                )
            except Stop as stop:
                return made, stop
            except RunStoppedError as error:
                if isinstance(error.__cause__, MissingExtraError | MemoryError):
                    raise error.__cause__ from None
                return made, Refusal(Code.OUTPUT, str(error))
        return made, None

    def _write_page(self, rows: Sequence[Row], total: int) -> tuple[list[str], OSError | None]:
        """Write the page of all images that are there; return its files, or the disk's error."""
        place = self.store.place
        done = len({row["image"] for row in rows})
        state = f" ({done} of {total} images)" if done < total else ""
        shown = [row for row in self.store.results.values() if is_there(row)]
        if not shown:
            return [], None
        try:
            with Shown("writing the page"):
                write_page(place.path / PAGE, self.views(shown), title=f"{self.title}{state}")
            names = sorted(files_in(place.path), key=lambda name: name == PAGE)
            place.add({"table": "page"}, names)
        except OSError as error:
            return [], error
        return names, None


@dataclass(frozen=True)
class Ended:
    """The end of a run: the record, the rows and errors of its images, and why it was stopped."""

    record: dict[str, Json]
    rows: list[Row]
    failed: list[Row]
    total: int
    stop: Stop | Refusal | None = None
    page_error: OSError | None = None

    def concerns(self) -> list[str]:
        """Return the verdict on each explanation with a concern."""
        several = len({row["image"] for row in self.rows}) < len(self.rows)
        return [
            f"{Path(row['image']).name}{about}: {row['verdict']}"
            for row in self.rows
            for about in [f" ({row['class_name']})" if several else ""]
            if row["concerns"]
        ]

    def tell(self, out: Path) -> None:
        """Say what people should know before they see the table; raise if the run was stopped."""
        kept = f"{self.record['done']} of {self.total} images are in {out}; {GO_ON}"
        if isinstance(self.stop, Stop):
            raise self.stop.told(kept)
        if self.stop is not None:
            raise Refusal(Code.OUTPUT, f"{self.stop}; {kept}") from self.stop
        notes = dict[str, list[Path]]()
        for row in self.rows:
            for note in _notes(row):
                notes.setdefault(note, []).append(Path(row["image"]))
        say_notes(notes)
        chosen = next((row for row in self.rows if row.get("chosen")), None)
        if chosen is not None:
            name = Path(chosen["image"]).name
            say(f"{name}: {chosen['chosen']}; options override these choices, made for each image")
        for line in few(lines_of_failed(self.failed)):
            say(f"failed: {line}")
        for line in few(self.concerns()):
            say(line)

    def counts(self) -> str:
        """Return how many images were explained, negative, failed and doubtful."""
        record = self.record
        explained = int(str(record["done"])) - int(str(record["negative"]))
        doubtful = len({row["image"] for row in self.rows if row["concerns"]})
        counts = {"explained": explained, "negative": record["negative"]}
        counts |= {"failed": record["failed"], "doubtful": doubtful}
        told = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
        return told or "nothing explained"


def _notes(row: Row) -> Sequence[str]:
    return json.loads(row["transform"] or "{}").get("notes") or ()


def lines_of_failed(failed: Sequence[Row]) -> list[str]:
    """Return the reasons of failed images, in lines that name the image."""
    return [
        row["reason"] if row["image"] in row["reason"] else f"{row['image']}: {row['reason']}"
        for row in failed
    ]


def unusable(failed: Sequence[Row], total: int, *, is_all: bool) -> Refusal:
    """Return the refusal of a run without any result: each image with its reason."""
    code = Code.INPUT if all(row["kind"] == "image" for row in failed) else Code.MODEL
    lines = few(lines_of_failed(failed))
    if len(lines) > 1 or not is_all:
        end = "" if is_all else "; the run has given up, since none could be explained"
        lines.append(f"{len(failed)} of {total} images cannot be used{end}")
    return Refusals(code, lines)


def _show(shown: Shown, progress: RunProgress, total: int, budget: int | None) -> None:
    """Show how far a run is: images, evaluations, and the time that the others take."""
    new = progress.done + progress.negative + progress.failed + progress.under_way
    rate = progress.evaluations / max(shown.seconds, 1e-9)
    each = progress.evaluations / new if new else None
    if budget is not None:
        each = budget if each is None else min(each, budget)
    done = progress.skipped + new
    waiting = total - progress.skipped
    left = None
    if each is not None and rate > 0:
        left = max(each * waiting - progress.evaluations, 0) / rate
    text = f"{done} of {total}, {progress.evaluations} evaluations, {rate:.0f}/s"
    shown.update(done / max(1, total), text, left=left, is_bound=True)
