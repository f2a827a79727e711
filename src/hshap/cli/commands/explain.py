"""`hshap explain`: images and a model become explanations, pictures and a page."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.archives import Pictures
from hshap.cli.inputs.choices import files_of_options
from hshap.cli.options import (
    MethodOptions,
    Model,
    ModelOptions,
    ReadOptions,
    Root,
    RunOptions,
    TileOptions,
)
from hshap.cli.output import left_out, print_json, say, table, tell
from hshap.cli.runs.originals import Scale
from hshap.cli.runs.pictures import HEADINGS, cells_of, explain_images, source_named
from hshap.cli.runs.record import PAGE, SUMMARY
from hshap.cli.runs.result_folder import result_folder
from hshap.errors import HshapError, require
from hshap.evaluators.allocator import keep_memory
from hshap.formats.listing import is_large
from hshap.formats.reading import read_image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hshap.cli.runs.run import Ended
    from hshap.runs.storing.rows import Row

    Cells = Callable[[Sequence[Row]], Iterable[Sequence[str]]]


def explain(  # noqa: PLR0913, one for each group of options
    images: Annotated[
        list[Path],
        typer.Argument(help="Images, folders, a list, a tar file, a volume, or slides."),
    ],
    model: Model,
    *,
    run: RunOptions,
    method: MethodOptions,
    root: Root = None,
    read: ReadOptions,
    taken: ModelOptions,
) -> None:
    """Find the regions of images that drive a model's score; write a page, pictures and files.

    Run the same command again to go on: images that have results are not explained again.
    """
    require("matplotlib", extra="plot", needed_by="hshap explain")
    if all(is_large(path.name) and path.suffix != ".zarr" for path in images):
        from hshap.cli.commands.tiles import tiles  # noqa: PLC0415, it ends as this command does

        tiles(images, model, cut=TileOptions(), run=run, method=method, read=read, taken=taken)
        return
    if len(images) == 1 and read.frame is None and _is_volume(images[0]):
        from hshap.cli.commands.exam import exam  # noqa: PLC0415, as above

        exam(images[0], model, run=run, method=method, read=read, taken=taken)
        return
    reading = read.reader()
    source = source_named(images, Pictures(reading), root)
    files = [Path(str(item.where)) for item in source.items() if isinstance(item.where, Path)]
    inputs = [*images, *files, *files_of_options(model, taken, method)]
    # Output of the user's own code must not mix with a JSON document.
    with (
        redirect_stdout(sys.stderr),
        keep_memory(),
        result_folder(run.out, anew=run.force, inputs=inputs, fixed=(PAGE, SUMMARY)) as place,
    ):
        loaded, wanted = taken.load(model, read)
        reader = read.reader(wanted)
        decode = Pictures(reader, method.templates, shows=True)
        scale = Scale(read.pixel_size, read.unit)
        ended = explain_images(
            replace(source, decode=decode),
            loaded,
            reader,
            method,
            place,
            scale,
            retry_failed=run.retry_failed,
        )
    finish(ended, run, HEADINGS, cells_of, "explanations and pictures are next to it")


def _is_volume(path: Path) -> bool:
    """Tell whether a file of NIfTI has several slices."""
    if not path.name.lower().endswith((".nii", ".nii.gz")) or not path.is_file():
        return False
    try:
        return "Z" in read_image(path).axes
    except HshapError:
        return False  # whoever explains it says why


def finish(
    ended: Ended, run: RunOptions, headings: Sequence[str], cells: Cells, beside: str
) -> None:
    """Print the results; a run that was stopped or has failed images ends with its own code."""
    ended.tell(run.out)
    if run.json:
        print_json({"out": as_text(str(run.out)), **ended.record})
    else:
        table(headings, cells(ended.rows))
        if ended.record["negative"]:
            rule = str(ended.record["explained"])
            tell(left_out(int(str(ended.record["negative"])), int(str(ended.record["done"])), rule))
        if ended.page_error is None:
            tell(f"{ended.counts()}; the page is {run.out / PAGE}; {beside}")
    if ended.page_error is not None:
        reason = ended.page_error.strerror or ended.page_error
        message = f"{run.out / PAGE} cannot be written ({reason}); all other results are kept"
        raise Refusal(Code.OUTPUT, message) from ended.page_error
    if ended.failed:
        count, total = len(ended.failed), ended.total
        say(f"{count} of {total} images failed; {run.out / SUMMARY} lists them")
        raise typer.Exit(Code.SKIPPED)
    if run.strict and ended.concerns():
        raise typer.Exit(Code.CONCERN)
