"""Explain every positive image of a task with every method, and keep a row of each.

Rows go to files in the cache as they are made, one file for each worker. A run that was killed
continues: an image and method with a row are not run again.

Rows hold quality and evaluations, not times: other work may run beside.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
import warnings
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.core.folders import CACHE, cache
from benchmarks.core.measures import against_model, against_truth
from benchmarks.core.meter import Meter
from benchmarks.core.protocol import Cannot
from benchmarks.core.provenance import provenance
from benchmarks.core.tasks import TASKS, fitted
from benchmarks.methods import METHODS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.core.protocol import Example, Image, Method, Subject

    Row = dict[str, Any]

SPLITS = ("validation", "test")


@dataclass(frozen=True)
class Run:
    """The task and methods of a run. Runs of a task share rows; quick runs have their own."""

    task: str
    quick: bool = False
    methods: tuple[str, ...] = ()  # all, if none is named
    validation: int | None = None  # the first so many images; all of the task's, if None
    test: int | None = None

    @property
    def folder(self) -> Path:
        return CACHE / "runs" / (self.task + ("-quick" if self.quick else ""))

    def chosen(self) -> list[Method]:
        return [m for m in METHODS if not self.methods or m.name in self.methods]


def run(settings: Run, workers: int) -> list[Row]:
    """Make the missing rows in this many processes, and return all rows."""
    names = [m.name for m in settings.chosen()]
    images = [(split, e.name) for split, e in _examples(settings)]
    wanted = {(*image, name) for image in images for name in names}
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[threads] = "1"  # of the workers, and of every library in them
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_work, args=(settings, number, workers), daemon=True)
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    try:
        _watch(settings, processes, len(wanted))
    finally:
        for process in processes:
            process.terminate()
            process.join()
    if any(process.exitcode for process in processes):
        message = "a worker failed, see above; its rows are kept, run again to continue"
        raise RuntimeError(message)
    # The cache may hold rows of other images and methods: they stay out of the results.
    return [row for row in (*rows(settings), *refusals(settings)) if _key(row) in wanted]


def refusals(settings: Run) -> Iterator[Row]:
    """Yield the rows that say why a method cannot run."""
    done = {_key(row) for row in rows(settings)}
    for path in sorted(settings.folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            if '"cannot": ' in line and _key(row := json.loads(line)) not in done:
                yield row


def rows(settings: Run) -> Iterator[Row]:
    """Yield the rows that were made so far, each (split, image, method) once."""
    seen = set()
    for path in sorted(settings.folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue  # cut short when a run was killed: it is made again
            # The package of a method that could not run may have been installed since.
            if "cannot" not in row and _key(row) not in seen:
                seen.add(_key(row))
                yield row


def explain(method: Method, subject: Subject, example: Example, concept: str) -> Row:
    """Explain one image with one method, and measure map and cost."""
    meter = Meter(subject.model).eval()
    metered_subject = replace(subject, model=meter)
    row: Row = {"method": method.name, "image": example.name, "group": example.group}
    heat = np.zeros(example.image.shape[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages, about themselves
        try:
            heat = checked(method.explain(metered_subject, example.image.copy()), example.image)
        except Cannot as reason:
            row["cannot"] = str(reason)
        except Exception as error:  # noqa: BLE001, a failure is a result: it counts as an empty map
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
    row["evaluations"] = meter.watch.evaluations
    truth, objects = example.truths[concept], example.objects[concept]
    return row | against_truth(heat, truth, objects) | {"_heat": heat}


def checked(heat: Any, image: Image) -> Any:
    """Return the map as float64; fail if its shape is wrong or a value is not finite."""
    values = np.asarray(heat, np.float64)
    if values.shape != image.shape[1:] or not np.isfinite(values).all():
        message = f"a map of shape {values.shape}, finite: {np.isfinite(values).all()}"
        raise ValueError(message)
    return values


def _examples(settings: Run) -> Iterator[tuple[str, Example]]:
    task = TASKS[settings.task]()
    for split in SPLITS:
        most = settings.test if split == "test" else settings.validation
        found = islice(task.positives(split, quick=settings.quick), most)
        yield from ((split, e) for e in found)


def _work(settings: Run, number: int, workers: int) -> None:
    torch.set_num_threads(1)  # two share cores badly
    task = TASKS[settings.task]()
    subject = task.subject()
    path = cache("runs", settings.folder.name, f"{number}-of-{workers}.jsonl")
    parent = os.getppid()
    with path.open("a") as file:
        file.write("\n")  # closes a line that a killed run left open
        for split, example, missing in _missing(settings, number, workers):
            at_hand = fitted(subject, example)
            for method in missing:
                if os.getppid() != parent:
                    return  # the run was killed, and may be going on elsewhere
                row = explain(method, at_hand, example, task.concept)
                heat = row.pop("_heat")
                if split == "test":
                    row |= against_model(heat, example.image, at_hand)
                file.write(json.dumps({"split": split, **row, **provenance()}) + "\n")
                file.flush()


def _missing(
    settings: Run, number: int, workers: int
) -> Iterator[tuple[str, Example, list[Method]]]:
    """Yield this worker's images that are not done, with the methods that they lack."""
    done = {_key(row) for row in rows(settings)}
    # Split among workers before finished images are left out, so that all workers agree on it.
    for split, example in islice(_examples(settings), number, None, workers):
        lacking = [m for m in settings.chosen() if (split, example.name, m.name) not in done]
        if lacking:
            yield split, example, lacking


def _key(row: Row) -> tuple[str, str, str]:
    return row["split"], row["image"], row["method"]


def _watch(settings: Run, processes: list[Any], wanted: int) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(elapsed_when_finished=True)) as bar:
        task = bar.add_task(settings.folder.name, total=wanted)
        while any(process.is_alive() for process in processes):
            time.sleep(1)
            lines = sum(path.read_bytes().count(b"}\n") for path in settings.folder.glob("*.jsonl"))
            bar.update(task, completed=min(lines, wanted))
