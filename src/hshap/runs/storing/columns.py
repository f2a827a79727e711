"""Columns: the rows of a shard that make explanations, with lists of numbers as arrays.

Lists of Python numbers, as `rows` of a run has them, take longer to make, and to make arrays of,
than the checks of a row.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hshap.runs.storing.rows import NEEDED, NUMBERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Array, Untyped


def rows_as_arrays(table: Untyped) -> list[dict[str, Untyped]]:
    """Return the columns of each row of a table of pyarrow that make its explanation.

    >>> import pyarrow as pa
    >>> names = [*NUMBERS, "image", "transform", "header", "cells"]
    >>> made = pa.table({name: [[1, 2], [3]] if name in NUMBERS else ["a", "b"] for name in names})
    >>> [(row["image"], row["leaves"].tolist()) for row in rows_as_arrays(made)]
    [('a', [1, 2]), ('b', [3])]
    """
    columns: list[Sequence[Untyped]] = [_values(name, table.column(name)) for name in NEEDED]
    return [dict(zip(NEEDED, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(name: str, column: Untyped) -> Sequence[Untyped]:
    if name not in NUMBERS:
        return column.to_pylist()
    return [array for chunk in column.chunks for array in _arrays(chunk)]


def _arrays(lists: Untyped) -> Sequence[Array | None]:
    """Return a list of numbers as one array for each row.

    Those of a damaged file may be missing, as a whole or one by one: they stay lists, and are
    refused as such.
    """
    if lists.null_count or lists.values.null_count:
        return lists.to_pylist()
    numbers = lists.values.to_numpy(zero_copy_only=True)
    wide = np.int64 if numbers.dtype.kind == "i" else numbers.dtype
    # Copies, so that an explanation does not keep the other rows of its shard.
    return [numbers[a:b].astype(wide) for a, b in pairwise(lists.offsets.to_pylist())]
