"""One file as the output of a command: it replaces no input, and other files only on request."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hshap._util.atomic import give_name
from hshap.cli.faults import Code, Refusal
from hshap.cli.runs.signals import on_hold
from hshap.export.page.writing import MARK, folder_of

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator


@contextmanager
def single(
    path: Path, *, force: bool, inputs: Collection[Path] = (), is_page: bool = False
) -> Generator[Path, None, None]:
    """Give a path to write one file to; without an error it then takes the place of `path`.

    An input is never replaced, any other file only with `force`. A link is followed. A page may
    have a folder beside it, which is moved with it.
    """
    real = Path(os.path.realpath(path))
    try:
        before = _replaceable(real, path, inputs, force=force)
        with tempfile.TemporaryDirectory(prefix=".hshap-", dir=real.parent) as folder:
            # A page has its own name, by which its folder is called; a name may be as long as the
            # system allows.
            staged = Path(folder, real.name if is_page else f"file{real.suffix[:20]}")
            yield staged
            if before is not None:
                staged.chmod(stat.S_IMODE(before.st_mode) & 0o777)
            with on_hold():
                if is_page:
                    _put_folder(staged, real, is_replaced=before is not None)
                if before is not None:
                    staged.replace(real)
                elif not give_name(staged, real):
                    message = (
                        f"{path} appeared in the meantime and is not replaced; pass another --out"
                    )
                    raise Refusal(Code.OUTPUT, message)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(out: Path, error: OSError) -> Refusal:
    """Return the refusal for an output that the system does not let be written."""
    reason = error.strerror or str(error)
    return Refusal(Code.OUTPUT, f"{out} cannot be written ({reason}); pass another --out")


def input_in(real: Path, names: Iterable[str], inputs: Iterable[Path]) -> Path | None:
    """Return the input that a folder is or has in it, by any name, also as a link."""
    known = {key: path for path in inputs for key in _keys(path)}
    found = (known.get(key) for path in (real, *(real / n for n in names)) for key in _keys(path))
    return next((path for path in found if path is not None), None)


def _keys(path: Path) -> Iterator[object]:
    """Yield values that two paths share if they lead to one file."""
    try:
        state = path.stat()
    except OSError:
        return
    yield os.path.normcase(os.path.realpath(path))
    if state.st_ino:  # 0 on file systems without such numbers
        yield state.st_dev, state.st_ino


def _replaceable(
    real: Path, path: Path, inputs: Iterable[Path], *, force: bool
) -> os.stat_result | None:
    """Return the state of a file that may be replaced, None if there is none, or refuse."""
    held = input_in(real, (), inputs)
    if held is not None:
        message = f"{path} is the input {held}, which is never written over; pass another --out"
        raise Refusal(Code.OUTPUT, message)
    try:
        before = real.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(before.st_mode):
        raise Refusal(Code.OUTPUT, f"{path} is a folder; pass a file as --out")
    if not stat.S_ISREG(before.st_mode):
        raise Refusal(Code.OUTPUT, f"{path} is a pipe or a device; pass a file as --out")
    if not force:
        message = f"{path} exists already; pass another --out, or --force to replace it"
        raise Refusal(Code.OUTPUT, message)
    if not os.access(real, os.W_OK):
        raise Refusal(Code.OUTPUT, f"{path} is read-only; pass another --out")
    return before


def _put_folder(page: Path, target: Path, *, is_replaced: bool) -> None:
    """Move the folder of a page, if it has one; that of a page that is replaced goes."""
    new, old = page.with_name(folder_of(page)), target.with_name(folder_of(target))
    if is_replaced and (old / MARK).is_file():
        old.rename(page.with_name("folder-before"))  # it goes with the staging folder
    if new.exists():
        if old.exists():
            message = f"{old} exists already; move it away, or pass another --out"
            raise Refusal(Code.OUTPUT, message)
        new.rename(old)
