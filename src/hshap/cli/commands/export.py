"""`hshap export`: explanations as files for other programs. No model is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap import export as exports
from hshap.cli import options as opt
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.explanations import MAX_BYTES, as_picture, source
from hshap.cli.inputs.images import is_folder
from hshap.cli.output import Names, plain, print_json
from hshap.cli.progress import tell
from hshap.cli.runs.folders import single, unwritable
from hshap.cli.runs.stored import MOST_IMAGES, Stored, is_run, stored
from hshap.explanation.explanation import Explanation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hshap._util.types import Array, Json
    from hshap.export.documents import Result

SUFFIXES = {"coco": "json", "geojson": "geojson", "png": "png", "tiff": "tiff", "csv": "csv"}
# At the size of the original image. Coefficients are values of whole leaves and must not mix; the
# other maps keep their total.
MAPS: dict[str, Callable[[Explanation], Array]] = {
    "coefficients": lambda made: made.placement.nearest(made.coefficients()),
    "saliency": lambda made: made.placement.spread(made.saliency()),
    "attribution": lambda made: made.placement.spread(made.attribution()),
}


def export(  # noqa: PLR0913, one for each option
    files: Annotated[
        list[Path], typer.Argument(help="Explanations, and folders of explain, tiles and run.")
    ],
    format_: Annotated[
        str, typer.Option("--format", "-f", help="coco, geojson, png, tiff or csv.")
    ],
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
        str, typer.Option("--map", help="For png and tiff: coefficients, saliency or attribution.")
    ] = "coefficients",
    select: opt.Select = None,
    force: opt.Force = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write findings or maps in a format that other programs read."""
    del debug
    _check(format_, map_)
    runs = [path for path in files if is_run(path)]
    if runs and out is None:
        message = f"{runs[0]} is a run folder, which only runs write to; pass --out"
        raise Refusal(Code.USAGE, message)
    if any(out is not None and out.resolve().is_relative_to(run.resolve()) for run in runs):
        message = f"--out {out} is in a run folder, which only runs write to; pass another"
        raise Refusal(Code.USAGE, message)
    found = [one for path in files for one in stored(path, select, most=MOST_IMAGES)]
    inputs = [*files, *(one.file for one in found)]
    written: list[Path] = []
    if format_ == "coco":
        target = out or _coco_target(files[0])
        document = _coco(found, name)
        with single(target, force=force, inputs=inputs) as path:
            exports.write_json(path, document)
        written.append(target)
    else:
        for one, target in _targets(found, format_, out):
            with single(target, force=force, inputs=inputs) as path:
                _write(path, one, format_, name, MAPS[map_])
            written.append(target)
    if json:
        names = [plain(str(target)) for target in written]
        print_json({"file": names[0], "files": names})
    else:
        for target in written:
            tell(f"{target} is written")


def _check(format_: str, map_: str) -> None:
    if format_ not in SUFFIXES:
        message = f"--format {format_} is not known; pass one of {', '.join(SUFFIXES)}"
        raise Refusal(Code.USAGE, message)
    if map_ not in MAPS:
        raise Refusal(Code.USAGE, f"--map {map_} is not known; pass one of {', '.join(MAPS)}")


def _coco_target(first: Path) -> Path:
    return first / "coco.json" if is_folder(first) else first.with_suffix(".json")


def _targets(
    found: Sequence[Stored], format_: str, out: Path | None
) -> Iterator[tuple[Stored, Path]]:
    """Yield explanations and the files to write: next to each, or for several in a folder."""
    # FILE.png is the picture that explain drew.
    suffix = ".map.png" if format_ == "png" and out is None else f".{SUFFIXES[format_]}"
    if out is None or (len(found) == 1 and not is_folder(out)):
        yield from ((one, out or one.file.with_suffix(suffix)) for one in found)
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(out, error) from error
    names = Names()
    for one in found:
        yield one, out / f"{names.new(one.file.stem)}{suffix}"


def _write(
    path: Path,
    one: Stored,
    format_: str,
    name: str | None,
    heat: Callable[[Explanation], Array],
) -> None:
    if format_ == "geojson":
        found = one.read()
        label = name or one.label(found) or "finding"
        exports.write_json(path, exports.geojson(_flat(found, one.file), name=label))
        return
    explanation = one.explanation()
    if format_ == "csv":
        exports.table(explanation).to_csv(path, index=False)
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


def _coco(found: Sequence[Stored], name: str | None) -> dict[str, Json]:
    """Return one document of all explanations, with a category for each class."""
    images: dict[str, dict[str, Result]] = {}
    files: dict[str, str] = {}
    for one in found:
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
    named = {key if files[key] in shared else files[key]: each for key, each in images.items()}
    return exports.coco(named)
