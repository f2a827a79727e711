"""The run folder: shards that appear whole, chained by their digests, and claims on work.

    run.json                         model, settings and schema of the run, and answers to probes
    explanations/WRITER-NUMBER-SHA256.parquet
    negatives/WRITER-NUMBER-SHA256.parquet
    errors/WRITER-NUMBER-SHA256.parquet
    tiled/SHA256.npz                 explanations of large images, whose digests are in their rows
    unfinished/KEY/             finished tiles of a large image that is being explained
    seals/NUMBER-SHA256.json         all shards and run.json at the end of a run, and the last seal
    claims/TASK                      the driver that works on a task
    claims/alive+DRIVER              changes every half minute while the driver lives

A writer is one process. Its shards name their predecessor, so none can be removed from between.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import secrets
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hshap.errors import ArgumentError, FormatError, require
from hshap.explanation.explanation import Explanation
from hshap.runs.storing.claims import Claim, Watch, shown_alive
from hshap.runs.storing.files import left_over, publish
from hshap.runs.storing.protocol import RESULTS, Known, Stored
from hshap.runs.storing.rows import as_rows, attempt, negative_row
from hshap.runs.storing.schema import EXTRA, FORMAT, SCHEMA, TABLES, arrow, read_parquet, schema_of
from hshap.runs.storing.tiled import store_tiled

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from hshap._util.processes import Owner
    from hshap._util.types import Json, Untyped
    from hshap.runs.storing.files import Files
    from hshap.runs.storing.protocol import Given
    from hshap.runs.storing.rows import Row

RUN = "run.json"
UNFINISHED = "unfinished"
FOLDERS = ("claims", "seals", "tiled", UNFINISHED)
SHARD = re.compile(r"([0-9a-f]{12})-(\d{6})-([0-9a-f]{64})\.parquet")
SEAL = re.compile(r"(\d{6})-([0-9a-f]{64})\.json")
LEVEL = 9
"""Effort of the compression; more gains little."""

SIGNS = 10
"""Signs of life that a driver gives in the time after which it counts as ended."""

WAITS, WAIT = 100, 0.05
"""Looks, and seconds between them, while another driver completes run.json."""


class OccupiedError(ArgumentError):
    """The folder for a run has files of others.

    >>> raise OccupiedError("out='photos' holds 'a.png' and is no run folder; pass another folder")
    Traceback (most recent call last):
    hshap.runs.storing.folder.OccupiedError: out='photos' holds 'a.png' and is no run folder; pass
    another folder
    """


def differences(stored: Mapping[str, Untyped], wanted: Mapping[str, Untyped]) -> Iterator[str]:
    """Yield the entries in which two descriptions of runs differ, with both values.

    >>> made = {"model": {"sha256": "a"}, "settings": {"parts": {"search": {"tolerance": 0.1}}}}
    >>> other = {**made, "settings": {"parts": {"search": {"tolerance": 0.2}}}}
    >>> list(differences(made, other))
    ['search.tolerance (0.1 there, 0.2 here)']
    """
    for name in sorted({*stored, *wanted}):
        before, now = stored.get(name), wanted.get(name)
        # Answers of a model are compared as numbers, and a note not at all.
        if before == now or name in {"probes", "note"}:
            continue
        if name == "model":
            ids = [one.get("id") if isinstance(one, dict) else one for one in (before, now)]
            if ids[0] != ids[1]:
                yield f"model_id ({_short(ids[0])} there, {_short(ids[1])} here)"
        elif name == "settings" and isinstance(before, dict) and isinstance(now, dict):
            told = {
                line
                for key in {*before, *now} - {"sha256"}
                for line in _entries(before.get(key), now.get(key), "" if key == "parts" else key)
            }
            yield from sorted(told)
        else:
            yield from _entries(before, now, name)


def _entries(before: Untyped, now: Untyped, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict) and before.get("type") == now.get("type"):
        for name in sorted({*before, *now}):
            yield from _entries(before.get(name), now.get(name), f"{path}.{name}".lstrip("."))
    elif before != now:
        yield f"{path} ({_short(before)} there, {_short(now)} here)"


def _short(value: Untyped) -> str:
    """Return a value of a description in few letters: a part by its name."""
    text = str(value["type"]) if isinstance(value, dict) and "type" in value else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _as_text(description: Mapping[str, Json]) -> bytes:
    return (json.dumps(description, indent=1, sort_keys=True) + "\n").encode()


def _has_answers(description: Mapping[str, Untyped] | None) -> bool:
    """Tell whether a description has answers of a model to probes."""
    probes = (description or {}).get("probes")
    return isinstance(probes, dict) and bool(probes.get("answers"))


@dataclass(frozen=True, order=True)
class Shard:
    """A file of rows: the process that wrote it, its number there, and its SHA-256."""

    writer: str
    number: int
    sha256: str
    table: str

    @property
    def name(self) -> str:
        """Its path in the run folder."""
        return f"{self.table}/{self.writer}-{self.number:06d}-{self.sha256}.parquet"


class ShardWriter:
    """Writes the shards of one process, each with the digest of the one before it."""

    def __init__(self, files: Files) -> None:
        self._files, self._name = files, secrets.token_hex(6)
        self._number, self._previous = 0, ""

    def rows(self, given: Sequence[Given]) -> Iterable[Row | Exception]:
        """Return the row of each explanation, or its error; those of large images one by one."""
        plain = [(one.result, one.origin) for one in given if isinstance(one.result, Explanation)]
        made = iter(as_rows(plain))
        for one in given:
            if isinstance(one.result, Explanation):
                yield next(made)
            else:
                yield attempt(store_tiled, one.result, one.origin, self._files)

    def negative(self, row: Row, reason: str, rule: str) -> Row:
        """Return the row of an image that was not explained, from that of its result."""
        return negative_row(row, reason, rule)

    def commit(self, table: str, rows: Sequence[Row]) -> Shard:
        """Write rows as one shard. It appears whole, or there is an error and nothing appears."""
        data = packed(
            table,
            rows,
            {"writer": self._name, "number": str(self._number), "previous": self._previous},
        )
        shard = Shard(self._name, self._number, hashlib.sha256(data).hexdigest(), table)
        publish(self._files, shard.name, data)
        self._number, self._previous = self._number + 1, shard.sha256
        return shard


def packed(table: str, rows: Sequence[Row], facts: Mapping[str, str]) -> bytes:
    """Return rows as a Parquet file, with facts in its metadata."""
    pa, parquet = arrow(), require("pyarrow.parquet", extra=EXTRA, needed_by="a run folder")
    schema = schema_of(table)
    schema = schema.with_metadata({**schema.metadata, **facts})
    buffer = io.BytesIO()
    made = pa.Table.from_pylist(list(rows), schema=schema)
    parquet.write_table(
        made, buffer, compression="zstd", compression_level=LEVEL, write_statistics=False
    )
    return buffer.getvalue()


@dataclass(frozen=True)
class Folder:
    """A run folder. It can be opened by any number of processes at the same time."""

    files: Files

    @property
    def location(self) -> str:
        """The folder or its URL."""
        return self.files.location

    @property
    def unfinished(self) -> Path | None:
        """The folder for finished parts of large images; None on an object store."""
        place = self.files.place()
        return None if place is None or place[1] is not None else Path(place[0], UNFINISHED)

    def writer(self) -> ShardWriter:
        """Return a writer for this process."""
        return ShardWriter(self.files)

    def describe(self, description: Mapping[str, Json]) -> dict[str, Json]:
        """Note the model and settings of the run, or refuse a folder of another run.

        Returns the description that the folder has. Answers of its model are not compared. A run
        without any, since no image could be scored, gets those of its first results.
        """
        wanted = {"format": FORMAT, "schema": SCHEMA, **description}
        found = self.description()
        if found is None:
            stray = [name for name in self.files.names("") if not name.startswith(".")]
            if stray and not set(stray) <= {*TABLES, *FOLDERS, RUN}:
                message = (
                    f"out={self.files.location!r} holds {stray[0]!r} and is no run folder; pass "
                    "another folder"
                )
                raise OccupiedError(message)
            # Another driver may be faster: its description stays, and is compared with ours.
            self.files.create(RUN, _as_text(wanted))
            found = self.description()
        different = list(differences(found or {}, wanted))
        if different:
            message = (
                f"out={self.files.location!r} is a run with another "
                f"{' and another '.join(different)}; "
                "pass the same, or another folder"
            )
            raise ArgumentError(message)
        return self._answered(wanted) or {}

    def _answered(self, wanted: Mapping[str, Json]) -> dict[str, Json] | None:
        """Return the description, after a run without results and answers got those of `wanted`."""
        for _ in range(WAITS):
            found = self.description()
            if _has_answers(found) or not _has_answers(wanted) or self.has_results():
                return found
            if not self.claim(RUN):  # another driver writes it at this moment
                time.sleep(WAIT)
                continue
            try:
                if not _has_answers(self.description()):
                    publish(self.files, RUN, _as_text(wanted))
            finally:
                self.release(RUN)
        return self.description()

    def has_results(self) -> bool:
        """Tell whether there are rows that a model made: explanations, or negative images."""
        return any(self.shards(table) for table in RESULTS)

    def description(self) -> dict[str, Json] | None:
        """Return the content of run.json; None if there is none."""
        try:
            data = self.files.read(RUN)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            message = f"{self.files.location}/{RUN} cannot be read ({error.strerror or error})"
            raise FormatError(message) from error
        try:
            found = json.loads(data)
            version = found["schema"] if found["format"] == FORMAT else None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            message = f"{self.files.location}/{RUN} is damaged ({type(error).__name__})"
            raise FormatError(message) from error
        if version != SCHEMA:
            message = (
                f"{self.files.location} has schema {version!r:.20}, but this hshap reads {SCHEMA}; "
                "open it with the hshap that wrote it, or a newer one"
            )
            raise FormatError(message)
        return found

    def shards(self, table: str) -> list[Shard]:
        """Return the committed shards of a table, sorted."""
        found = (SHARD.fullmatch(name) for name in self.files.names(table))
        return sorted(Shard(m[1], int(m[2]), m[3], table) for m in found if m)

    def count(self) -> int:
        """Count the committed shards of all tables."""
        return sum(len(self.shards(table)) for table in TABLES)

    def rows(self, shard: Shard, columns: Sequence[str] | None = None) -> Untyped:
        """Return the rows of a shard as a table of pyarrow."""
        pa = arrow()
        try:
            made = read_parquet(self.files.read(shard.name), columns)
            expected = schema_of(shard.table)
            wanted = expected.names if columns is None else list(columns)
            return made.select(wanted).cast(pa.schema([expected.field(name) for name in wanted]))
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            message = (
                f"{self.files.location}/{shard.name} is damaged ({type(error).__name__}); "
                "hshap verify tells which rows are lost"
            )
            raise FormatError(message) from error

    def facts(self, shard: Shard) -> dict[str, str]:
        """Return the metadata of a shard: its writer, its number, and the shard before it."""
        parquet = require("pyarrow.parquet", extra=EXTRA, needed_by="a run folder")
        made = parquet.read_schema(arrow().BufferReader(self.files.read(shard.name))).metadata or {}
        return {name.decode(): value.decode("utf-8", "replace") for name, value in made.items()}

    def claim(self, task: str, is_quiet: Callable[[Owner], bool] | None = None) -> bool:
        """Take a task for this process; False if a driver has it that has not ended for certain."""
        # Two drivers may still get it at once on an object store: then both work on the task, and
        # the table has each row once all the same.
        return Claim(self.files, f"claims/{task}").take(is_quiet)

    def release(self, task: str) -> None:
        """Give a task back, unless another driver has taken it by now."""
        Claim(self.files, f"claims/{task}").release()

    @contextmanager
    def at_work(self, quiet: float) -> Generator[Callable[[Owner], bool]]:
        """Show drivers of other machines that this one lives, and watch them."""
        with shown_alive(self.files, quiet / SIGNS):
            yield Watch(self, quiet).is_quiet

    def known(self, seen: set[str]) -> Iterator[Known]:
        """Yield the rows of the shards that have appeared since the last time."""
        for table in TABLES:
            names = {"errors": ["kind", "moment"], "negatives": ["rule"]}.get(table, [])
            for shard in self.shards(table):
                if shard.name in seen:
                    continue
                seen.add(shard.name)
                columns = ["image", "version", "image_sha256", "identity"]
                rows = self.rows(shard, [*columns, *names]).to_pydict()
                for told in zip(*rows.values(), strict=True):
                    yield Known(table, *told[:4], **dict(zip(names, told[4:], strict=True)))

    def stored(self) -> Mapping[str, Sequence[Stored]]:
        """Return the stored explanations by the names of their images."""
        from hshap.runs.reading import Run  # noqa: PLC0415, it reads this folder

        run, found = Run.at(self), dict[str, list[Stored]]()
        for key, sha256 in zip(
            run.keys, run.table(["image_sha256"])["image_sha256"].to_pylist(), strict=True
        ):
            one = Stored(key.target, sha256, lambda key=key: run.result(run.row(key)))
            found.setdefault(key.image, []).append(one)
        return found

    def tidy(self) -> None:
        """Remove the temporary files and signs of life of processes that were killed."""
        for place in ("", *TABLES, *FOLDERS):
            for name in left_over(self.files, place):
                with suppress(OSError):
                    self.files.remove(name)

    def seal(self) -> str:
        """Note run.json and all shards, after the seal before it; return the seal's SHA-256."""
        seals = self.seals()
        state = {
            "run": self.run_sha256(),
            "shards": sorted(shard.name for table in TABLES for shard in self.shards(table)),
        }
        previous = seals[-1][1] if seals else ""
        if seals and state.items() <= self.sealed(seals[-1]).items():
            return previous
        document = {"previous": previous, **state}
        data = json.dumps(document, indent=0, sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        publish(self.files, f"seals/{len(seals):06d}-{digest}.json", data)
        return digest

    def run_sha256(self) -> str:
        """Return the SHA-256 of run.json; empty if there is none."""
        try:
            return hashlib.sha256(self.files.read(RUN)).hexdigest()
        except FileNotFoundError:
            return ""

    def seals(self) -> list[tuple[int, str]]:
        """Return number and SHA-256 of all seals."""
        found = (SEAL.fullmatch(name) for name in self.files.names("seals"))
        return sorted((int(m[1]), m[2]) for m in found if m)

    def sealed(self, seal: tuple[int, str]) -> dict[str, Untyped]:
        """Return the content of a seal; a `FormatError` if it is none."""
        name = f"seals/{seal[0]:06d}-{seal[1]}.json"
        try:
            found: Untyped = json.loads(self.files.read(name))
            shards = found["shards"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise FormatError(f"{name} is no seal ({type(error).__name__})") from error
        if not isinstance(shards, list) or not all(isinstance(one, str) for one in shards):
            raise FormatError(f"{name} is no seal: it lists no shards")
        return found
