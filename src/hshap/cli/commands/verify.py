"""`hshap verify`: whether a run is as it was written, and its numbers are those of the model."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Annotated

import typer

from hshap.cli.faults import Code, Refusal, few
from hshap.cli.inputs.archives import Pictures, source_of, targets_of
from hshap.cli.options import AsJson, MethodOptions, ModelOptions, ReadOptions, Root, TileOptions
from hshap.cli.output import print_json, say, tell
from hshap.cli.runs.large import Prepared
from hshap.evaluators.allocator import keep_memory
from hshap.runs import verify as verify_run


def verify(  # noqa: PLR0913, one for each option
    run: Annotated[str, typer.Argument(help="Run folder, as hshap run wrote it.")],
    images: Annotated[
        list[str] | None,
        typer.Argument(help="The images of the run, to compute values again; needs --model."),
    ] = None,
    *,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The model of the run.")
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Rows to compute again.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Choose the same rows each time.")] = None,
    seal: Annotated[
        str | None, typer.Option(help="Seal noted earlier: the run must be exactly as it was then.")
    ] = None,
    method: MethodOptions,
    cut: TileOptions,
    root: Root = None,
    model_id: Annotated[str | None, typer.Option(help="Name of the model, as in the run.")] = None,
    json: AsJson = False,
    read: ReadOptions,
    taken: ModelOptions,
) -> None:
    """Check all digests of a run; with its images and --model, recompute some values."""
    if (model is None) != (not images):
        message = "--model and the images of the run go together; pass both, or neither"
        raise Refusal(Code.USAGE, message)
    if model is None or not images:
        found = verify_run(run, seal=seal)
    else:
        tiles = cut.tiles_if_asked()
        with redirect_stdout(sys.stderr), keep_memory():
            side = None if tiles is None else f"{tiles.side}x{tiles.side}"
            loaded, wanted = taken.load(model, read, size=side)
            reader = read.reader(wanted)
            explainer = method.explainer(loaded, reader)
            source = source_of(
                images, Pictures(reader, method.templates), root, by_tiles=tiles is not None
            )
            source, targets = targets_of(method.targets, source, explainer, wanted, tiles)
            found = verify_run(
                run,
                explainer,
                source,
                target=targets,
                tiles=tiles and replace(tiles, prepare=Prepared(wanted)),
                model_id=model_id,
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
