"""`hshap export`: explanations as files for other programs. No model is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap import export as exports
from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.explanations import MAX_BYTES, as_picture, source
from hshap.cli.inputs.images import is_folder
from hshap.cli.options import AsJson, Force, Select
from hshap.cli.output import Names, print_json, say, say_notes, tell
from hshap.cli.progress import each
from hshap.cli.runs.output_files import single, unwritable
from hshap.cli.runs.placed import Placed
from hshap.cli.runs.stored import MOST_IMAGES, Stored, is_run, stored
from hshap.explanation.explanation import Explanation
from hshap.export.documents import turned

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hshap._util.types import Array
    from hshap.export.documents import Result

SUFFIXES = {
    "coco": "json",
    "geojson": "geojson",
    "qupath": "geojson",
    "png": "png",
    "tiff": "tiff",
    "csv": "csv",
    "label-studio": "label-studio.json",
    "cvat": "cvat.xml",
    "coco-results": "coco-results.json",
    "dicom-seg": "seg.dcm",
    "dicom-map": "map.dcm",
    "nifti": "nii.gz",
    "nifti-map": "map.nii.gz",
    "ome-zarr": "ome.zarr",
    "ome-tiff": "ome.tif",
}
DOCUMENTS = ("coco", "coco-results", "label-studio", "cvat")
"""Formats with one document for all images."""
PLACED = ("dicom-seg", "dicom-map", "nifti", "nifti-map", "ome-zarr", "ome-tiff")
"""Formats that take their geometry from the scan that was explained."""
# At the size of the original image. Coefficients are values of whole leaves and must not mix; the
# other maps keep their total.
MAPS: dict[str, Callable[[Explanation], Array]] = {
    "attribution": lambda made: made.placement.spread(made.attribution()),
    "coefficients": lambda made: made.placement.nearest(made.coefficients()),
    "saliency": lambda made: made.placement.spread(made.saliency()),
}


def export(  # noqa: PLR0913, one for each option
    files: Annotated[
        list[Path], typer.Argument(help="Explanations, and folders of explain, tiles and run.")
    ],
    format_: Annotated[str, typer.Option("--format", "-f", help=f"One of {', '.join(SUFFIXES)}.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File to write, by FILE and format; a folder if there are several."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the findings; the class by default.")
    ] = None,
    map_: Annotated[
        str,
        typer.Option(
            "--map",
            help="For png, tiff, dicom-map and nifti-map: attribution, coefficients or saliency.",
        ),
    ] = "attribution",
    scan: Annotated[
        Path | None,
        typer.Option(help="The scan that was explained, or its series, for formats with geometry."),
    ] = None,
    patient: Annotated[
        bool, typer.Option("--patient", help="Copy the patient's name and id to DICOM files.")
    ] = False,
    select: Select = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Write findings or maps in a format that other programs read."""
    _check(format_, map_)
    _keep_out(files, out)
    found = [one for path in files for one in stored(path, select, most=MOST_IMAGES)]
    inputs = [*files, *(one.file for one in found)]
    notes: dict[str, list[Path]] = {}
    found = [replace(one, read=partial(_noting, one, notes)) for one in found]
    written: list[Path] = []
    if format_ in DOCUMENTS:
        target = out or _document_target(files[0], format_)
        named = _by_image(found, name)
        with single(target, force=force, inputs=inputs) as path:
            _write_document(path, named, format_)
        written.append(target)
    elif format_ in PLACED:
        place = Placed(format_, name or "", MAPS[map_], scan, patient=patient)
        with closing(_targets(found, format_, out)) as pairs:
            for one, target in pairs:
                if place.write(target, one, force=force, inputs=inputs):
                    written.append(target)
                else:
                    say(f"{one.file} has no finding, so there is no segmentation of it")
        if not written:
            message = "there is no finding to write; pass --format dicom-map for a map of values"
            raise Refusal(Code.INPUT, message)
    else:
        with closing(_targets(found, format_, out)) as pairs:
            for one, target in pairs:
                with single(target, force=force, inputs=inputs) as path:
                    _write(path, one, format_, name, MAPS[map_])
                written.append(target)
    say_notes(notes)
    if json:
        names = [as_text(str(target)) for target in written]
        print_json({"file": names[0], "files": names})
    else:
        for target in written:
            tell(f"{target} is written")


def _noting(one: Stored, notes: dict[str, list[Path]]) -> Result:
    """Read an explanation; note where its pixels are not those that its file stores."""
    found = one.read()
    note = turned(found)
    if note:
        notes.setdefault(note, []).append(one.file)
    return found


