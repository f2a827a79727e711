"""The folder of results of a command: one writer at a time, and results appear as they finish.

    OUT/summary.json               the record: settings, results, and all files with their digests
    OUT/.hshap-run/owner           the process that writes
    OUT/.hshap-run/lines.jsonl     a line for each result since the record, before its files move
    OUT/.hshap-run/new/            files that are being written

No input and no file of others is ever replaced. A process may be killed at any point: the next one
moves the files of whole lines, and removes those of no line.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hshap._util import atomic
from hshap.cli.faults import Code, Refusal
from hshap.cli.output import as_json
from hshap.cli.runs.output_files import input_in, unwritable
from hshap.cli.runs.record import (
    DIGESTS,
    SUMMARY,
    digest,
    is_inside,
    is_ours,
    read_summary,
    unchanged,
)
from hshap.cli.runs.signals import on_hold
from hshap.runs.storing.claims import Claim
from hshap.runs.storing.files import LocalFiles, left_over

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping, Sequence

    from hshap._util.types import Json

STATE = ".hshap-run"
OWNER, LINES, NEW, UNFINISHED = "owner", "lines.jsonl", "new", "unfinished"
TRIES = 20


@dataclass
class ResultFolder:
    """A folder that this process alone writes results to.

    `path` takes files that are being written. `real` is the folder, and `out` its name in messages.
    `ours` are unchanged files of earlier results, with digests: they may be replaced. `others` are
    the names of all other files, which never are. `rows` are the results since the record, and
    `record` has those before.
    """

    out: Path
    real: Path
    ours: dict[str, str]
    others: frozenset[str]
    record: Mapping[str, Json] | None
    rows: list[Mapping[str, Json]]
    anew: bool = False
    _digests: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def path(self) -> Path:
        """The folder for files that are being written."""
        return self.real / STATE / NEW

    @property
    def unfinished(self) -> Path:
        """The folder for unfinished work, which the next run takes up."""
        return self.real / STATE / UNFINISHED

    @property
    def has_results(self) -> bool:
        """Whether there are results that go on the next time."""
        return bool(self.rows) or (self.record is not None and not self.anew)

    def add(self, row: Mapping[str, Json], names: Sequence[str]) -> None:
        """Add a result: its files in `path` take their places, in this order."""
        if self.anew:
            self._clear()
        digests = {name: digest(self.path / name) for name in names}
        line = json.dumps({"row": dict(row), DIGESTS: digests}) + "\n"
        with on_hold():
            with (self.real / STATE / LINES).open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            self._move(digests)
            self.rows.append(row)

    def _clear(self) -> None:
        """Remove the earlier results, now that the first of the new ones is there."""
        with on_hold():
            (self.real / STATE / LINES).unlink(missing_ok=True)
            self._remove(self.ours | self._digests)
            self.ours, self.record, self.anew = {}, None, False
            self._digests.clear()

    def _move(self, digests: Mapping[str, str]) -> None:
        for name, sha256 in digests.items():
            if (self.path / name).exists() and not self._put(name):
                message = (
                    f"{self.out / name} appeared during the run and is not replaced; move it away, "
                    "and run the same command to go on"
                )
                raise Refusal(Code.OUTPUT, message)
            self._digests[name] = sha256

    def _put(self, name: str) -> bool:
        """Move a file to its place; False if a file of others is there, or a link leads away."""
        staged, target = self.path / name, self.real / name
        inside = (path for path in target.parents if path.is_relative_to(self.real))
        if any(path.is_symlink() for path in inside if path != self.real):
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        known = self._digests.get(name) or self.ours.get(name)
        if known is not None and not target.is_symlink() and is_ours(target, known):
            staged.replace(target)
            return True
        return atomic.give_name(staged, target)

    def settle(self, given: Iterable[Mapping[str, Json]]) -> None:
        """Take over the lines of a process that was killed, as far as their files are whole."""
        for line in given:
            digests = cast("dict[str, str]", line[DIGESTS])
            staged = {n: d for n, d in digests.items() if _has(self.path / n, d)}
            placed = {
                n: d for n, d in digests.items() if n not in staged and is_ours(self.real / n, d)
            }
            if digests.keys() == staged.keys() | placed.keys():
                self.ours |= placed
                self._digests |= placed
                self._move(staged)
                self.rows.append(cast("Mapping[str, Json]", line["row"]))
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(mode=0o700)
        self.others -= self._digests.keys()

    def finish(self, document: Mapping[str, Json], names: Iterable[str]) -> dict[str, Json]:
        """Write the record: a document, and the named files with digests; others of ours go.

        Returns the whole record.
        """
        known = {**self.ours, **self._digests}
        digests = {name: known[name] for name in sorted(set(names)) if name in known}
        record: dict[str, Json] = {
            **document,
            "files": sorted([SUMMARY, *digests]),
            DIGESTS: {**digests},
        }
        with on_hold():
            atomic.replace(self.real / SUMMARY, lambda file: file.write(as_json(record).encode()))
            self._remove({name: known[name] for name in known.keys() - digests.keys() - {SUMMARY}})
            (self.real / STATE / LINES).unlink(missing_ok=True)
        self.record, self.rows = record, []
        return record

    def forget(self) -> None:
        """Forget lines without results: nothing stays of a run that had none."""
        (self.real / STATE / LINES).unlink(missing_ok=True)

    def _remove(self, known: Mapping[str, str]) -> None:
        for name, sha256 in known.items():
            path = self.real / name
            if name == SUMMARY or is_ours(path, sha256):
                path.unlink(missing_ok=True)
                for parent in path.parents:
                    if parent == self.real:
                        break
                    with suppress(OSError):
                        parent.rmdir()  # of a page, if it is empty now


@contextmanager
def result_folder(
    out: Path,
    *,
    anew: bool = False,
    mixed: bool = False,
    inputs: Collection[Path] = (),
    fixed: Collection[str] = (),
) -> Generator[ResultFolder, None, None]:
    """Lock a folder for results; what was added stays, whatever ends the block.

    With `anew`, earlier results are replaced as soon as there is a new one. A folder with files of
    others is refused unless `anew` or `mixed`. `fixed` are names that the command cannot choose: a
    file of others that has one is refused, and so is an input anywhere in the folder.
    """
    real = Path(os.path.realpath(out))
    try:
        _refuse(real, out, inputs)
        with _locked(real, out):
            _refuse(real, out, inputs)  # again: another run may just have ended
            ours, record = unchanged(real), read_summary(real)
            others = frozenset(_names(real) - set(ours))
            lines = _lines(real)
            if others and record is None and not lines and not (anew or mixed):
                message = (
                    f"{out} has files that hshap did not write; pass another --out, or --force to "
                    "write beside them"
                )
                raise Refusal(Code.OUTPUT, message)
            place = ResultFolder(out, real, ours, others, record, [])
            with on_hold():
                place.settle(lines)
            place.anew = anew and (record is not None or bool(place.rows))
            if place.anew:
                place.rows.clear()
            for name in sorted(place.others.intersection(fixed)):
                message = (
                    f"{out / name} was not written by hshap, or has changed since; move it away, "
                    "or pass another --out"
                )
                raise Refusal(Code.OUTPUT, message)
            yield place
    except OSError as error:
        raise unwritable(out, error) from error


def _has(path: Path, sha256: str) -> bool:
    try:
        return digest(path) == sha256
    except (OSError, ValueError):
        return False


def _refuse(real: Path, out: Path, inputs: Iterable[Path]) -> None:
    """Refuse a file, and a folder that has an input in it or cannot be written to."""
    if real.exists() and not real.is_dir():
        raise Refusal(Code.OUTPUT, f"{out} is a file; pass a folder as --out")
    names = _names(real)
    held = input_in(real, names, inputs)
    if held is not None:
        which = "is an input" if held == out else f"has the input {held} in it"
        message = f"{out} {which}, and inputs are never written over; pass another --out"
        raise Refusal(Code.OUTPUT, message)
    if names and not os.access(real, os.W_OK):
        raise Refusal(Code.OUTPUT, f"{out} cannot be written to; pass another --out")


def _names(real: Path) -> set[str]:
    """Return the names in a folder, without that of its state; none if it does not exist."""
    return {path.name for path in real.iterdir()} - {STATE} if real.exists() else set()


@contextmanager
def _locked(real: Path, out: Path) -> Generator[None, None, None]:
    """Make a folder and lock it; at the end, folders that were made and are empty go again."""
    missing = [path for path in (real, *real.parents) if not path.exists()]
    claim = Claim(LocalFiles(real), f"{STATE}/{OWNER}", secrets.token_hex(4))
    held = False
    try:
        with on_hold():
            _make(real, out)
            held = claim.take()
            if not held:
                raise Refusal(Code.OUTPUT, _busy(claim, real, out))
            for name in left_over(claim.files, STATE):
                claim.files.remove(name)
            (real / STATE / NEW).mkdir(mode=0o700, exist_ok=True)
        yield
    finally:
        with on_hold():
            if held:
                if not (real / STATE / LINES).exists():  # else files wait to be moved
                    shutil.rmtree(real / STATE / NEW, ignore_errors=True)
                claim.release()
            # Lines without a record, and unfinished work, stay for the next run.
            with suppress(OSError):
                (real / STATE / UNFINISHED).rmdir()
            for path in (real / STATE, *missing):
                try:
                    path.rmdir()
                except OSError:
                    break


def _make(real: Path, out: Path) -> None:
    try:
        real.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if real.is_dir():
            return
        reason = f"it cannot be created as a folder ({error.strerror}); pass another --out"
        raise Refusal(Code.OUTPUT, f"{out} cannot be written: {reason}") from error


def _busy(claim: Claim, real: Path, out: Path) -> str:
    owner = claim.holder()
    who = "" if owner is None else f" (process {owner.process} on {owner.machine})"
    fix = "pass another --out"
    if owner is not None and not owner.is_here:
        fix = f"remove the folder {real / STATE} if that process has ended"
    return f"another run{who} is writing to {out}; wait for it, or {fix}"


def _lines(real: Path) -> list[Mapping[str, Json]]:
    """Return the lines of results since the record that are whole, and name files of hshap."""
    try:
        text = (real / STATE / LINES).read_text("utf-8")
    except (OSError, ValueError):
        return []
    found: list[Mapping[str, Json]] = []
    for line in text.splitlines():
        with suppress(ValueError, RecursionError):
            made = json.loads(line)
            if (
                isinstance(made, dict)
                and isinstance(made.get("row"), dict)
                and _names_files(real, made)
            ):
                found.append(made)
    return found


def _names_files(real: Path, line: Mapping[str, Json]) -> bool:
    digests = line.get(DIGESTS)
    return isinstance(digests, dict) and all(
        is_inside(real, name) and name != SUMMARY and isinstance(sha256, str)
        for name, sha256 in digests.items()
    )
