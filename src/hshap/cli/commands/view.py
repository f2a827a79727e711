"""`hshap view`: a page of one explanation. No model is called."""

from __future__ import annotations

import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from hshap.cli import options as opt
from hshap.cli.inputs.explanations import load_calibration, load_picture, source
from hshap.cli.inputs.formats import Format
from hshap.cli.inputs.images import Reader, read
from hshap.cli.output import plain, print_json, say
from hshap.cli.progress import tell
from hshap.cli.runs.folders import single
from hshap.export.page import View, write_page

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hshap.cli.inputs.images import Picture

GREY = 200
"""Brightness of the page's picture if no image is given."""

EXACT = 1e-3
"""Grey values this near to whole ones come from 8 bits."""


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
    background: opt.Background = "white",
    max_pixels: opt.MaxPixels = opt.LIMIT,
    frame: opt.Frame = None,
    white: opt.White = None,
    pixel_size: Annotated[
        float | None, typer.Option(help="Side of a pixel of the image, for the scale bar.")
    ] = None,
    unit: Annotated[str, typer.Option(help="Unit of --pixel-size.")] = "mm",
    calibration: opt.Calibration = None,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Make a page of an explanation, and print its path."""
    del debug
    explanation = load_picture(file)
    if calibration is not None:
        explanation = explanation.calibrated(load_calibration(calibration))
    pixels = np.full((1, *explanation.grid), GREY, dtype=np.uint8)
    if image is not None:
        wanted = Format(size=(explanation.grid[0], explanation.grid[1]), white=white)
        # The image was resized for the run, too.
        whole = explanation.placement.shape[0], explanation.placement.shape[1]
        reader = Reader(wanted, resize, max_pixels, frame, whole, background)
        picture = read(image, reader, needed_by="the explanation is of")
        if picture.resized_from == whole:  # the page shows it at full resolution
            picture = read(image, replace(reader, format=replace(wanted, size=whole)))
        pixels = _shown(picture)
        for note in picture.notes:
            say(f"{image}: {note}")
    target = out or file.with_suffix(".html")
    inputs = [path for path in (file, image, calibration) if path is not None]
    with single(target, force=force, inputs=inputs) as path:
        name = plain(image.name) if image else source(explanation, "image", file.stem)
        classes = {source(explanation, "class", str(explanation.target)): explanation}
        shown = View(name, pixels, classes, pixel_size=pixel_size, unit=unit)
        write_page(path, [shown], title=f"hshap: {name}", form="file")
    if json:
        print_json({"page": plain(str(target))})
    else:
        tell(f"the page is {target}")
    if open_ and not webbrowser.open(target.absolute().as_uri()):
        say(f"no browser was found; open {target} in one")


def _shown(picture: Picture) -> NDArray[np.uint8] | NDArray[np.float32]:
    """Return bytes, or for a grey image of more than 8 bits its numbers."""
    levels = picture.pixels * 255
    if len(levels) > 1 or np.abs(levels - np.rint(levels)).max() < EXACT:
        return picture.bytes()
    return picture.pixels
