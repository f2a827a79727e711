"""`hshap run`: an archive of images becomes a run folder that survives a crash and resumes."""

from __future__ import annotations

import sys
import time
from contextlib import redirect_stdout
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal, few
from hshap.cli.inputs.archives import Pictures, Recipe, source_of, targets_of
from hshap.cli.options import (
    RUN,
    AsJson,
    MethodOptions,
    Model,
    ModelOptions,
    ReadOptions,
    RetryFailed,
    Root,
    TileOptions,
    as_note,
)
from hshap.cli.output import STATUS, left_out, print_json, say, tell
from hshap.cli.runs.folder_views import check_page, page_of_run
from hshap.cli.runs.large import Prepared
from hshap.cli.runs.signals import Stop
from hshap.evaluators.allocator import keep_memory
from hshap.runs import (
    DaskWorkers,
    InProcess,
    OccupiedError,
    Processes,
    RayActors,
    RunStoppedError,
    Slurm,
    explain_dataset,
)
from hshap.runs.sources.protocol import Listed
from hshap.runs.worker import Labels

if TYPE_CHECKING:
    from hshap.runs import Run, RunProgress
    from hshap.runs.executors.protocol import Executor

SQL = "select image, score, doubt from explanations order by score desc limit 20"
USUAL_BYTES = 5000
"""Bytes of a row at typical depth; larger ones are reported."""

EVERY = 10.0
"""Seconds between lines of progress in a log."""


class Where(StrEnum):
    """Where images are explained."""

    LOCAL = "local"
    RAY = "ray"
    DASK = "dask"
    SLURM = "slurm"


def run(  # noqa: PLR0913, one for each option
    images: Annotated[
        list[str],
        typer.Argument(help="A folder, a .csv or .parquet list, a .tar file, or several images."),
    ],
    model: Model,
    out: Annotated[str, typer.Option("--out", "-o", help="Run folder, or a URL of fsspec.")],
    *,
    method: MethodOptions,
    cut: TileOptions,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes, actors or jobs.", rich_help_panel=RUN)
    ] = 1,
    executor: Annotated[
        Where, typer.Option(help="Where to explain.", rich_help_panel=RUN)
    ] = Where.LOCAL,
    address: Annotated[
        str | None, typer.Option(help="Cluster: ray://head:10001, or tcp://scheduler:8786 of Dask.")
    ] = None,
    jobs: Annotated[
        Path | None, typer.Option(help="Folder for the job files of Slurm, outside of --out.")
    ] = None,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs of each worker of Ray or Slurm.")] = 0,
    page: Annotated[
        Path | None,
        typer.Option(help="Page to write at the end, as hshap view RUN makes it."),
    ] = None,
    retry_failed: RetryFailed = False,
    root: Root = None,
    model_id: Annotated[
        str | None,
        typer.Option(help="Name of the model: a run is resumed only with the same name."),
    ] = None,
    json: AsJson = False,
    read: ReadOptions,
    taken: ModelOptions,
) -> None:
    """Explain an archive of images into a run folder; run the command again to resume."""
    where = _executor(executor, workers, address, jobs, gpus, out)
    lines = Lines()
    tiles = cut.tiles_if_asked()
    if page is not None:
        check_page(out, page)
    with redirect_stdout(sys.stderr), keep_memory():
        side = None if tiles is None else f"{tiles.side}x{tiles.side}"
        loaded, wanted = taken.load(model, read, size=side)
        reader = read.reader(wanted)
        explainer = method.explainer(loaded, reader)
        source = source_of(
            images, Pictures(reader, method.templates), root, by_tiles=tiles is not None
        )
        if isinstance(source, Listed) and source.left_out:
            say(source.left_out)
        source, targets = targets_of(method.targets, source, explainer, wanted, tiles)
        try:
            made = explain_dataset(
                Recipe(model, taken, method, reader) if workers > 1 else explainer,
                source,
                out,
                target=targets,
                tiles=tiles and replace(tiles, prepare=Prepared(wanted)),
                executor=where,
                model_id=model_id,
                retry_failed=retry_failed,
                positives=method.positives,
                labels=Labels(loaded.name, wanted.classes, method.promise),
                note=as_note(format=wanted, method=method, read=read, tiles=cut),
                progress=lines,
            )
        except Stop as stop:
            raise stop.told(f"committed rows are in {out}; run the same command to go on") from None
        except (RunStoppedError, OccupiedError) as error:
            raise Refusal(Code.OUTPUT, str(error)) from error
        except OSError as error:
            reason = error.strerror or error
            message = f"{out} cannot be written ({reason}); run the same command to go on"
            raise Refusal(Code.OUTPUT, message) from error
    seen = len({key.image for key in (*made.keys, *made.negative_keys)})
    if page is not None and seen:
        page_of_run(out, seen, page, reader)
    _end(made, out, page if seen else None, json=json, by_tiles=tiles is not None)


