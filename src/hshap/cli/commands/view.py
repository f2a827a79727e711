"""`hshap view`: a page of one explanation. No model is called."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from hshap.cli import options as opt
from hshap.cli.inputs.explanations import load_picture, source
from hshap.cli.inputs.formats import Format
from hshap.cli.inputs.images import Reader, read
from hshap.cli.output import plain, print_json, say
from hshap.cli.progress import tell
from hshap.cli.runs.folders import single
from hshap.export.page import View, write_page

GREY = 200
"""Brightness of the page's picture if no image is given."""


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
    """Make a page of an explanation, and print its path."""
    del debug
    explanation = load_picture(file)
    pixels = np.full((1, *explanation.grid), GREY, dtype=np.uint8)
    if image is not None:
        wanted = Format(size=(explanation.grid[0], explanation.grid[1]), white=white)
        reader = Reader(wanted, resize=resize, max_pixels=max_pixels, frame=frame)
        pixels = read(image, reader, needed_by="the explanation is of").bytes()
    target = out or file.with_suffix(".html")
    inputs = [file] if image is None else [file, image]
    with single(target, force=force, inputs=inputs) as path:
        name = plain(image.name) if image else source(explanation, "image", file.stem)
        classes = {source(explanation, "class", str(explanation.target)): explanation}
        write_page(path, [View(name, pixels, classes)], title=f"hshap: {name}")
    if json:
        print_json({"page": plain(str(target))})
    else:
        tell(f"the page is {target}")
    if open_ and not webbrowser.open(target.absolute().as_uri()):
        say(f"no browser was found; open {target} in one")
