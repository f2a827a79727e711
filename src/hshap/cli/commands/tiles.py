"""`hshap tiles`: images that do not fit in memory become explanations, tile by tile, and a page."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap._util.visible import as_text
from hshap.cli.faults import Code, few
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
from hshap.cli.output import print_json, say, table, tell
from hshap.cli.runs.folders import folder
from hshap.cli.runs.large import HEADINGS, LargeRun, rows_of
from hshap.cli.runs.large_parts import TileParts
from hshap.cli.runs.record import PAGE, SUMMARY
from hshap.cli.runs.signals import Stop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap._util.types import Json


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
    refuse_options("hshap tiles", run, "skip_bad")
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
    out = run.out
    how = cut.make_tiles(cut.tiles or SIDE)
    inputs = [*images, *files_of_options(model, taken, method)]
    # Output of the user's own code must not mix with a JSON document.
    with (
        redirect_stdout(sys.stderr),
        folder(out, fill=run.force or run.resume, inputs=inputs, fixed=(PAGE, SUMMARY)) as place,
    ):
        loaded, wanted = taken.load(model, read, size=f"{how.side}x{how.side}")
        parts = TileParts(place, resume=run.resume)
        large = LargeRun(images, loaded, read.reader(wanted), method, how, place, parts)
        try:
            record, concerns = large.run()
        except Stop as stop:
            raise stop.told(parts.told) from None
    parts.remove()
    _end(record, out, json=run.json)
    for line in few(concerns):
        say(line)
    if run.strict and concerns:
        raise typer.Exit(Code.CONCERN)


def _end(record: Mapping[str, Json], out: Path, *, json: bool) -> None:
    """Print the results."""
    if json:
        print_json({"out": as_text(str(out)), **record})
        return
    table(HEADINGS, rows_of(record))
    tell(f"the page is {out / PAGE}; explanations and GeoJSON files are next to it")
