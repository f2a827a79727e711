"""Cycle spinning: one image explained over several partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.evaluators.protocol import provenance_of
from hshap.explainer.choosing_parts import PartChooser
from hshap.explainer.make_explanation import make_explanation
from hshap.explainer.readings import ImageReader, iterate
from hshap.explanation.spin import Spin
from hshap.games import engine
from hshap.games.jobs import Job, ScoreTable
from hshap.games.targets import as_targets, is_several
from hshap.partitions.grids import Shifted
from hshap.partitions.protocol import spaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

    from hshap.explainer import Explainer, OnProgress
    from hshap.games.search import Search
    from hshap.games.targets import Target
    from hshap.partitions.protocol import Partition


def cycle_spin(  # noqa: PLR0913, shifts and partitions exclude each other
    explainer: Explainer,
    image: ArrayLike,
    target: Target,
    *,
    shifts: Iterable[int | Sequence[int]] | None = None,
    partitions: Iterable[Partition] | None = None,
    layout: str | None = None,
    spacing: Sequence[float] | None = None,
    progress: OnProgress | None = None,
) -> Spin:
    """Explain an image over several partitions; the maps of the result are their means.

    Pass one of two. `shifts` moves the explainer's partition: a shift is one number of pixels for
    all spatial axes, or one for each. `partitions` replaces it, for example by `Superpixels` of
    several seeds. Every entry counts once in the mean. Coalitions that several members share are
    evaluated once. `layout` and `spacing` are as in `Explainer.explain`.

    >>> import hshap
    >>> import numpy as np
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=2),
    ... )
    >>> cycle_spin(explainer, np.eye(8)[None], target=0, shifts=[0, 1]).saliency().shape
    (8, 8)
    """
    if is_several(target):
        message = (
            f"target={checks.shown(target)} is several; pass one, and call cycle_spin for each"
        )
        raise ArgumentError(message)
    session = explainer.evaluator.open_session()
    reader = ImageReader(explainer.facts.intake, layout, spacing)
    reading, targets = reader.read(image), as_targets(target, explainer.facts.index)
    parts = PartChooser(explainer, session)
    run = parts.choose(parts.begin(0, reading, targets), notice_template=False)
    if partitions is not None:
        run = replace(run, chosen=replace(run.chosen, regions=""))
    runs = [
        replace(run, partition=partition, settings=run.settings.updated(partition=partition))
        for partition in _members(cast("Partition", run.partition), shifts, partitions)
        for partition in [spaced(partition, reading.spacing)]
    ]
    roots = [parts.root(one) for one in runs]
    table = ScoreTable(run.backdrop.canvas(run.pixels, roots[0], 0), targets)
    search = cast("Search", run.search)
    jobs = [
        Job(one, table, 0, search, root, started=run.started)
        for one, root in zip(runs, roots, strict=True)
    ]
    for _ in engine.run([jobs], session, progress):
        pass  # results are read below, in the order of the shifts
    provenance = provenance_of(session, position=0)
    members = [make_explanation(job, explainer.facts, provenance) for job in jobs]
    return Spin(tuple(members), table.evaluations, provenance)


def _members(
    own: Partition,
    shifts: Iterable[int | Sequence[int]] | None,
    partitions: Iterable[Partition] | None,
) -> list[Partition]:
    if (shifts is None) == (partitions is None):
        given = "neither" if shifts is None else "both"
        message = (
            f"shifts and partitions: {given} is given; pass shifts=[(0, 0), (0, 5), (5, 0)] "
            "or partitions=[Superpixels(seed=0), Superpixels(seed=1)]"
        )
        raise ArgumentError(message)
    if partitions is None:
        found: list[Partition] = [Shifted(own, shift) for shift in iterate("shifts", shifts)]
        name, example = "shifts", "[(0, 0), (0, 5), (5, 0), (5, 5)]"
    else:
        found = list(iterate("partitions", partitions))
        name, example = "partitions", "[Superpixels(seed=0), Superpixels(seed=1)]"
    if not found:
        message = f"{name} is empty; pass at least one, for example {example}"
        raise ArgumentError(message)
    for partition in found:
        if isinstance(partition, type) or not callable(partition):
            message = f"partitions holds {checks.shown(partition)}; pass ones such as {example}"
            raise ArgumentError(message)
    return found
