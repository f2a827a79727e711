"""Commands on explanations that are there already: `view` and `export`. No model is called."""

from __future__ import annotations

import webbrowser
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hshap import export as exports
from hshap.cli import options as opt
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.formats import Format
from hshap.cli.inputs.images import Reader, read
from hshap.cli.output import plain, print_json, say, single
from hshap.explanation.explanation import Explanation
from hshap.export import page as viewer

MAX_BYTES = 8 * 2**30
SUFFIXES = {"coco": "json", "geojson": "geojson", "png": "png", "tiff": "tiff", "csv": "csv"}
MAPS = ("coefficients", "saliency", "attribution")


def load(path: Path) -> Explanation:
    """Read an explanation, or say why it cannot be: before it is unpacked if it is a bomb."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > MAX_BYTES:
            message = f"{path} unpacks to {unpacked} bytes, more than {MAX_BYTES}; check its origin"
            raise Refusal(Code.INPUT, message)
        return Explanation.load(path)
    except zipfile.BadZipFile:
        message = f"{path} is not an hshap explanation; pass an .npz that hshap wrote"
        raise Refusal(Code.INPUT, message) from None
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror or error}); pass an .npz file"
        raise Refusal(Code.INPUT, message) from error
    except MemoryError as error:
        message = f"{path} is damaged, or too large for this machine; check its origin"
        raise Refusal(Code.INPUT, message) from error


def source(explanation: Explanation, key: str, otherwise: str) -> str:
    """Return what `hshap explain` noted about an explanation."""
    return str(explanation.settings.source.get(key, otherwise))


def flat(explanation: Explanation, path: Path) -> Explanation:
    """Refuse signals and volumes, of which there are no pictures."""
    if len(explanation.grid) != 2:
        message = f"{path} explains a grid of {explanation.grid}, not a picture; use it in Python"
        raise Refusal(Code.INPUT, message)
    return explanation


def view(  # noqa: PLR0913, one for each option
    file: Annotated[Path, typer.Argument(help="Explanation, as hshap explain wrote it.")],
    image: Annotated[Path | None, typer.Argument(help="The image that was explained.")] = None,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; FILE.html by default.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    force: opt.Force = False,
    resize: opt.Resize = False,
    max_pixels: opt.MaxPixels = opt.LIMIT,
    frame: opt.Frame = None,
    white: opt.White = None,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Make a page of an explanation, and say where it is."""
    del debug
    explanation = flat(load(file), file)
    pixels = np.full((1, *explanation.grid), 200, dtype=np.uint8)
    if image is not None:
        wanted = Format(size=(explanation.grid[0], explanation.grid[1]), white=white)
        reader = Reader(wanted, resize=resize, max_pixels=max_pixels, frame=frame)
        pixels = read(image, reader, what="the explanation is of").bytes()
    target = out or file.with_suffix(".html")
    with single(target, force=force) as path:
        name = plain(image.name) if image else source(explanation, "image", file.stem)
        classes = {source(explanation, "class", str(explanation.target)): explanation}
        viewer.write_page(path, [viewer.View(name, pixels, classes)], title=f"hshap: {name}")
    if json:
        print_json({"page": plain(str(target))})
    else:
        typer.echo(f"the page is {target}")
    if open_ and not webbrowser.open(target.absolute().as_uri()):
        say(f"no browser was found; open {target} in one")


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
        str | None, typer.Option(help="Name of what was found; the class by default.")
    ] = None,
    map_: Annotated[
        str, typer.Option("--map", help="For png and tiff: coefficients, saliency or attribution.")
    ] = "coefficients",
    force: opt.Force = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Write what was found in a format that other tools read."""
    del debug
    if format_ not in SUFFIXES:
        message = f"--format {format_} is not known; pass one of {', '.join(SUFFIXES)}"
        raise Refusal(Code.USAGE, message)
    if map_ not in MAPS:
        raise Refusal(Code.USAGE, f"--map {map_} is not known; pass one of {', '.join(MAPS)}")
    if len(files) > 1 and format_ != "coco":
        message = f"--format {format_} takes one file, not {len(files)}; call hshap for each"
        raise Refusal(Code.USAGE, message)
    found = {file: load(file) for file in files}
    first, explanation = next(iter(found.items()))
    category = name or source(explanation, "class", "finding")
    target = out or first.with_suffix(f".{SUFFIXES[format_]}")
    if format_ == "png" and out is None:
        target = first.with_suffix(".map.png")  # next to it is the picture that explain drew
    writers: dict[str, Callable[[Path], Any]] = {
        "coco": lambda path: exports.write_json(path, _coco(found, category)),
        "geojson": lambda path: exports.write_json(
            path, exports.geojson(flat(explanation, first), name=category)
        ),
        "png": lambda path: exports.write_png(path, getattr(flat(explanation, first), map_)()),
        "tiff": lambda path: exports.write_tiff(path, getattr(flat(explanation, first), map_)()),
        "csv": lambda path: exports.table(explanation).to_csv(path, index=False),
    }
    with single(target, force=force) as path:
        writers[format_](path)
    if json:
        print_json({"file": plain(str(target))})
    else:
        typer.echo(f"{target} is written")


def _coco(found: dict[Path, Explanation], category: str) -> dict[str, Any]:
    named = {
        source(one, "image", file.with_suffix(".png").name): flat(one, file)
        for file, one in found.items()
    }
    if len(named) < len(found):
        message = "several files explain images of one name; export them one by one"
        raise Refusal(Code.USAGE, message)
    return exports.coco(named, category=category)
