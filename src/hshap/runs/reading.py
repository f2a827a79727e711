"""Reading a run: its rows as explanations, as tables, and by SQL. No model is called."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.visible import as_text
from hshap.errors import ArgumentError, require
from hshap.explainer.probes import noted_probes
from hshap.explanation.findings import Finding
from hshap.runs.storing.columns import rows_as_arrays
from hshap.runs.storing.protocol import newest
from hshap.runs.storing.rows import blocks
from hshap.runs.storing.schema import EXPLANATIONS, EXTRA, TABLES, TOLD, arrow, schema_of
from hshap.runs.storing.stored_rows import size_of
from hshap.runs.storing.tiled import results_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hshap._util.types import Json, Untyped
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.tiled import TiledExplanation
    from hshap.runs.storing.folder import Folder, Shard
    from hshap.runs.storing.protocol import Content

    Result = Explanation | TiledExplanation

ROWS = 256
"""Rows that are in memory at once while explanations are read one by one."""


@dataclass(frozen=True)
class Key:
    """A row of a run: its image, its target, and where it is stored."""

    image: str
    target: str
    identity: str
    shard: Shard
    row: int


@dataclass(frozen=True)
class Run:
    """A run folder, as it was when it was opened.

    >>> import hshap, tempfile
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ... )
    >>> images = np.eye(4).reshape(4, 1, 2, 2)
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = hshap.runs.explain_dataset(explainer, images, folder.name, target=0)
    >>> len(run), run.errors
    (4, [])
    >>> [found.boxes()[0].start for found in run]
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    >>> run.query("select count(*) as images from explanations")
    [{'images': 4}]
    >>> folder.cleanup()
    """

    folder: Folder
    shards: Mapping[str, Sequence[Shard]]

    @classmethod
    def at(cls, folder: Folder) -> Run:
        """Return the run in a folder, with the shards that it has now."""
        return cls(folder, {table: folder.shards(table) for table in TABLES})

    @property
    def description(self) -> dict[str, Json]:
        """Model, settings and schema of the run."""
        return self.folder.description() or {}

    @property
    def batch_difference(self) -> float | None:
        """By how much a coalition value of this run may differ in other batches; None if unknown.

        It was measured on fixed noise, alone and in full batches. 0 means that rows do not depend
        on batch sizes and executors, on one kind of machine.
        """
        noted = noted_probes(self.description)
        return None if noted is None else noted.batch_difference

    @property
    def row_bytes(self) -> float | None:
        """Bytes on the disk for each row, on average; None for no rows and for remote folders."""
        place = self.folder.files.place()
        if place is None or place[1] is not None or not self._indexed[1]:
            return None
        sizes = [Path(place[0], shard.name).stat().st_size for shard in self.shards["explanations"]]
        return sum(sizes) / self._indexed[1]

    @property
    def keys(self) -> tuple[Key, ...]:
        """The rows of the images as they were last read, one for each target, sorted."""
        return self._indexed[0]

    @property
    def history(self) -> tuple[Key, ...]:
        """The rows of images that have changed since: they are stored, and read by `row` alone."""
        return self._indexed[2]

    @cached_property
    def _contents(self) -> dict[str, Content]:
        """The last content of each image, by the rows of all tables."""
        found: dict[str, Content] = {}
        for table in TABLES:
            for shard in self.shards[table]:
                rows = self.folder.rows(shard, ["image", "version", "image_sha256"]).to_pydict()
                for image, version, sha256 in zip(*rows.values(), strict=True):
                    newest(found, image, version, sha256)
        return found

    @cached_property
    def _indexed(self) -> tuple[tuple[Key, ...], int, tuple[Key, ...]]:
        return self._rows_of("explanations")

    def _rows_of(self, table: str) -> tuple[tuple[Key, ...], int, tuple[Key, ...]]:
        """Return the current rows, the number of stored ones, and those of changed images."""
        stored = 0
        found: dict[tuple[str, str], Key] = {}
        history: list[Key] = []
        columns = ["image", "target", "identity", "version", "image_sha256"]
        for shard in self.shards[table]:
            rows = self.folder.rows(shard, columns).to_pydict()
            stored += len(rows["image"])
            for number, (image, target, identity, version, sha256) in enumerate(
                zip(*rows.values(), strict=True)
            ):
                key = Key(image, target, identity, shard, number)
                if self._contents[image].holds(version, sha256):
                    found.setdefault((image, target), key)
                else:
                    history.append(key)
        return tuple(sorted(found.values(), key=_order)), stored, tuple(sorted(history, key=_order))

    @cached_property
    def negative_keys(self) -> tuple[Key, ...]:
        """The rows of images that were not explained, each once, sorted by image and target."""
        explained = {(key.image, key.target) for key in self.keys}
        return tuple(
            key for key in self._rows_of("negatives")[0] if (key.image, key.target) not in explained
        )

    @cached_property
    def negatives(self) -> list[dict[str, Untyped]]:
        """The images that were looked at and not explained, with scores and reasons.

        `run[image]` has the same as an explanation without findings.
        """
        shards = {key.shard for key in self.negative_keys}
        rows = {shard: self.folder.rows(shard, TOLD).to_pylist() for shard in shards}
        return [rows[key.shard][key.row] for key in self.negative_keys]

    @cached_property
    def errors(self) -> list[dict[str, Untyped]]:
        """The images that failed as they are, and have not been looked at since, with reasons."""
        every = (*self.keys, *self.negative_keys)
        explained = {key.image for key in every}
        rows = {(key.image, key.target) for key in every}
        found: dict[str, dict[str, Untyped]] = {}
        for shard in self.shards["errors"]:
            for row in self.folder.rows(shard).to_pylist():
                if not self._contents[row["image"]].holds(row["version"], row["image_sha256"]):
                    continue
                wanted = {(row["image"], target) for target in row["targets"]}
                if not (wanted <= rows if wanted else row["image"] in explained):
                    last = found.get(row["image"])
                    if last is None or row["moment"] >= last["moment"]:
                        found[row["image"]] = row
        return [found[image] for image in sorted(found)]

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Result]:
        rows = self._in_order(lambda shard: self._table(shard, None), rows_as_arrays)
        for block in blocks(rows, size_of):
            yield from results_of(block, self.folder.files)

    def __getitem__(self, image: str) -> Untyped:
        """Return the explanation of an image; see `explanation` for one of several."""
        return self.explanation(image)

    def result(self, row: Mapping[str, Untyped]) -> Result:
        """Return the explanation of a row; that of a large image is a `TiledExplanation`."""
        return next(results_of([row], self.folder.files))

    def explanation(self, image: str, target: int | str | None = None) -> Untyped:
        """Return the explanation of an image, by its name, and by its target if it has several.

        It is an `Explanation`, and a `TiledExplanation` for a large image.
        """
        mine = [key for key in (*self.keys, *self.negative_keys) if key.image == image]
        wanted = [key for key in mine if target is None or key.target == str(target)]
        if len(wanted) != 1:
            known = ", ".join(key.target for key in mine)
            problem = (
                f"image={image!r} is not in the run"
                if not mine
                else (f"image={image!r} has the targets {known}; pass target= with one of them")
            )
            raise ArgumentError(problem)
        return self.result(self.row(wanted[0]))

    def boxes(self) -> dict[tuple[str, str], list[Finding]]:
        """Return the boxes of all rows by image and target, as they are stored: at once."""
        found = self.table(["image", "target", "boxes"]).to_pydict()
        return {
            (image, target): [
                Finding(tuple(box["start"]), tuple(box["stop"]), box["score"]) for box in boxes
            ]
            for image, target, boxes in zip(
                found["image"], found["target"], found["boxes"], strict=True
            )
        }

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[dict[str, Untyped]]:
        """Yield all rows as dictionaries, sorted by image and target."""
        return self._in_order(lambda shard: self._table(shard, columns), lambda t: t.to_pylist())

    def _in_order(
        self,
        read: Callable[[Shard], Untyped],
        rows_of: Callable[[Untyped], list[dict[str, Untyped]]],
    ) -> Iterator[dict[str, Untyped]]:
        """Yield the rows of tables, sorted by image and target."""
        for begin in range(0, len(self.keys), ROWS):
            few = self.keys[begin : begin + ROWS]
            by_shard: dict[Shard, list[int]] = {}
            for key in few:
                by_shard.setdefault(key.shard, []).append(key.row)
            # Shard by shard, so that other rows are not in memory, however many shards there are.
            found: dict[Shard, dict[int, dict[str, Untyped]]] = {}
            for shard, numbers in by_shard.items():
                made = read(shard)
                in_order = sorted(numbers)
                if in_order != list(range(len(made))):
                    made = made.take(in_order)
                found[shard] = dict(zip(in_order, rows_of(made), strict=True))
            for key in few:
                yield found[key.shard].pop(key.row)

    def table(self, columns: Sequence[str] | None = None) -> Untyped:
        """Return `explanations` as a table of pyarrow; `to_pandas()` makes a data frame of it."""
        pa = arrow()
        names = list(EXPLANATIONS) if columns is None else list(columns)
        unknown = [name for name in names if name not in EXPLANATIONS]
        if unknown:
            message = f"columns: {unknown[0]!r} is not one of {', '.join(EXPLANATIONS)}"
            raise ArgumentError(message)
        parts, places, offset = [], {}, 0
        for shard in self.shards["explanations"]:
            part = self._table(shard, names)
            parts.append(part)
            places[shard], offset = offset, offset + len(part)
        if not parts:
            whole = schema_of("explanations")
            return pa.schema([whole.field(name) for name in names]).empty_table()
        order = np.array([places[key.shard] + key.row for key in self.keys], dtype=np.int64)
        return pa.concat_tables(parts).take(order)

    def query(self, sql: str) -> list[dict[str, Untyped]]:
        """Return the rows of an SQL query over the tables `explanations`, `negatives` and `errors`.

        DuckDB runs it with access to these tables, and to no file.
        """
        duckdb: Untyped = require("duckdb", extra=EXTRA, needed_by="a query")
        pa = arrow()
        errors = pa.Table.from_pylist(self.errors, schema=schema_of("errors"))
        whole = schema_of("negatives")
        told = pa.schema([whole.field(name) for name in TOLD])
        negatives = pa.Table.from_pylist(self.negatives, schema=told)
        with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as base:
            base.register("explanations", self._scanned())
            base.register("errors", errors)
            base.register("negatives", negatives)
            base.execute("set lock_configuration = true")
            try:
                found = base.execute(sql)
                names = [column[0] for column in found.description or ()]
                return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
            except duckdb.Error as error:
                told = " ".join(str(error).split())
                message = f"sql={sql!r} cannot be run: {told}"
                raise ArgumentError(message) from error

    def _scanned(self) -> Untyped:
        """Return `explanations` for a query that reads only the columns it needs.

        Where a row is stored twice, or is of an image that has changed, the whole table is read and
        each current row taken once.
        """
        shards, files = self.shards["explanations"], self.folder.files
        root, system = files.place() or ("", None)
        is_whole = bool(shards) and self._indexed[1] == len(self.keys)
        if not (root and is_whole and as_text(root) == root):  # pyarrow takes UTF-8 alone
            return self.table()
        dataset = require("pyarrow.dataset", extra=EXTRA, needed_by="a query")
        paths = [f"{root}/{shard.name}" for shard in shards]
        schema = schema_of("explanations").remove_metadata()
        return dataset.dataset(paths, schema=schema, format="parquet", filesystem=system)

    def _table(self, shard: Shard, columns: Sequence[str] | None) -> Untyped:
        return self.folder.rows(shard, columns)

    def row(self, key: Key) -> dict[str, Untyped]:
        """Return one row."""
        return self._table(key.shard, None).slice(key.row, 1).to_pylist()[0]


def _order(key: Key) -> tuple[str, str, str]:
    return key.image, key.target, key.identity
