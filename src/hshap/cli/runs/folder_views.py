"""The page of a folder: the images of a run, each read from its file when its turn comes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from hshap._util.visible import as_text, path_of
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.explanations import as_picture
from hshap.cli.inputs.formats import Format
from hshap.cli.output import say, say_notes
from hshap.cli.progress import Shown, each
from hshap.cli.runs.originals import Originals, on_grey
from hshap.cli.runs.output_files import single
from hshap.cli.runs.record import is_signed
from hshap.cli.runs.stored import MOST_IMAGES, WORST, stored
from hshap.errors import ArgumentError
from hshap.explanation.explanation import Explanation
from hshap.explanation.guarantees.calibration import with_calibration
from hshap.explanation.tiled import TiledExplanation
from hshap.export.page import View, large_views, write_page
from hshap.runs.sources.files import Disk, inner_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hshap.cli.inputs.images import Reader
    from hshap.cli.runs.stored import Stored
    from hshap.explanation.guarantees.calibration import Calibration


def page_of_run(out: str, images: int, page: Path, reader: Reader) -> None:
    """Write the page of a run folder with so many images; of many, those with the highest doubt.

    A page that was written before is replaced.
    """
    own = replace(reader, format=Format(white=reader.format.white))  # not that of the model
    folder, originals = Path(out), Originals(own)
    select = None
    if images > MOST_IMAGES:
        select = f"{WORST} {MOST_IMAGES}"
        say(f"{page} has the {MOST_IMAGES} images with the highest doubt, of {images}")
    views = folder_views([folder], select, originals)
    write_views(page, views, as_text(folder.resolve().stem), originals, force=True)


def check_page(out: str, page: Path) -> None:
    """Refuse a page that cannot be written once a run has ended, before it begins."""
    if "://" in out:
        message = f"--page {page} is for runs in a local folder, and --out is {out}; leave it out"
        raise Refusal(Code.USAGE, message)
    if page.resolve().is_relative_to(Path(out).resolve()):
        message = f"--page {page} is in {out}, where only runs write; pass another place"
        raise Refusal(Code.USAGE, message)
    if page.exists() and not is_signed(page):
        message = f"--page {page} exists, and hshap did not write it; pass another place"
        raise Refusal(Code.OUTPUT, message)


def write_views(  # noqa: PLR0913, the content of a page, and where it goes
    target: Path,
    views: Iterator[View],
    title: str,
    originals: Originals,
    *,
    force: bool,
    inputs: Sequence[Path] = (),
) -> None:
    """Write a page, which appears when it is complete, and tell the notes about its images."""
    with (
        single(target, force=force, inputs=inputs, is_page=True) as path,
        Shown("writing the page"),
    ):
        write_page(path, views, title=f"hshap: {title}")
        say_notes(originals.notes)


def folder_views(
    files: Sequence[Path],
    select: str | None,
    originals: Originals,
    promise: Calibration | None = None,
) -> Iterator[View]:
    """Return the views of a folder of explanations; the second file is the folder of the images."""
    folder, *others = files
    if len(others) > 1 or (others and not others[0].is_dir()):
        message = f"{others[-1]} is no folder; after {folder}, pass the folder of its images alone"
        raise Refusal(Code.USAGE, message)
    found = stored(folder, select, most=MOST_IMAGES)
    return _views(found, others[0] if others else None, originals, promise)


def _views(
    found: Sequence[Stored],
    images: Path | None,
    originals: Originals,
    promise: Calibration | None,
) -> Iterator[View]:
    groups = [list(some) for _, some in groupby(found, key=lambda one: one.image or one.file)]
    with each("writing the page", groups) as some:
        for group in some:
            first, path = group[0], _located(group[0], images)
            made = {one: one.read() for one in group}
            large = {o: r for o, r in made.items() if isinstance(r, TiledExplanation)}
            if large:
                yield from _large(large, path)
                continue
            pictures = {
                one: as_picture(result, one.file)
                for one, result in made.items()
                if isinstance(result, Explanation)
            }
            labels = _labels(pictures)
            shown = {
                labels[one]: result if promise is None else with_calibration(result, promise)
                for one, result in pictures.items()
            }
            name = as_text(first.image or first.file.stem)
            if path is None:
                note = "its file is not known, so the page shows its findings on grey"
                originals.notes.setdefault(note, []).append(Path(name))
                yield on_grey(name, shown)
                continue
            size = next(iter(shown.values())).placement.shape
            yield originals.view(path, first.sha256, size, shown)


def _large(found: dict[Stored, TiledExplanation], path: Path | None) -> Iterator[View]:
    first = next(iter(found))
    if path is None or not path.exists():
        message = (
            f"{first.file} explains the large image {first.image or ''}, which is not there; pass "
            "the folder of the images after that of the explanations"
        )
        raise Refusal(Code.INPUT, message)
    labels = _labels(found)
    yield from large_views(path, {labels[one]: result for one, result in found.items()})


def _labels(found: dict[Stored, Explanation] | dict[Stored, TiledExplanation]) -> dict[Stored, str]:
    """Return a name for each explanation of an image; equal ones are numbered."""
    labels: dict[Stored, str] = {}
    for one, result in found.items():
        label = as_text(one.label(result) or str(result.target))
        same = sum(other.split(" (")[0] == label for other in labels.values())
        labels[one] = f"{label} ({same + 1})" if same else label
    return labels


def _located(one: Stored, images: Path | None) -> Path | None:
    """Return the file of an image: in the given folder, which it may not leave, or as noted."""
    if images is None:
        return one.original
    parts = PurePath(one.image or one.file.stem).parts
    # A record of hshap explain has the paths of the command, so its first folders may be missing.
    for begin in range(len(parts)):
        with suppress(ArgumentError):
            name = inner_path(str(PurePath(*parts[begin:])), Disk(str(images)))
            inside = Path(path_of(str(images / name)))
            if inside.exists():
                return inside
    return None
