"""`hshap verify`: whether a run is as it was written, and its numbers are those of the model."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from hshap.cli.faults import Code, Refusal, brief, few
from hshap.cli.inputs.archives import Pictures, Recipe, source_of, targets_of
from hshap.cli.inputs.formats import format_of, given_fields
from hshap.cli.options import (
    AUTO,
    AsJson,
    Device,
    MethodOptions,
    ModelOptions,
    ReadOptions,
    Root,
    TileOptions,
    Trust,
    from_note,
)
from hshap.cli.output import print_json, say, tell
from hshap.cli.runs.large import Prepared
from hshap.evaluators.allocator import keep_memory
from hshap.runs import open as open_run
from hshap.runs import verify as verify_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap._util.types import Untyped
    from hshap.cli.inputs.formats import Format


def verify(  # noqa: PLR0913, one for each option
    run: Annotated[str, typer.Argument(help="Run folder, as hshap run wrote it.")],
    images: Annotated[
        list[str] | None,
        typer.Argument(help="The images of the run, to compute values again; needs --model."),
    ] = None,
    *,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help="The model of the run.")
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Rows to compute again.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Choose the same rows each time.")] = None,
    seal: Annotated[
        str | None, typer.Option(help="Seal noted earlier: the run must be exactly as it was then.")
    ] = None,
    root: Root = None,
    json: AsJson = False,
    trust: Trust = False,
    device: Device = AUTO,
) -> None:
    """Check all digests of a run; with its images and --model, recompute some values.

    All other options are those that the run notes.
    """
    if (model is None) != (not images):
        message = "--model and the images of the run go together; pass both, or neither"
        raise Refusal(Code.USAGE, message)
    if model is None or not images:
        found = verify_run(run, seal=seal)
    else:
        stored = open_run(run)
        wanted, method, read, cut = _noted_options(run, stored.description)
        tiles = cut.tiles_if_asked()
        with redirect_stdout(sys.stderr), keep_memory():
            reader = read.reader(wanted)
            explainer = Recipe(model, ModelOptions(trust, device=device), method, reader)()
            source = source_of(
                images, Pictures(reader, method.templates), root, by_tiles=tiles is not None
            )
            source, targets = targets_of(method.targets, source, explainer, wanted, tiles)
            found = verify_run(
                stored,
                explainer,
                source,
                target=targets,
                tiles=tiles and replace(tiles, prepare=Prepared(wanted)),
                sample=sample,
                seed=seed,
                seal=seal,
            )
    problems = list(found.problems)
    for line in few(problems):
        say(line)
    if json:
        print_json(
            {
                "shards": found.shards,
                "rows": found.rows,
                "problems": problems,
                "seal": found.seal,
                "unsealed": found.unsealed,
                "values": found.values,
                "largest_difference": found.largest,
            }
        )
    else:
        for line in str(found).splitlines()[len(found.problems) :]:
            tell(line)
        if model is None:
            tell("no value was computed again; pass the images and --model for that")
    if problems:
        raise typer.Exit(Code.INPUT)


def _noted_options(
    run: str, description: Mapping[str, Untyped]
) -> tuple[Format, MethodOptions, ReadOptions, TileOptions]:
    """Return the format of the model and the options of a run, as its description has them."""
    note = description.get("note")
    if not isinstance(note, dict):
        message = f"{run} notes no options, so Python made it; verify its values there, too, by "
        raise Refusal(Code.USAGE, f"{message}hshap.runs.verify")
    try:
        given = {name: value for name, value in note["format"].items() if value}
        return (
            format_of(given_fields(None, given)),
            replace(from_note(MethodOptions, note["method"]), calibration=None),
            from_note(ReadOptions, note["read"]),
            from_note(TileOptions, note["tiles"]),
        )
    except (LookupError, TypeError, AttributeError) as error:
        message = f"{run} notes options that this version does not know ({brief(error)})"
        raise Refusal(Code.INPUT, f"{message}; verify it with the version that made it") from error