class Lines:
    """Writes progress to standard error: one line that changes on a terminal, else new ones."""

    def __init__(self) -> None:
        self._last = -EVERY

    def __call__(self, progress: RunProgress) -> None:
        """Tell how far the run is."""
        is_last = progress.total is not None and progress.finished >= progress.total
        now = time.monotonic()
        if (is_last or not STATUS.show(str(progress))) and (is_last or now - self._last >= EVERY):
            self._last = now
            say(str(progress))


def _executor(  # noqa: PLR0913, PLR0917, one for each option
    where: Where, workers: int, address: str | None, jobs: Path | None, gpus: float, out: str
) -> Executor:
    if where is Where.RAY:
        return RayActors(workers, address=address, gpus=gpus)
    if gpus and where is not Where.SLURM:
        message = f"--gpus {gpus:g} is for --executor ray or slurm; pass one of them"
        raise Refusal(Code.USAGE, message)
    if where is Where.DASK:
        return DaskWorkers(workers, address=address)
    if address is not None:
        message = f"--address {address} is for --executor ray or dask; pass one of them"
        raise Refusal(Code.USAGE, message)
    if where is Where.SLURM:
        folder = jobs or Path(f"{out.rstrip('/')}-jobs")
        if "://" in str(folder) or folder.resolve().is_relative_to(Path(out).resolve()):
            message = (
                f"--jobs {folder} is no folder outside of --out; pass one that all machines see"
            )
            raise Refusal(Code.USAGE, message)
        options = {"gpus_per_node": int(gpus)} if gpus else {}
        return Slurm(str(folder), workers=workers, options={"timeout_min": 60 * 24, **options})
    return InProcess() if workers == 1 else Processes(workers)


def _end(made: Run, out: str, page: Path | None, *, json: bool, by_tiles: bool) -> None:
    """Print the outcome; a run with failed images ends with a code of its own."""
    errors, explained = made.errors, {key.image for key in made.keys}
    images = len(explained)
    negative = len({row["image"] for row in made.negatives} - explained)
    for line in few([f"failed: {row['image']}: {row['reason']}" for row in errors]):
        say(line)
    if json:
        counts = {"explanations": len(made), "images": images, "negative": negative}
        paths = {"out": as_text(out), "page": page and as_text(str(page))}
        print_json({**paths, **counts, "failed": len(errors)})
    else:
        also = f", {negative} negative" if negative else ""
        tell(
            f"{out} has {len(made)} explanations of {images} images{also}, and {len(errors)} failed"
        )
        if negative:
            tell(left_out(negative, negative + images, str(made.negatives[0]["rule"])))
        if made.batch_difference:
            tell(f"a value may differ by about {made.batch_difference:.1g} in other batches")
        if not by_tiles and (made.row_bytes or 0) > USUAL_BYTES:
            tell(
                f"rows take {made.row_bytes:,.0f} bytes each, more than the usual {USUAL_BYTES:,}: "
                "fine regions (--min-size) and shards of few images make them large"
            )
        tell(f'read it again: hshap query {quote(out)} "{SQL}"')
        if page is not None:
            tell(f"the page is {page}")
        elif "://" not in out:
            tell(f"look at it: hshap view {quote(out)}")
        tell(f"check it: hshap verify {quote(out)}; in Python: hshap.runs.open({out!r})")
    if errors:
        raise typer.Exit(Code.SKIPPED)
