"""`hshap tiles`: images that do not fit in memory become explanations, tile by tile, and a page."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from hshap.cli.commands.explain import finish
from hshap.cli.inputs.choices import files_of_options
from hshap.cli.options import (
    MethodOptions,
    Model,
    ModelOptions,
    ReadOptions,
    RunOptions,
    TileOptions,
    refuse_options,
)
from hshap.cli.runs.large import HEADINGS, cells_of, explain_large

SIDE = 512
"""The side of a tile without --tiles."""


def tiles(  # noqa: PLR0913, one for each group of options
    images: Annotated[
        list[Path],
        typer.Argument(help="Tiled TIFF files, folders of OME-Zarr, whole slides, .npy arrays."),
    ],
    model: Model,
    *,
    cut: TileOptions,
    run: RunOptions,
    method: MethodOptions,
    read: ReadOptions,
    taken: ModelOptions,
) -> None:
    """Explain large images tile by tile, and then inside the tiles that were found."""
    refuse_options("hshap tiles", method, "template", "calibration")
    read_whole = (
        "resize",
        "fit",
        "frame",
        "window",
        "pixel_size",
        "unit",
        "max_pixels",
        "background",
    )
    refuse_options("hshap tiles", read, *read_whole)
    how = cut.make_tiles(cut.tiles or SIDE)
    inputs = [*images, *files_of_options(model, taken, method)]
    # Output of the user's own code must not mix with a JSON document.
    with redirect_stdout(sys.stderr):
        ended = explain_large(images, model, how, run, method, read, taken, inputs)
    finish(ended, run, HEADINGS, cells_of, "explanations and GeoJSON files are next to it")
