"""`hshap view`: a page of explanations of one image, side by side. No model is called."""

from __future__ import annotations

import webbrowser
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap.cli import options as opt
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.explanations import load_calibration, load_picture, source
from hshap.cli.inputs.formats import Format
from hshap.cli.inputs.images import Original, Reader, read, read_original
from hshap.cli.output import plain, print_json, say, say_notes
from hshap.cli.progress import Shown, tell
from hshap.cli.runs.folders import single
from hshap.cli.runs.originals import Originals, Scale, on_grey
from hshap.export.page import write_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap.explanation.explanation import Explanation

SUFFIX = ".npz"


def view(  # noqa: PLR0913, one for each option
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE.npz... [IMAGE]",
            help="Explanations of one image, as hshap explain wrote them, and the image.",
        ),
    ],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; FILE.html by default.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    force: opt.Force = False,
    resize: opt.Resize = False,
    background: opt.Background = "white",
    max_pixels: opt.MaxPixels = opt.LIMIT,
    frame: opt.Frame = None,
    white: opt.White = None,
    pixel_size: opt.PixelSize = None,
    unit: opt.Unit = "mm",
    calibration: opt.Calibration = None,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Make a page of an explanation, or of several side by side, and print its path."""
    del debug
    paths, image = _parted(files)
    found = _named({path: load_picture(path) for path in paths})
    if calibration is not None:
        promise = load_calibration(calibration)
        found = {name: made.calibrated(promise) for name, made in found.items()}
    reader = Reader(
        Format(white=white), resize, max_pixels=max_pixels, frame=frame, background=background
    )
    target = out or paths[0].with_suffix(".html")
    first = next(iter(found.values()))
    inputs = files if calibration is None else [*files, calibration]
    with (
        single(target, force=force, inputs=inputs, is_page=True) as path,
        Shown("writing the page"),
    ):
        if image is None:
            shown = on_grey(source(first, "image", paths[0].stem), found)
        else:
            originals = Originals(reader, Scale(pixel_size, unit))
            shown = originals.drawn(_fitting(image, reader, first), found)
            say_notes(originals.notes)
        write_page(path, [shown], title=f"hshap: {shown.name}")
    if json:
        print_json({"page": plain(str(target))})
    else:
        tell(f"the page is {target}")
    if open_ and not webbrowser.open(target.absolute().as_uri()):
        say(f"no browser was found; open {target} in one")


def _parted(files: Sequence[Path]) -> tuple[list[Path], Path | None]:
    """Return the explanations and the image; the first file is always an explanation."""
    paths = [file for n, file in enumerate(files) if n == 0 or file.suffix.lower() == SUFFIX]
    images = [file for file in files[1:] if file.suffix.lower() != SUFFIX]
    if len(images) > 1:
        message = f"{images[0]} and {images[1]} are two images; pass explanations of one image"
        raise Refusal(Code.USAGE, message)
    if len(set(paths)) < len(paths):
        twice = next(path for path, count in Counter(paths).items() if count > 1)
        raise Refusal(Code.USAGE, f"{twice} is named twice; pass different explanations")
    return paths, images[0] if images else None


def _named(found: Mapping[Path, Explanation]) -> dict[str, Explanation]:
    """Return explanations by class; those of one class also by model, file or folder."""
    classes = [source(one, "class", str(one.target)) for one in found.values()]
    models = [Path(source(one, "model", "")).name for one in found.values()]
    tellers = (
        ["" for _ in found],
        [f", {model}" for model in models],
        [f" ({path.stem})" for path in found],
        [f" ({path.absolute().parent.name})" for path in found],
        [f" ({number})" for number in range(1, len(found) + 1)],
    )
    ways = [[plain(f"{a}{b}") for a, b in zip(classes, tell, strict=True)] for tell in tellers]
    names = next(way for way in ways if len(set(way)) == len(way) or way is ways[-1])
    return dict(zip(names, found.values(), strict=True))


def _fitting(image: Path, reader: Reader, explanation: Explanation) -> Original:
    """Return the original image, or one of the size that the model saw."""
    place = explanation.placement
    original = read_original(image, reader)
    if original.size in (place.shape, place.grid):
        return original
    height, width = place.grid
    wanted = replace(reader, format=replace(reader.format, size=(height, width)))
    picture = read(image, wanted, needed_by="the explanation is of")
    return replace(original, pixels=picture.bytes(), window=None, pixel_size=None)
