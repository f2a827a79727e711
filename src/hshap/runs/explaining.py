"""A run, whatever its images and its store: ask the model, compare the settings, and go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hshap._util import checks
from hshap._util.version import __version__
from hshap.errors import ArgumentError
from hshap.explainer import Explainer
from hshap.explainer.probes import ask, noted_probes
from hshap.games.targets import POSITIVES, Positives
from hshap.runs.driver import TASK, Driver, RunProgress, task_size
from hshap.runs.executors.in_process import InProcess
from hshap.runs.model_check import check_code, check_model, first_images
from hshap.runs.sources.protocol import Remembering, Source
from hshap.runs.storing.identity import (
    Fingerprint,
    described_settings,
    digest_of_json,
    is_described,
    parts_of,
)
from hshap.runs.worker import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hshap._util.types import Json, Untyped
    from hshap.evaluators.tiles import Tiles
    from hshap.runs.executors.protocol import Executor
    from hshap.runs.storing.protocol import Store
    from hshap.runs.tasks import AnyTarget
    from hshap.runs.worker import Labels


def explain_source(  # noqa: PLR0913, one for each choice of the caller
    recipe: Explainer | Callable[[], Explainer],
    explainer: Explainer,
    source: Source,
    store: Store,
    targets: tuple[AnyTarget, ...] | None,
    *,
    decode: Untyped = None,
    layout: str | None = None,
    spacing: tuple[float, ...] | None = None,
    executor: Executor | None = None,
    tiles: Tiles | None = None,
    model_id: str | None = None,
    retry_failed: bool = False,
    positives: Positives | None = POSITIVES,
    task_images: int | None = None,
    shard_rows: int = 256,
    labels: Labels | None = None,
    note: Mapping[str, Json] | None = None,
    progress: Callable[[RunProgress], None] | None = None,
) -> RunProgress:
    """Explain the images of a source that a store lacks; return the counts.

    `explainer` is made by `recipe`, which workers get.
    """
    where = executor or InProcess()
    own = isinstance(where, InProcess) and tiles is None
    decode = decode or getattr(source, "decode", None)
    if own and not isinstance(source, Remembering):
        source = Remembering(source)
    images, items = first_images(source, tiles)
    noted = noted_probes(store.description())
    probes = ask(explainer, images, noise=noted and noted.noise, layout=layout)
    settings = settings_of(explainer, decode, layout, tiles)
    noted_now = store.describe(
        {
            "hshap": __version__,
            "model": {"sha256": digest_of_json(probes.document), "id": model_id},
            "settings": described_settings(settings),
            "probes": probes.document,
            **({} if note is None else {"note": dict(note)}),
        }
    )
    first_noted = noted_probes(noted_now)
    if first_noted is not None and first_noted.noise not in {None, probes.noise}:
        # Another driver was faster, and other images were its first ones.
        probes = ask(explainer, images, noise=first_noted.noise, layout=layout)
    check_model(store, first_noted, probes)
    if tiles is None and noted is not None and not is_described((settings, targets)):
        rounding = max(noted.rounding, probes.rounding)
        check_code(store, explainer, source, targets, layout, rounding)
    job = Job(
        recipe,
        source,
        store,
        _fingerprint(noted_now),
        targets,
        layout,
        shard_rows,
        tiles=tiles,
        positives=positives,
        labels=labels,
        spacing=spacing,
    )
    usual = TASK if isinstance(where, InProcess) else task_size(source.count)
    if tiles is not None:
        usual = 1  # a large image takes long, and shares no batch with another
    return Driver(job, items, task_images or usual, retry_failed, progress).run(where)


def _fingerprint(description: Mapping[str, Untyped]) -> Fingerprint:
    """Return the digests that are in the description of a run."""
    return Fingerprint(description["model"]["sha256"], description["settings"]["sha256"])


def settings_of(
    explainer: Explainer, decode: Untyped, layout: str | None, tiles: Tiles | None
) -> dict[str, object]:
    """Return the settings of a run.

    A decoder may say how it makes images by an attribute `settings`, which leaves out its limits.
    """
    decoding = getattr(decode, "settings", decode)
    cut = {} if tiles is None else {"tiles": tiles}
    return {"parts": parts_of(explainer), "layout": layout, "decode": decoding, **cut}


def made_by(explainer: Explainer | Callable[[], Explainer]) -> Explainer:
    """Return the explainer, made by the caller's function if it is one."""
    made: object = explainer
    if callable(explainer):
        made = explainer()
    if not isinstance(made, Explainer):
        message = (
            f"explainer is {checks.shown(explainer)}; pass an Explainer, or a function that "
            "returns one"
        )
        raise ArgumentError(message)
    return made
