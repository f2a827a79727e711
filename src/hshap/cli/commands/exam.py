"""`hshap exam`: a whole volume becomes an explanation and a page: which slices, then where."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap._util.visible import as_text
from hshap.cli.faults import Code, few
from hshap.cli.inputs.choices import files_of_options
from hshap.cli.inputs.scans import read_volume
from hshap.cli.options import MethodOptions, Model, ModelOptions, ReadOptions, RunOptions
from hshap.cli.output import print_json, say
from hshap.cli.progress import Shown, table, tell
from hshap.cli.runs.exam import HEADINGS, VOLUME_HEADINGS, ExamRun, rows_of
from hshap.cli.runs.folders import folder
from hshap.cli.runs.record import PAGE, SUMMARY
from hshap.cli.runs.signals import Stop
from hshap.evaluators.allocator import keep_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap._util.types import Json


def exam(  # noqa: PLR0913, one for each option
    scan: Annotated[
        Path,
        typer.Argument(
            help="A volume: a folder of DICOM, NIfTI, TIFF with pages, OME-Zarr, or .npy."
        ),
    ],
    model: Model,
    *,
    volume: Annotated[
        bool,
        typer.Option("--volume", help="The model takes the whole volume, not single slices."),
    ] = False,
    run: RunOptions,
    method: MethodOptions,
    read: ReadOptions,
    taken: ModelOptions,
) -> None:
    """Find the slices of a volume that drive a model's score, and the regions inside them."""
    out = run.out
    inputs = [scan, *files_of_options(model, taken, method)]
    # Output of the user's own code must not mix with a JSON document.
    with (
        redirect_stdout(sys.stderr),
        keep_memory(),
        folder(out, fill=run.force, inputs=inputs, fixed=(PAGE, SUMMARY)) as place,
    ):
        try:
            with Shown(f"reading {scan.name}"):
                found = read_volume(scan)
            loaded, wanted = taken.load(model, read, volume=volume or None)
            is_volume = volume or len(loaded.shape or ()) == 5
            reader = read.reader(wanted)
            made = ExamRun(scan, found, loaded, reader, method, place, volume=is_volume)
            record, concerns = made.run()
        except Stop as stop:
            raise stop.told("nothing was written") from None
    _end(record, out, json=run.json, volume=is_volume)
    for line in few(concerns):
        say(line)
    if run.strict and concerns:
        raise typer.Exit(Code.CONCERN)


def _end(record: Mapping[str, Json], out: Path, *, json: bool, volume: bool) -> None:
    """Print the results."""
    if json:
        print_json({"out": as_text(str(out)), **record})
        return
    table(VOLUME_HEADINGS if volume else HEADINGS, rows_of(record))
    tell(f"the page is {out / PAGE}; explanations are next to it")
