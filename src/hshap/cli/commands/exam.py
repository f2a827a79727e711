"""`hshap exam`: a whole volume becomes an explanation and a page: which slices, then where."""

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
    refuse_options,
)
from hshap.cli.runs.exam import HEADINGS, VOLUME_HEADINGS, cells_of, explain_volume
from hshap.evaluators.allocator import keep_memory


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
    refuse_options("hshap exam", method, "template")
    refuse_options("hshap exam", read, "frame", "pixel_size", "unit", "max_pixels", "background")
    inputs = [scan, *files_of_options(model, taken, method)]
    # Output of the user's own code must not mix with a JSON document.
    with redirect_stdout(sys.stderr), keep_memory():
        ended = explain_volume(scan, model, run, method, read, taken, inputs, whole=volume)
    headings = HEADINGS if ended.record["takes"] == "slices" else VOLUME_HEADINGS
    finish(ended, run, headings, cells_of, "explanations are next to it")
