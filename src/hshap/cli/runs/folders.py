"""Where commands write: no input and no file of others is replaced, and no result is lost.

Results are made in a hidden folder, which is also the lock of the output, and moved at the end.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hshap._util.atomic import grant_usual_permissions
from hshap.cli.faults import Code, Refusal
from hshap.cli.output import say
from hshap.cli.runs.journal import close, complete, has_results
from hshap.cli.runs.locks import PREFIX, TRIES, locked
from hshap.cli.runs.record import PAGE, SUMMARY, UNFINISHED, files_in, read_summary, unchanged
from hshap.cli.runs.signals import on_hold
from hshap.export.page.writing import MARK, folder_of

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator

LOCK = f"{PREFIX}run"


@dataclass(frozen=True)
class Place:
    """A folder for results. `path` is to be written to; its files are moved to `out` at the end.

    `ours` are unchanged files of an earlier run in `out`, with digests: they may be replaced.
    `others` are the names of all other files there, which are never replaced.
    """

    path: Path
    out: Path
    ours: dict[str, str]
    others: frozenset[str]

    def set_aside(self) -> Path:
        """Move the results to a new folder in `out`, where nothing is in their way."""
        aside = self.out / f"results-{secrets.token_hex(4)}"
        with suppress(OSError):  # on a full disk, the folder stays private
            grant_usual_permissions(self.path)
        return self.path.rename(aside)


@contextmanager
def folder(
    out: Path, *, fill: bool, inputs: Collection[Path] = (), fixed: Collection[str] = ()
) -> Generator[Place, None, None]:
    """Lock a folder and give a place to write to; without an error its files then go to `out`.

    With `fill`, `out` may have files already. Those of an earlier run are replaced, and removed
    unless the new record lists them; others stay. `fixed` are the names that the command cannot
    choose: a file of others that has one is a `Refusal`, and so is an input anywhere in `out`.
    """
    real = Path(os.path.realpath(out))
    try:
        _refuse(real, out, inputs, fill=fill)
        with ExitStack() as stack:
            results = _entered(stack, real, out)
            _rescue(results, real, out)
            _refuse(real, out, inputs, fill=fill)  # again: another run may just have ended
            ours = unchanged(real)
            place = Place(results, real, ours, frozenset(_names(real) - set(ours)))
            for name in sorted(place.others.intersection(fixed)):
                message = (
                    f"{out / name} was not written by hshap, or has changed since; move it away, "
                    "or pass another --out"
                )
                raise Refusal(Code.OUTPUT, message)
            yield place
            with on_hold():
                _publish(place, out)
    except OSError as error:
        raise unwritable(out, error) from error


def _rescue(results: Path, real: Path, out: Path) -> None:
    """Publish the finished images of a run that was killed, as if it had been stopped."""
    if not has_results(results.parent):
        return
    with on_hold():
        belongs = complete(results, real)
        place = Place(results, real, unchanged(real), frozenset())
        if belongs:
            _publish(place, out)
            say(f"{out}: the run before this one was killed; its finished images are kept")
        else:
            where = out / place.set_aside().name
            say(f"{out}: the run before this one was killed; its finished images are in {where}")
        close(results)
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir(mode=0o700)


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
        # Not by the name itself, which may be as long as the system allows. Systems that ignore
        # case must lead to one lock.
        name = hashlib.sha256(os.fsencode(real.name.casefold())).hexdigest()[:16]
        with locked(real.parent / f"{PREFIX}{name}", path) as results:
            before = _replaceable(real, path, inputs, force=force)
            # A page has its own name, by which its folder is called.
            staged = results / (real.name if is_page else f"file{real.suffix[:20]}")
            yield staged
            if before is not None:
                staged.chmod(stat.S_IMODE(before.st_mode) & 0o777)
            with on_hold():
                if is_page:
                    _put_folder(staged, real, is_replaced=before is not None)
                _put(staged, real, replace=before is not None)
    except FileExistsError as error:
        message = f"{path} appeared in the meantime and is not replaced; pass another --out"
        raise Refusal(Code.OUTPUT, message) from error
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(out: Path, error: OSError) -> Refusal:
    """Return the refusal for an output that the system does not let be written."""
    reason = error.strerror or str(error)
    return Refusal(Code.OUTPUT, f"{out} cannot be written ({reason}); pass another --out")


def _refuse(real: Path, out: Path, inputs: Iterable[Path], *, fill: bool) -> None:
    """Refuse a folder that has an input in it, or any file unless it may be filled."""
    if real.exists() and not real.is_dir():
        raise Refusal(Code.OUTPUT, f"{out} is a file; pass a folder as --out")
    names = _names(real)
    held = _input_in(real, names, inputs)
    if held is not None:
        which = "is an input" if held == out else f"has the input {held} in it"
        message = f"{out} {which}, and inputs are never written over; pass another --out"
        raise Refusal(Code.OUTPUT, message)
    if names and not fill:
        fix = "pass another --out, or --force to replace its results"
        record = read_summary(real) or {}
        if record.get("interrupted") or UNFINISHED in names:
            fix = "pass --resume to go on, --force to replace its results, or another --out"
        raise Refusal(Code.OUTPUT, f"{out} exists already; {fix}")
    if names and not os.access(real, os.W_OK):
        raise Refusal(Code.OUTPUT, f"{out} cannot be written to; pass another --out")


def _names(real: Path) -> set[str]:
    """Return the names in a folder, without the lock; none if it does not exist."""
    return {path.name for path in real.iterdir()} - {LOCK} if real.exists() else set()


def _input_in(real: Path, names: Iterable[str], inputs: Iterable[Path]) -> Path | None:
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


def _entered(stack: ExitStack, real: Path, out: Path) -> Path:
    """Make a folder and lock it, until the stack ends; return the place for results."""
    for _ in range(TRIES):
        with suppress(FileNotFoundError):  # a run that ended may remove the folder that it made
            stack.enter_context(_made(real, out))
            return stack.enter_context(locked(real / LOCK, out))
    reason = "its folder is missing, or removed again and again"
    raise Refusal(Code.OUTPUT, f"{out} cannot be written: {reason}; pass another --out")


@contextmanager
def _made(real: Path, out: Path) -> Generator[None, None, None]:
    """Make a folder and its parents; at the end, those that are empty go again."""
    missing = [path for path in (real, *real.parents) if not path.exists()]
    try:
        real.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if real.is_dir() or isinstance(error, FileNotFoundError):
            raise
        reason = f"it cannot be created as a folder ({error.strerror}); pass another --out"
        raise Refusal(Code.OUTPUT, f"{out} cannot be written: {reason}") from error
    finally:
        with on_hold():
            for path in missing:
                try:
                    path.rmdir()
                except OSError:
                    break


def _replaceable(
    real: Path, path: Path, inputs: Iterable[Path], *, force: bool
) -> os.stat_result | None:
    """Return the state of a file that may be replaced, None if there is none, or refuse."""
    held = _input_in(real, (), inputs)
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


def _publish(place: Place, out: Path) -> None:
    """Move results to their folder: the page after its parts, and last the record of all."""
    names = sorted(files_in(place.path), key=lambda name: (name == SUMMARY, name == PAGE))
    listed = (read_summary(place.path) or {}).get("files")
    ours = unchanged(place.out)  # again: files may have changed during the run
    known = {key for name in ours for key in _keys(place.out / name)}
    try:
        moves = [(place.path / name, place.out / name) for name in names]
        replaced = {to for _, to in moves if not (to.is_symlink() or known.isdisjoint(_keys(to)))}
        for _, to in moves:
            linked = any(path.is_symlink() for path in to.parents if path.is_relative_to(place.out))
            if linked or (to not in replaced and os.path.lexists(to)):
                raise FileExistsError(errno.EEXIST, "appeared during the run", to.name)
        for file, to in moves:
            to.parent.mkdir(parents=True, exist_ok=True)
            _put(file, to, replace=to in replaced)
    except OSError as error:
        where = out / place.set_aside().name
        name = out / Path(os.fsdecode(error.filename or SUMMARY)).name
        message = f"{name} cannot be written ({error.strerror}); the results are in {where}"
        raise Refusal(Code.OUTPUT, message) from error
    # By the file and not by its name alone: "a.png" and "A.png" may be one.
    new = {key for name in names for key in _keys(place.out / name)}
    for name in sorted(set(ours).difference(listed if isinstance(listed, list) else ours)):
        if new.isdisjoint(_keys(place.out / name)):
            (place.out / name).unlink(missing_ok=True)
            _remove_empty(place.out / name, place.out)


def _remove_empty(file: Path, out: Path) -> None:
    """Remove the folders of a page that a file left empty."""
    for path in file.parents:
        if path == out:
            break
        with suppress(OSError):
            path.rmdir()


def _put_folder(page: Path, target: Path, *, is_replaced: bool) -> None:
    """Move the folder of a page, if it has one; that of a page that is replaced goes."""
    new, old = page.with_name(folder_of(page)), target.with_name(folder_of(target))
    if is_replaced and (old / MARK).is_file():
        old.rename(page.with_name("folder-before"))  # it goes with the lock
    if new.exists():
        if old.exists():
            message = f"{old} exists already; move it away, or pass another --out"
            raise Refusal(Code.OUTPUT, message)
        new.rename(old)


def _put(file: Path, target: Path, *, replace: bool) -> None:
    """Move a file; a target that exists is a `FileExistsError` unless it may be replaced."""
    if not replace:
        try:
            os.link(file, target)  # fails if there is a target, also on network file systems
            file.unlink()
        except FileExistsError:
            raise
        except OSError:  # there are no hard links here
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        else:
            return
    file.replace(target)
