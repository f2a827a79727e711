"""Checks of an ONNX file before onnxruntime opens it: other files that it names, sizes, nesting.

An ONNX file is a protobuf message. This module walks it without unpacking any tensor, and looks at
each tensor, wherever it is: in graphs, attributes, functions and sparse tensors.
"""

from __future__ import annotations

import math
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hshap.cli.faults import Code, Refusal

if TYPE_CHECKING:
    from collections.abc import Generator

MAX_BYTES = 2**31
"""The largest protobuf message that any reader takes."""
MAX_FIELDS = 500_000
"""Walking them takes about a second. A network of 1,000 layers has about 50,000 fields."""
MAX_DEPTH = 100
"""The limit of protobuf itself; a graph inside of a graph takes three levels."""

PARTS = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "TensorProto": {},
}
"""For each message that can hold a tensor, the fields that lead to it."""

DIMS = {"TensorProto": 1, "SparseTensorProto": 3}
EXTERNAL_DATA = 13


class DamagedError(ValueError):
    """The bytes are not a protobuf message, or one beyond the limits."""


def check_onnx_file(path: Path) -> int:
    """Return the bytes of an ONNX model with its external data; refuse a file that may do harm."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            message = f"{path} has {size} bytes, more than an ONNX file can have ({MAX_BYTES})"
            raise Refusal(Code.MODEL, f"{message}; keep its weights in external data")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            others = _external_files(Fields(data), path)
        return size + sum(other.stat().st_size for other in others)
    except ValueError as error:  # a `DamagedError`, or mmap of an empty file
        message = f"{path} is not an ONNX model that can be loaded ({error}); check its origin"
        raise Refusal(Code.MODEL, message) from error
    except OSError as error:
        message = f"--model {path} cannot be read ({error.strerror or error}); pass another file"
        raise Refusal(Code.MODEL, message) from error


def machine_memory() -> int:
    """Return the bytes of memory of this machine; 16 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 2**34


class Fields:
    """The fields of protobuf messages in a buffer; counts them, and stops at a limit.

    >>> list(Fields(bytes([8, 200, 1, 18, 1, 65])).of(0, 6))
    [(1, 1, 3), (2, 5, 6)]
    """

    def __init__(self, data: bytes | mmap.mmap, most: int = MAX_FIELDS) -> None:
        self._data, self._most, self._left = data, most, most
        self.length = len(data)

    def of(self, start: int, stop: int) -> Generator[tuple[int, int, int], None, None]:
        """Yield the number of each field of a message, and where its value starts and stops."""
        while start < stop:
            self._left -= 1
            if self._left < 0:
                raise DamagedError(f"it has more than {self._most} fields")
            key, start = self._integer(start, stop)
            kind, first = key & 7, start
            if kind == 0:
                _, start = self._integer(start, stop)
            elif kind == 2:
                length, first = self._integer(start, stop)
                start = first + length
            elif kind in (1, 5):
                start += 8 if kind == 1 else 4
            else:
                raise DamagedError(f"byte {first} is no field of a protobuf message")
            if start > stop:
                raise DamagedError(f"the field at byte {first} is cut short")
            yield key >> 3, first, start

    def integers(self, start: int, stop: int) -> Generator[int, None, None]:
        """Yield the signed integers of a field, one or packed."""
        while start < stop:
            value, start = self._integer(start, stop)
            yield value - 2**64 if value >= 2**63 else value

    def text(self, start: int, stop: int) -> str:
        """Return the text of a field."""
        return self._data[start:stop].decode("utf-8", "backslashreplace")

    def _integer(self, start: int, stop: int) -> tuple[int, int]:
        """Return an integer of variable length, and where it stops."""
        value = 0
        for place in range(start, min(start + 10, stop)):
            byte = self._data[place]
            value |= (byte & 127) << 7 * (place - start)
            if byte < 128:
                return value % 2**64, place + 1
        raise DamagedError(f"the number at byte {start} does not end")


def _external_files(fields: Fields, path: Path) -> set[Path]:
    """Return the checked files of external data; the shape of each tensor is checked, too."""
    found: set[Path] = set()
    memory = machine_memory()
    left = [("ModelProto", 0, fields.length, 1)]
    while left:
        kind, start, stop, depth = left.pop()
        if depth > MAX_DEPTH:
            raise DamagedError(f"it has more than {MAX_DEPTH} levels")
        dims: list[int] = []
        for number, first, last in fields.of(start, stop):
            if number in PARTS[kind]:
                left.append((PARTS[kind][number], first, last, depth + 1))
            elif number == DIMS.get(kind):
                dims += fields.integers(first, last)
            elif number == EXTERNAL_DATA and kind == "TensorProto":
                found |= _located(fields, first, last, path)
        if math.prod(dims) > memory:
            shape = " x ".join(map(str, dims))
            message = f"{path} announces a tensor of {shape[:80]} numbers, more than the memory"
            raise Refusal(Code.MODEL, f"{message} of this machine; check its origin")
    return found


def _located(fields: Fields, start: int, stop: int, path: Path) -> set[Path]:
    """Return the file that an entry of external data names, if it names one."""
    entry = {number: fields.text(first, last) for number, first, last in fields.of(start, stop)}
    return {_inside(path, entry.get(2, ""))} if entry.get(1) == "location" else set()


def _inside(path: Path, name: str) -> Path:
    """Return the file of external data; refuse one outside of the model's folder."""
    said = f"{path} names external data {ascii(name)[:80]}"
    advice = "keep external data in the model's folder, or pass --trust if you trust its author"
    # Asterisks: to onnxruntime, "*/_ORT_MEM_ADDR_/*" is an address in memory and no file.
    odd = not name.isprintable() or any(sign in name for sign in "\\:*")
    if odd or Path(name).is_absolute() or ".." in Path(name).parts:
        raise Refusal(Code.MODEL, f"{said}, which is no plain relative path; {advice}")
    try:
        folder, file = path.parent.resolve(), (path.parent / name).resolve()
    except RuntimeError:
        raise Refusal(Code.MODEL, f"{said}, a link to itself; {advice}") from None
    if folder not in file.parents and folder != file:
        raise Refusal(Code.MODEL, f"{said}, a link to another folder; {advice}")
    if not file.is_file():
        raise Refusal(Code.MODEL, f"{said}, which is no file in its folder; copy it there")
    return file
