"""A run as a folder of files: for each image a file and a picture, as people look at them.

It is one of the two forms of a store (`hshap.runs.storing.protocol`), and needs no library of
tables. A row is an entry of the record; the file of its explanation holds everything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap import export
from hshap._util.version import __version__
from hshap._util.visible import path_of, visible
from hshap.cli.faults import Code, Refusal
from hshap.cli.output import Names
from hshap.cli.runs.signals import on_hold
from hshap.explanation.display import heading
from hshap.explanation.explanation import Explanation
from hshap.explanation.guarantees.calibration import marked_area
from hshap.explanation.tiled import TiledExplanation
from hshap.plot.figures import literal
from hshap.runs.storing.folder import differences
from hshap.runs.storing.protocol import RESULTS, Given, Known, Stored
from hshap.runs.storing.rows import attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from hshap._util.processes import Owner
    from hshap._util.types import Array, Json, Untyped
    from hshap.cli.runs.result_folder import ResultFolder
    from hshap.runs.storing.rows import Origin, Row

    Result = Explanation | TiledExplanation

MARGIN = 0.05
"""Inches around a picture."""

SIGN = "written by hshap"
"""The entry of a GeoJSON file by which a later run knows it."""

OF_IMAGE = ("image", "path", "image_sha256")
OF_TRANSFORM = ("resized_from", "template_sha256", "spacing", "window", "notes")
TEXTS = ("table", "identity", "explanation", "transform", "class_name")


@dataclass
class FileStore:
    """The results of a run as files in a folder, written as they come.

    `bases` has the beginning of the names of an image's files, and `several` tells that there are
    results for more than one class of an image. `more` gives further facts of a result.
    """

    place: ResultFolder
    command: str
    bases: Mapping[str, str] = field(default_factory=dict[str, str])
    several: bool = False
    more: Callable[[Result], dict[str, Json]] = lambda result: {}  # noqa: ARG005
    results: dict[tuple[str, str], Row] = field(default_factory=dict[tuple[str, str], "Row"])
    errors: dict[str, Row] = field(default_factory=dict[str, "Row"])
    _described: dict[str, Json] | None = None
    _noted: bool = False

    def __post_init__(self) -> None:
        for row in rows_of_record(self._record()):
            if self.place.ours.keys() >= set(files_of(row)):  # else it is explained again
                self._take(row)
        for row in self.place.rows:
            self._take(dict(cast("Mapping[str, Untyped]", row)))
        self._noted = self._described is not None
        taken = [
            *self.place.others,
            *(name for row in self.results.values() for name in files_of(row)),
        ]
        self._names = Names({PurePath(name).stem for name in taken if "/" not in name})

    def _record(self) -> Mapping[str, Json]:
        record = self.place.record
        if record is None or self.place.anew:
            return {}
        if record.get("command") != self.command:
            message = (
                f"{self.location} has results of hshap {record.get('command')}; pass another "
                "--out, or --force to replace them"
            )
            raise Refusal(Code.OUTPUT, message)
        return record

    @property
    def location(self) -> str:
        """The folder, as the command names it."""
        return str(self.place.out)

    @property
    def unfinished(self) -> Path:
        """The folder for finished parts of large images, which goes with the run."""
        return self.place.unfinished

    def description(self) -> dict[str, Json] | None:
        """Return the model and settings of the results that are there."""
        return self._described

    def describe(self, description: Mapping[str, Json]) -> dict[str, Json]:
        """Note model and settings, or refuse those of other results."""
        found = self._described
        different = list(differences(found or description, description))
        if different:
            message = (
                f"{self.location} was made with another {' and another '.join(different)}; pass "
                "the same options, another --out, or --force to replace its results"
            )
            raise Refusal(Code.USAGE, message)
        if found is None or not self.has_results():
            self._described, self._noted = dict(description), False
        return cast("dict[str, Json]", self._described)

    def has_results(self) -> bool:
        """Tell whether there are results that a model made."""
        return bool(self.results)

    def writer(self) -> FileStore:
        """Return the writer, which is the store itself: one process alone writes."""
        return self

    def known(self, seen: set[str]) -> Iterator[Known]:
        """Yield all rows, once."""
        if seen:
            return
        seen.add("")
        for row in (*self.results.values(), *self.errors.values()):
            told = (row.get("kind", ""), row.get("moment", 0.0), row.get("rule", ""))
            sha256 = row["image_sha256"]
            yield Known(row["table"], row["image"], row["version"], sha256, row["identity"], *told)

    def stored(self) -> Mapping[str, Sequence[Stored]]:
        """Return the explanations by the names of their images."""
        found: dict[str, list[Stored]] = {}
        for row in self.results.values():
            if row["table"] == "explanations":
                one = Stored(row["target"], row["image_sha256"], partial(self.read, row))
                found.setdefault(row["image"], []).append(one)
        return found

    def read(self, row: Row) -> Result:
        """Return the explanation of a row."""
        path = self.place.real / row["explanation"]
        return TiledExplanation.load(path) if "tiles" in row else Explanation.load(path)

    def claim(self, task: str, is_quiet: Callable[[Owner], bool] | None = None) -> bool:
        """Take a task: the folder is locked, so all are free."""
        del task, is_quiet
        return True

    def release(self, task: str) -> None:
        """Give a task back."""

    @contextmanager
    def at_work(self, quiet: float) -> Generator[Callable[[Owner], bool]]:
        """Work alone."""
        del quiet
        yield lambda owner: False  # noqa: ARG005

    def tidy(self) -> None:
        """Leave everything: the folder has tidied up when it was locked."""

    def seal(self) -> None:
        """Leave the record to `finish`, which has the page too."""

    def rows(self, given: Sequence[Given]) -> Iterable[Row | Exception]:
        """Write the files of results one by one, and return their rows, or their errors."""
        return (attempt(self._row, one) for one in given)

    def _row(self, given: Given) -> Row:
        result, origin = given.result, given.origin
        name, path = self._name(origin), self.place.path
        result.save(path / f"{name}.npz")
        row: Row = {
            **vars(origin),
            **facts_of(result),
            **self.more(result),
            "explanation": f"{name}.npz",
        }
        if isinstance(result, TiledExplanation):
            label = origin.class_name or "finding"
            document = {"generator": SIGN, **export.geojson(result, name=label)}
            export.write_json(path / f"{name}.geojson", document)
            row["geojson"] = f"{name}.geojson"
        else:
            row["picture"] = None
            if result.is_explained and given.shown is not None:
                draw(result, given.shown, origin.image, path / f"{name}.png")
                row["picture"] = f"{name}.png"
        return row

    def _name(self, origin: Origin) -> str:
        """Return the name of the files of a result: that of the one which it replaces, or new."""
        before = self.results.get((origin.image, origin.target))
        if before is not None:
            return PurePath(before["explanation"]).stem
        base = self.bases.get(origin.image) or PurePath(origin.image).stem
        label = origin.class_name if self.several else ""
        return self._names.new(f"{base}-{label}" if label else base)

    def negative(self, row: Row, reason: str, rule: str) -> Row:
        """Return the row of an image that was not explained."""
        return {**row, "reason": reason, "rule": rule}

    def commit(self, table: str, rows: Sequence[Row]) -> None:
        """Move the files of rows to their place, and note the rows."""
        if self._described is not None and not self._noted:
            self.place.add({"table": "run", "run": self._described}, [])
            self._noted = True
        for row in rows:
            made = {"table": table, **row}
            with on_hold():
                self.place.add(made, files_of(row))
                self._take(made)

    def _take(self, row: Row) -> None:
        image = row.get("image", "")
        if row["table"] == "run":
            self._described = row["run"]
        elif row["table"] in RESULTS:
            for key, one in list(self.results.items()):
                if key[0] == image and one["version"] < row["version"]:
                    del self.results[key]  # of the image before it changed
            self.results[image, row["target"]] = row
            self.errors.pop(image, None)
        elif row["table"] == "errors":
            self.errors[image] = row

    def finish(self, facts: Mapping[str, Json], page: Sequence[str]) -> dict[str, Json]:
        """Write the record of all results, with facts of the run and the files of its page.

        Results of images whose files are gone stay, and are listed apart.
        """
        rows = list(self.results.values())
        listed = [*page, *(name for row in rows for name in files_of(row))]
        document: dict[str, Json] = {
            "hshap": __version__,
            "command": self.command,
            **facts,
            "images": images_of(filter(is_there, rows)),
            "removed": images_of(row for row in rows if not is_there(row)),
            "skipped": list(self.errors.values()),
            "run": self._described or {},
        }
        return self.place.finish(document, listed)


def is_there(row: Row) -> bool:
    """Tell whether the file of an image is still there; one in no local file always is."""
    path = row["path"]
    return not path or "://" in path or "#" in path or Path(path_of(path)).exists()


def files_of(row: Mapping[str, Untyped]) -> list[str]:
    """Return the names of the files of a row."""
    return [row[name] for name in ("explanation", "picture", "geojson") if row.get(name)]


def images_of(rows: Iterable[Row]) -> list[Json]:
    """Return rows as the entries of a record: one for each image, with all its explanations."""
    found: dict[str, dict[str, Untyped]] = {}
    for row in rows:
        how = json.loads(row["transform"] or "{}")
        size = how.get("size")
        entry = found.setdefault(
            row["image"],
            {
                "image": row["image"],
                "path": row["path"],
                "sha256": how.get("file_sha256", row["image_sha256"]),
                "content": row["image_sha256"],
                "size": how.get("resized_from", size),
                "explained_size": how.get("explained_size", size),
                "explanations": [],
                **{name: how[name] for name in OF_TRANSFORM if name in how},
            },
        )
        told = {name: value for name, value in row.items() if name not in OF_IMAGE}
        numbered = {"target": told.pop("class_index"), "asked": told.pop("target")}
        entry["explanations"].append({"class": row["class_name"], **numbered, **told})
    return list(found.values())


def rows_of_record(record: Mapping[str, Untyped]) -> Iterator[Row]:
    """Yield the rows of a record; anybody may have edited it, so broken entries do not count."""
    described = record.get("run")
    if isinstance(described, dict) and described:
        yield {"table": "run", "run": described}
    lists = (cast("list[Untyped]", record.get(name) or ()) for name in ("images", "removed"))
    for entry in chain.from_iterable(lists):
        try:
            own = {"image": entry["image"], "path": entry["path"], "image_sha256": entry["content"]}
            for one in entry["explanations"]:
                row = {**one, **own, "target": one["asked"], "class_index": one["target"]}
                texts = [row[name] for name in TEXTS]
                if all(isinstance(text, str) for text in texts) and isinstance(row["version"], int):
                    yield row
        except (KeyError, TypeError, AttributeError):
            continue
    for row in cast("list[Untyped]", record.get("skipped") or ()):
        if isinstance(row, dict) and row.keys() >= {*OF_IMAGE, "identity", "version", "reason"}:
            yield {**row, "table": "errors"}


def draw(explanation: Explanation, shown: Array, image: str, path: Path) -> None:
    """Write the picture of an explanation over its image in bytes."""
    pixels = shown.astype(np.float32) / np.float32(255)
    title = literal(f"{visible(PurePath(image).name)[-40:]}: {visible(heading(explanation))}")
    figure = explanation.plot(pixels, title=title)
    figure.set_layout_engine("none")  # the usual one takes as long as all the rest
    figure.savefig(
        path,
        dpi=140,
        bbox_inches="tight",  # without the blank margins around a narrow picture
        pad_inches=MARGIN,
        metadata={"Software": f"hshap {__version__}"},
    )


def facts_of(result: Result) -> dict[str, Json]:
    """Return the facts of a result that its entry in the record repeats."""
    if isinstance(result, TiledExplanation):
        return _facts_of_tiles(result)
    explanation, promise = result, {}
    if explanation.calibration is not None:
        marked = float(marked_area(explanation).mean())
        promise = {"promise": str(explanation.calibration), "marked_area": marked}
    return {
        "class_index": explanation.class_index,
        "score": explanation.score,
        "baseline_score": explanation.baseline_score,
        "explained": explanation.is_explained,
        "negative": explanation.negative or None,
        "area": sum(leaf.area for leaf in explanation.leaves) / prod(explanation.grid),
        "leaves": len(explanation.leaves),
        "regions": [
            {"start": list(box.start), "stop": list(box.stop), "score": box.score}
            for box in explanation.boxes()
        ],
        "complete": explanation.complete,
        "or_gap": explanation.audit.gap,
        "carried": explanation.audit.carried,
        "doubt": explanation.audit.doubt,
        "how_sure": explanation.how_sure.word,
        "verdict": str(explanation.how_sure),
        "concerns": [asdict(concern) for concern in explanation.concerns],
        "chosen": explanation.settings.chosen or None,
        **promise,
        "provenance": asdict(explanation.provenance),
        "evaluations": explanation.evaluations,
        "seconds": explanation.seconds,
    }


def _facts_of_tiles(found: TiledExplanation) -> dict[str, Json]:
    return {
        "class_index": found.tiles.class_index,
        "score": found.score,
        "baseline_score": found.baseline_score,
        "explained": found.tiles.is_explained,
        "negative": found.tiles.negative or None,
        "evaluations": found.evaluations,
        "tiles": found.scores.size,
        "skipped_tiles": int(found.skipped.sum()),
        "found_tiles": len(found.inside) + found.unexplained,
        "findings": [
            {"start": list(box.start), "stop": list(box.stop), "score": box.score}
            for box in found.boxes()
        ],
        "how_sure": found.how_sure.word,
        "verdict": str(found.how_sure),
        "concerns": [str(concern) for concern in found.concerns],
    }
