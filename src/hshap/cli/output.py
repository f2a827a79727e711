"""Files that commands write: all or none, and existing ones are replaced only with --force."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hshap._util.atomic import grant_usual_permissions
from hshap.cli.faults import Code, Refusal

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from hshap._util.types import Json

SUMMARY = "summary.json"


@contextmanager
def folder(out: Path, *, force: bool) -> Generator[Path, None, None]:
    """Give a new folder to write to; without an error it then takes the place of `out`.

    With `force`, other files in `out` stay; files of the last run that were not written again go.
    """
    _refuse_filled(out, force=force)
    made = _made_parents(out)
    try:
        staging = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    except OSError as error:
        _remove(made)
        raise _unwritable(out, error) from error
    try:
        yield staging
        _publish(staging, out)
    except BaseException as error:
        shutil.rmtree(staging, ignore_errors=True)
        _remove(made)
        if isinstance(error, OSError):
            raise _unwritable(out, error) from error
        raise


@contextmanager
def single(path: Path, *, force: bool) -> Generator[Path, None, None]:
    """Give a path to write one file to; without an error it then takes the place of `path`."""
    if path.exists() and not force:
        message = f"{path} exists already; pass another --out, or --force to replace it"
        raise Refusal(Code.OUTPUT, message)
    if path.is_dir():
        raise Refusal(Code.OUTPUT, f"{path} is a folder; pass a file as --out")
    try:
        staging = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield staging / path.name
        (staging / path.name).replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


class Names:
    """Gives file names that differ, also on file systems that ignore case.

    >>> names = Names()
    >>> names.new("cell"), names.new("Cell"), names.new("a/b: c")
    ('cell', 'Cell-2', 'a_b_c')
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, wanted: str) -> str:
        """Return a name that is safe on any file system and was not given before."""
        base = re.sub(r"[^\w.+-]+", "_", plain(wanted)).strip("._")[:120] or "image"
        name, number = base, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{base}-{number}"
        self._taken.add(name.lower())
        return name


def plain(name: str) -> str:
    r"""Return a file's name with bytes that are no text replaced.

    >>> plain("a\udcff")
    'a?'
    """
    return name.encode("utf-8", "replace").decode("utf-8")


def write_summary(path: Path, document: Mapping[str, Json]) -> None:
    """Write the results of a run as JSON, for other programs."""
    path.write_text(as_json(document), encoding="utf-8")


def as_json(document: Mapping[str, Json]) -> str:
    """Return a document as standard JSON, without NaN or infinity.

    >>> as_json({"found": 1}).split()
    ['{', '"found":', '1', '}']
    """
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def print_json(document: Mapping[str, Json]) -> None:
    """Print the one JSON document of a command."""
    sys.stdout.write(as_json(document))


def say(text: str) -> None:
    """Write a note to standard error, where it cannot mix with results."""
    sys.stderr.write(plain(f"hshap: {text}\n"))


def _refuse_filled(out: Path, *, force: bool) -> None:
    try:
        filled = out.is_dir() and any(out.iterdir())
    except OSError as error:
        raise _unwritable(out, error) from error
    if out.exists() and not out.is_dir():
        raise Refusal(Code.OUTPUT, f"{out} is a file; pass a folder as --out")
    if filled and not force:
        message = f"{out} exists already; pass another --out, or --force to replace its results"
        raise Refusal(Code.OUTPUT, message)
    if filled and not os.access(out, os.W_OK):
        message = f"{out} cannot be written to; pass another --out"
        raise Refusal(Code.OUTPUT, message)


def _made_parents(out: Path) -> list[Path]:
    missing = [parent for parent in out.absolute().parents if not parent.exists()]
    try:
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove(missing)
        raise _unwritable(out, error) from error
    return missing


def _remove(folders: list[Path]) -> None:
    """Remove folders that this run made and that are still empty, the innermost first."""
    for made in folders:
        try:
            made.rmdir()
        except OSError:
            return


def _publish(staging: Path, out: Path) -> None:
    grant_usual_permissions(staging)
    if not out.exists() or not any(out.iterdir()):
        staging.replace(out)
        return
    before = _written(out / SUMMARY)
    now = sorted(staging.iterdir(), key=lambda file: file.name == SUMMARY)
    for file in now:  # the summary last: it lists the others
        file.replace(out / file.name)
    for name in before - {file.name for file in now}:
        (out / name).unlink(missing_ok=True)
    staging.rmdir()


def _written(summary: Path) -> set[str]:
    """Return the names of the files that an earlier run wrote here."""
    try:
        found = json.loads(summary.read_text("utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    # Only plain names with our suffixes: somebody may have edited the file.
    suffixes = (".npz", ".png", ".html", ".json")
    return {n for n in found if isinstance(n, str) and Path(n).name == n and n.endswith(suffixes)}


def _unwritable(out: Path, error: OSError) -> Refusal:
    reason = error.strerror or str(error)
    return Refusal(Code.OUTPUT, f"{out} cannot be written ({reason}); pass another --out")
