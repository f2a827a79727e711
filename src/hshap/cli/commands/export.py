"""`hshap export`: explanations as files for other programs. No model is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap import export as exports
from hshap.cli import options as opt
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.explanations import as_picture, load, source
from hshap.cli.output import plain, print_json
from hshap.cli.progress import tell
from hshap.cli.runs.folders import single
from hshap.explanation.explanation import Explanation

if TYPE_CHECKING:
    from hshap._util.types import Heat, Json

SUFFIXES = {"coco": "json", "geojson": "geojson", "png": "png", "tiff": "tiff", "csv": "csv"}
MAPS: dict[str, Callable[[Explanation], Heat]] = {
    "coefficients": Explanation.coefficients,
    "saliency": Explanation.saliency,
    "attribution": Explanation.attribution,
}


def export(  # noqa: PLR0913, one for each option
    files: Annotated[list[Path], typer.Argument(help="Explanations; only coco takes several.")],
    format_: Annotated[
        str, typer.Option("--format", "-f", help="coco, geojson, png, tiff or csv.")
    ],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; by FILE and format.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the findings; the class by default.")
    ] = None,
    map_: Annotated[
        str, typer.Option("--map", help="For png and tiff: coefficients, saliency or attribution.")
    ] = "coefficients",
    force: opt.Force = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write findings or maps in a format that other programs read."""
    del debug
    _check(files, format_, map_)
    found = {file: load(file) for file in files}
    first = files[0]
    target = out or first.with_suffix(f".{SUFFIXES[format_]}")
    if format_ == "png" and out is None:
        target = first.with_suffix(".map.png")  # FILE.png is the picture that explain drew
    with single(target, force=force, inputs=files) as path:
        _write(path, found, format_, name or source(found[first], "class", "finding"), MAPS[map_])
    if json:
        print_json({"file": plain(str(target))})
    else:
        tell(f"{target} is written")


def _check(files: list[Path], format_: str, map_: str) -> None:
    if format_ not in SUFFIXES:
        message = f"--format {format_} is not known; pass one of {', '.join(SUFFIXES)}"
        raise Refusal(Code.USAGE, message)
    if map_ not in MAPS:
        raise Refusal(Code.USAGE, f"--map {map_} is not known; pass one of {', '.join(MAPS)}")
    if len(files) > 1 and format_ != "coco":
        message = f"--format {format_} takes one file, not {len(files)}; call hshap for each"
        raise Refusal(Code.USAGE, message)


def _write(
    path: Path,
    found: dict[Path, Explanation],
    format_: str,
    category: str,
    heat: Callable[[Explanation], Heat],
) -> None:
    file, explanation = next(iter(found.items()))
    if format_ == "coco":
        exports.write_json(path, _coco(found, category))
    elif format_ == "geojson":
        exports.write_json(path, exports.geojson(as_picture(explanation, file), name=category))
    elif format_ == "png":
        exports.write_png(path, heat(as_picture(explanation, file)))
    elif format_ == "tiff":
        exports.write_tiff(path, heat(as_picture(explanation, file)))
    else:
        exports.table(explanation).to_csv(path, index=False)


def _coco(found: dict[Path, Explanation], category: str) -> dict[str, Json]:
    named = {
        source(one, "image", file.with_suffix(".png").name): as_picture(one, file)
        for file, one in found.items()
    }
    if len(named) < len(found):
        message = "several files explain images of one name; export them one by one"
        raise Refusal(Code.USAGE, message)
    return exports.coco(named, category=category)