def _check(format_: str, map_: str) -> None:
    if format_ not in SUFFIXES:
        message = f"--format {format_} is not known; pass one of {', '.join(SUFFIXES)}"
        raise Refusal(Code.USAGE, message)
    if map_ not in MAPS:
        raise Refusal(Code.USAGE, f"--map {map_} is not known; pass one of {', '.join(MAPS)}")


def _keep_out(files: Sequence[Path], out: Path | None) -> None:
    """Refuse to write into a run folder."""
    for run in filter(is_run, files):
        if out is None or out.resolve().is_relative_to(run.resolve()):
            message = f"{run} is a run folder, which only runs write to; pass --out elsewhere"
            raise Refusal(Code.USAGE, message)


def _document_target(first: Path, format_: str) -> Path:
    own = "coco.json" if format_ == "coco" else SUFFIXES[format_]
    return first / own if is_folder(first) else first.with_suffix(f".{SUFFIXES[format_]}")


def _write_document(path: Path, named: dict[str, dict[str, Result]], format_: str) -> None:
    if format_ == "cvat":
        exports.write_xml(path, exports.cvat(named))
    elif format_ == "label-studio":
        exports.write_json(path, exports.label_studio(named))
    elif format_ == "coco-results":
        exports.write_json(path, exports.coco_results(named))
    else:
        exports.write_json(path, exports.coco(named))


def _targets(
    found: Sequence[Stored], format_: str, out: Path | None
) -> Generator[tuple[Stored, Path]]:
    """Yield explanations and the files to write: next to each, or for several in a folder.

    A new folder in which nothing was written is removed at the end.
    """
    # FILE.png is the picture that explain drew.
    suffix = ".map.png" if format_ == "png" and out is None else f".{SUFFIXES[format_]}"
    if out is None or (len(found) == 1 and not is_folder(out)):
        with each("writing files", found) as some:
            yield from ((one, out or one.file.with_suffix(suffix)) for one in some)
        return
    new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(out, error) from error
    names = Names()
    try:
        with each("writing files", found) as some:
            for one in some:
                yield one, out / f"{names.new(one.file.stem)}{suffix}"
    finally:
        if new:
            with suppress(OSError):  # a folder with results stays
                out.rmdir()


def _write(
    path: Path,
    one: Stored,
    format_: str,
    name: str | None,
    heat: Callable[[Explanation], Array],
) -> None:
    if format_ in ("geojson", "qupath"):
        found = one.read()
        label = name or one.label(found) or "finding"
        exports.write_json(path, exports.geojson(_flat(found, one.file), name=label))
        return
    explanation = one.explanation()
    if format_ == "csv":
        # Of a negative image, the row of the whole image, which is not a leaf.
        exports.table(explanation, every=not explanation.is_explained).to_csv(path, index=False)
        return
    picture = as_picture(explanation, one.file)
    whole = picture.placement.shape
    if 8 * prod(whole) > MAX_BYTES:
        message = f"{one.file} is of {whole[0]} x {whole[1]} pixels, too many for a map; use it in "
        raise Refusal(Code.INPUT, message + "Python, where a map has the size that the model saw")
    write = exports.write_png if format_ == "png" else exports.write_tiff
    write(path, heat(picture))


def _flat(found: Result, file: Path) -> Result:
    return as_picture(found, file) if isinstance(found, Explanation) else found


def _file(found: Result, one: Stored) -> str:
    """Return the name of the image of an explanation."""
    usual = one.image or one.file.with_suffix(".png").name
    return source(found, "image", usual) if isinstance(found, Explanation) else found.name


def _by_image(found: Sequence[Stored], name: str | None) -> dict[str, dict[str, Result]]:
    """Return all explanations by the names of their images, and then by class."""
    images: dict[str, dict[str, Result]] = {}
    files: dict[str, str] = {}
    with each("reading explanations", found) as some:
        for one in some:
            explanation = _flat(one.read(), one.file)
            file = _file(explanation, one)
            key = one.image or file  # images of one name may lie in several folders
            label = name or one.label(explanation) or "finding"
            if label in images.setdefault(key, {}):
                fix = "leave out --name" if name else "export them one by one"
                message = f"several files explain the image {file} and the class {label}; {fix}"
                raise Refusal(Code.USAGE, message)
            images[key][label], files[key] = explanation, file
    shared = [file for file, count in Counter(files.values()).items() if count > 1]
    return {key if files[key] in shared else files[key]: each for key, each in images.items()}
