"""Runs: explain whole archives, lose nothing, and read the results again without the model.

>>> import hshap, numpy as np, tempfile
>>> explainer = hshap.Explainer(
...     lambda batch: batch.max(axis=(1, 2, 3)),
...     baseline=hshap.Constant(0.0),
...     partition=hshap.Dyadic(min_size=1),
... )
>>> with tempfile.TemporaryDirectory() as folder:
...     run = hshap.runs.explain_dataset(explainer, np.ones((3, 1, 2, 2)), folder, target=0)
...     run.query("select count(*) as images, avg(score) as mean from explanations")
[{'images': 3, 'mean': 1.0}]
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from hshap._util import checks
from hshap._util.version import __version__
from hshap.errors import ArgumentError, FormatError
from hshap.evaluators.tiles import Tiles
from hshap.explainer.predicting import PredictedCost, predicted_cost
from hshap.explainer.probes import ask, noted_probes
from hshap.games.targets import POSITIVES, Positives, as_targets
from hshap.runs.driver import RunProgress, RunStoppedError
from hshap.runs.executors.dask_workers import DaskWorkers
from hshap.runs.executors.in_process import InProcess
from hshap.runs.executors.processes import Processes
from hshap.runs.executors.ray_actors import RayActors
from hshap.runs.executors.slurm import Slurm
from hshap.runs.explaining import explain_source, made_by, settings_of
from hshap.runs.model_check import first_images
from hshap.runs.reading import Run
from hshap.runs.sources import as_source
from hshap.runs.sources.large import as_large_source
from hshap.runs.sources.protocol import Decoded, Listed
from hshap.runs.storing.files import Files, files_at
from hshap.runs.storing.folder import Folder, OccupiedError
from hshap.runs.storing.identity import described_settings
from hshap.runs.storing.schema import arrow
from hshap.runs.tasks import AnyTarget, Chosen, texts_of
from hshap.runs.verification import (
    TOLERANCE,
    Verification,
    different_from,
    recompute,
    verify_folder,
)
from hshap.runs.worker import Labels

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from hshap._util.types import Json, Untyped
    from hshap.explainer import Explainer
    from hshap.games.targets import Target
    from hshap.runs.executors.protocol import Executor
    from hshap.runs.sources.protocol import Decode, Source

__all__ = [
    "Chosen",
    "DaskWorkers",
    "Decoded",
    "InProcess",
    "Labels",
    "OccupiedError",
    "PredictedCost",
    "Processes",
    "RayActors",
    "Run",
    "RunProgress",
    "RunStoppedError",
    "Slurm",
    "Verification",
    "explain_dataset",
    "open",
    "predicted_cost",
    "verify",
]


def explain_dataset(  # noqa: PLR0913, one for each choice of the caller
    explainer: Explainer | Callable[[], Explainer],
    dataset: Untyped,
    out: str | os.PathLike[str] | Files,
    *,
    target: Target | Chosen | Sequence[Target | Chosen] | None = None,
    layout: str | None = None,
    executor: Executor | None = None,
    decode: Decode | None = None,
    root: str | os.PathLike[str] | None = None,
    tiles: Tiles | None = None,
    model_id: str | None = None,
    retry_failed: bool = False,
    positives: Positives | None = POSITIVES,
    task_images: int | None = None,
    shard_rows: int = 256,
    labels: Labels | None = None,
    note: Mapping[str, Json] | None = None,
    progress: Callable[[RunProgress], None] | None = None,
) -> Run:
    """Explain all images of a data set into a run folder; the same call resumes after a crash.

    `dataset` is a folder, a CSV or Parquet list with a column `image`, a tar file, a torch data
    set, or anything to iterate over; entries are images `(channels, *grid)`, pairs of image and
    class, or paths. `decode` takes the bytes and the name of a file and returns the image; .npy
    files need none, and a folder without it gives these alone. Large images of a folder, such as
    whole slides, go to the table of errors; a warning counts files that are not images. Paths of
    a list may not leave `root`, its own folder by default. Without `target`, the data set gives
    the class of each image.

    With `tiles`, the images are large ones that are read tile by tile, as by `explain_tiles`: a
    folder, a list or paths on this machine. Each row then has the numbers of the whole image, and
    its `TiledExplanation` in a file beside the shards.

    Only images that the model decides for are explained, see `hshap.Positives`. The others cost an
    evaluation and that of the bare baseline, and go to the table `negatives` with their scores and
    reasons. `positives=None` explains all images, also those that an earlier call left out.

    `out` is a folder, or a URL of fsspec. Images that it has are not explained again, and those
    that failed only with `retry_failed`.

    `executor` says where: `InProcess()` by default, `Processes()`, `RayActors()`, `DaskWorkers()`
    or `Slurm()`. `explainer` may be a function that returns one, which each worker calls.

    A run notes the model's answers to fixed noise and to its first images. A call that resumes it
    asks again, and refuses a model that answers otherwise; one that answers all of these alike is
    taken for the same. `model_id` is a name of yours for the model, which must be the same, too.
    Where a part of the explainer is code of your own, one image is explained again and compared. An
    image that has changed since is explained again, and its old rows become `Run.history`.

    `labels` are texts for titles and exports, such as the names of classes.

    `note` is kept in `Run.description["note"]`, and compared with nothing; the command keeps its
    options there.

    A task has `task_images` images: 64 by default, fewer if several workers share few images. A
    shard is written at the end of a task, after `shard_rows` rows, and once a minute. A
    `RunStoppedError` says why a run ended early, such as a full disk.

    >>> import hshap, numpy as np, tempfile
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ... )
    >>> images = {"dark": np.zeros((1, 2, 2)), "bright": np.ones((1, 2, 2)), "bad": np.ones(3)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = explain_dataset(explainer, images, folder, target=0)
    ...     run["bright"].score, [row["image"] for row in run.errors]
    ...     [(row["image"], row["reason"]) for row in run.negatives]
    (1.0, ['bad'])
    [('dark', '0 is not above one half')]
    """
    rows = checks.integer("shard_rows", shard_rows, minimum=1)
    wanted = None if task_images is None else checks.integer("task_images", task_images, minimum=1)
    source = _source(dataset, decode, root, tiles)
    if source is not dataset and isinstance(source, Listed) and source.left_out:
        warnings.warn(source.left_out, RuntimeWarning, stacklevel=2)
    first, files = made_by(explainer), files_at(out)
    targets = _as_targets(target, first.facts.index)
    if tiles is not None:
        _check_tiled(tiles, targets, layout)
    arrow()  # before the model is called: without it, no shard could be written
    explain_source(
        explainer,
        first,
        source,
        Folder(files),
        targets,
        decode=decode,
        layout=layout,
        executor=executor,
        tiles=tiles,
        model_id=model_id,
        retry_failed=retry_failed,
        positives=positives,
        task_images=wanted,
        shard_rows=rows,
        labels=labels,
        note=note,
        progress=progress,
    )
    return open(files)


def open(path: str | os.PathLike[str] | Files) -> Run:  # noqa: A001, as the issue of users names it
    """Open a run folder, local or a URL of fsspec. No model is called.

    >>> open("/no/such/folder")
    Traceback (most recent call last):
    hshap.errors.FormatError: /no/such/folder is no run folder; pass one that hshap run wrote
    """
    folder = Folder(files_at(path))
    if folder.description() is None:
        message = f"{folder.files.location} is no run folder; pass one that hshap run wrote"
        raise FormatError(message)
    return Run.at(folder)


def verify(  # noqa: PLR0913, as for explain_dataset
    path: str | os.PathLike[str] | Files | Run,
    explainer: Explainer | None = None,
    dataset: Untyped = None,
    *,
    target: Target | Chosen | Sequence[Target | Chosen] | None = None,
    layout: str | None = None,
    decode: Decode | None = None,
    root: str | os.PathLike[str] | None = None,
    tiles: Tiles | None = None,
    model_id: str | None = None,
    sample: int = 10,
    seed: int | None = None,
    seal: str | None = None,
    tolerance: float = TOLERANCE,
) -> Verification:
    """Check that a run folder is as it was written; every altered row and shard is named.

    Digests find damage. Whoever can write to the folder can make all of them again, so note the
    `seal` of a finished run elsewhere: with it, the folder must be exactly as it was then.

    With an explainer and the data set, the images of a random `sample` of rows are explained again,
    and all their coalition values compared. A difference above `tolerance` of the largest value is
    a problem; smaller ones come from other batches or machines, and the largest is reported. For a
    model that depends on its batch, the difference that it shows on noise is added.

    >>> import hshap, numpy as np, tempfile
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ... )
    >>> images = np.ones((3, 1, 2, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = explain_dataset(explainer, images, folder, target=0)
    ...     found = verify(run, explainer, images)
    >>> found.is_sound, found.rows, found.values, found.largest
    (True, 3, 48, 0.0)
    """
    run = path if isinstance(path, Run) else open(path)
    found = verify_folder(run, seal)
    if explainer is None:
        return found
    source = _source(dataset, decode, root, tiles)
    settings = settings_of(explainer, decode or getattr(source, "decode", None), layout, tiles)
    wanted: dict[str, Json] = {"hshap": __version__, "settings": described_settings(settings)}
    wanted |= {} if model_id is None else {"model": {"id": model_id}}
    noted = noted_probes(run.description)
    images = first_images(source, tiles)[0] if source.count is not None else ()
    now = ask(explainer, images, noise=noted and noted.noise, layout=layout)
    problems = [*found.problems, *different_from(run.description, wanted, now)]
    values, largest, more = recompute(
        run,
        explainer,
        source,
        _as_targets(target, explainer.facts.index) or (),
        sample=checks.integer("sample", sample, minimum=1),
        seed=seed,
        layout=layout,
        tolerance=tolerance,
        rounding=now.rounding,
        tiles=tiles,
    )
    return replace(found, problems=(*problems, *more), values=values, largest=largest)


def _source(
    dataset: Untyped,
    decode: Decode | None,
    root: str | os.PathLike[str] | None,
    tiles: Tiles | None,
) -> Source:
    """Return the images of a run: whole ones, or large ones."""
    if tiles is None:
        return as_source(dataset, decode=decode, root=root)
    if decode is not None:
        message = "decode is for whole images; for tiles, pass Tiles(prepare=...) instead"
        raise ArgumentError(message)
    return as_large_source(dataset, root)


def _check_tiled(tiles: object, targets: Sequence[AnyTarget] | None, layout: str | None) -> None:
    """Refuse arguments that large images have not."""
    if not isinstance(tiles, Tiles):
        message = f"tiles is {checks.shown(tiles)}; pass Tiles(side=512) or None"
        raise ArgumentError(message)
    if layout is not None:
        raise ArgumentError(f"layout={layout!r} is for whole images; leave it out with tiles")
    chosen = [one.name for one in targets or () if isinstance(one, Chosen)]
    if chosen:
        message = f"target {chosen[0]!r} is chosen for each image; with tiles, pass a class"
        raise ArgumentError(message)


def _as_targets(target: Untyped, index: Callable[[str], int]) -> tuple[AnyTarget, ...] | None:
    if target is None:
        return None
    several = target if isinstance(target, (list, tuple)) else (target,)
    if any(isinstance(one, Chosen) for one in several):
        found = [one if isinstance(one, Chosen) else as_targets(one, index)[0] for one in several]
    else:
        found = as_targets(target, index)
    return tuple(texts_of(found).values())
