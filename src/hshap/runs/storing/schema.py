"""The schema of a run folder: the columns of its three tables, with their meaning.

`SCHEMA` is written into every shard. A change of a column, or of its meaning, needs a new number.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from hshap.errors import require

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Untyped

FORMAT = "hshap run"
SCHEMA = 1
EXTRA = "runs"

NUMBERS, FLOATS = "list<int32>", "list<double>"

EXPLANATIONS: Mapping[str, tuple[str, str]] = {
    "image": ("string", "name of the image in the run: its path from the folder, or its number"),
    "identity": ("string", "SHA-256 of schema, model, settings, target and the image's bytes"),
    "digest": ("string", "SHA-256 of all other columns of the row"),
    "path": ("string", "where the image was read; empty for an image from memory"),
    "image_sha256": ("string", "SHA-256 of the file, or of the array of an image from memory"),
    "version": ("int64", "0 for the first content of the image, 1 after it changed, and so on"),
    "transform": ("string", "JSON: how the file became the model's input"),
    "target": ("string", "the target that was asked for"),
    "class_index": ("int64", "the explained output of the model; null for a callable"),
    "class_name": ("string", "the name of that output; its number where it has none"),
    "score": ("double", "the model's score on the image"),
    "baseline_score": ("double", "the model's score on the bare baseline"),
    "evaluations": ("int64", "model inputs that the explanation rests on"),
    "seconds": ("double", "wall-clock time, shared with the other images of the batch"),
    "complete": ("bool", "whether the search ended by itself, and not by its budget"),
    "doubt": ("double", "a number to sort by, 0 for small findings that each have the score"),
    "audit": ("string", "JSON: the numbers of the audit"),
    "concerns": ("list<string>", "reasons that change how to read it, the gravest first"),
    "boxes": ("boxes", "boxes around the findings, the highest score first"),
    "header": ("string", "JSON: grid, settings, provenance and the numbers of the explanation"),
    "game_region": (NUMBERS, "the region of each game, by number; the first one is the image"),
    "game_players": (NUMBERS, "the number of parts of each game"),
    "game_children": (NUMBERS, "the parts of all games, by number"),
    "game_values": (FLOATS, "the scores of all coalitions, 2 ** players of each game"),
    "game_coefficients": (FLOATS, "Shapley values of all parts; empty if they are exactly those"),
    "game_errors": (FLOATS, "standard errors of the coefficients; empty if all are 0"),
    "leaves": (NUMBERS, "the relevant regions, by number"),
    "unfinished": (NUMBERS, "the regions that a budget left unsplit, by number"),
    "region_kind": (NUMBERS, "of each region: 0 a block, 1 a block across the border, 2 free"),
    "region_corners": (NUMBERS, "of each block: first pixel, then the one past the last"),
    "cells": ("binary", "the finest free region around each pixel, XOR that of the pixel above"),
}
"""Type and meaning of each column of `explanations`."""

DERIVED = frozenset({"complete", "doubt", "audit", "concerns", "boxes"})
"""Columns of findings, which an image without a search has none of."""

NEGATIVES: Mapping[str, tuple[str, str]] = {
    **{name: told for name, told in EXPLANATIONS.items() if name not in DERIVED},
    "rule": ("string", "the rule by which images were explained"),
    "reason": ("string", "why the image is negative, in one line"),
}
"""Type and meaning of each column of `negatives`: images that were looked at, not explained."""

TOLD = (
    "image",
    "identity",
    "path",
    "image_sha256",
    "target",
    "class_index",
    "class_name",
    "score",
    "baseline_score",
    "evaluations",
    "rule",
    "reason",
)
"""Columns of `negatives` that queries see; the others make the image's row an explanation."""

ERRORS: Mapping[str, tuple[str, str]] = {
    "image": ("string", "name of the image in the run"),
    "identity": ("string", "SHA-256 of schema, model, settings, targets and the image's bytes"),
    "digest": ("string", "SHA-256 of all other columns of the row"),
    "path": ("string", "where the image was read; empty for an image from memory"),
    "image_sha256": ("string", "SHA-256 of the file; null if it could not be read"),
    "version": ("int64", "number of the image's content, as in explanations"),
    "targets": ("list<string>", "targets that it should have rows of; empty if unknown"),
    "kind": (
        "string",
        "image: it cannot be used; explaining: the model failed; worker: the process ended",
    ),
    "reason": ("string", "the error in one line"),
    "moment": ("double", "seconds since 1970 when it was noted"),
}
"""Type and meaning of each column of `errors`."""

VOLATILE = frozenset({"digest", "seconds", "moment", "header"})
"""Columns that two runs of one image may fill otherwise: times, and the provenance of scores."""

TABLES = {"explanations": EXPLANATIONS, "negatives": NEGATIVES, "errors": ERRORS}


def arrow(needed_by: str = "a run folder") -> Untyped:
    """Return the library that reads and writes the shards."""
    return require("pyarrow", extra=EXTRA, needed_by=needed_by)


def read_parquet(
    data: bytes, columns: Sequence[str] | None = None, needed_by: str = "a run folder"
) -> Untyped:
    """Return the table in a Parquet file, or those of some columns that it has.

    It is read by the thread that calls. Threads of pyarrow would keep `data`, an object of Python,
    for a moment after the table is there. At the end of a process this is too late: a thread that
    then asks for Python's lock is ended by Python, and with it the process ("terminate called
    without an active exception").
    """
    parquet = require("pyarrow.parquet", extra=EXTRA, needed_by=needed_by)
    file = parquet.ParquetFile(arrow(needed_by).BufferReader(data), pre_buffer=False)
    return file.read(columns=None if columns is None else list(columns), use_threads=False)


@cache
def schema_of(table: str) -> Untyped:
    """Return the schema of a table as pyarrow has it.

    >>> schema_of("errors").names[:2]
    ['image', 'identity']
    """
    pa = arrow()
    kinds = {
        "string": pa.string(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "bool": pa.bool_(),
        "binary": pa.binary(),
        "list<string>": pa.list_(pa.string()),
        NUMBERS: pa.list_(pa.int32()),
        FLOATS: pa.list_(pa.float64()),
        "boxes": pa.list_(
            pa.struct(
                [
                    ("start", pa.list_(pa.int32())),
                    ("stop", pa.list_(pa.int32())),
                    ("score", pa.float64()),
                ]
            )
        ),
    }
    return pa.schema(
        [pa.field(name, kinds[kind]) for name, (kind, _) in TABLES[table].items()],
        metadata={"format": FORMAT, "schema": str(SCHEMA), "table": table},
    )
