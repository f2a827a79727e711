"""The explanation of a job that has finished, by the parts of its image's run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hshap.explanation.audit import filled_by
from hshap.explanation.explanation import Explanation
from hshap.explanation.maps import shares_left, strong_regions
from hshap.games.search import SearchResult
from hshap.games.targets import Output, class_index, decided_against, describe_target, not_above
from hshap.models.model_description import Facts
from hshap.partitions.spots import Spots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.evaluators.protocol import Provenance
    from hshap.explainer.choosing_parts import ImageRun
    from hshap.games.game import Game
    from hshap.games.jobs import Job
    from hshap.models.model_description import Facts
    from hshap.partitions.protocol import Region


def make_explanation(job: Job[ImageRun], facts: Facts, provenance: Provenance) -> Explanation:
    """Return the explanation of a job that has finished."""
    found, canvas, run = job.result or SearchResult(()), job.canvas, job.run
    target, settings = job.target, run.settings
    games = found.games or tuple(job.games)
    chosen = run.chosen
    if found.equal_to is not None:
        settings = settings.updated(search=found.equal_to)
        if chosen.search:
            chosen = replace(chosen, search="the model is a detector here: games alone are enough")
    leaves, unsplit = found.leaves, found.unfinished
    if settings.drops_nothing:
        unknown = () if settings.has_cells else unsplit
        leaves = strong_regions(shares_left(games), unknown, canvas.grid)
        unsplit = ()
    name = facts.name(class_index(target))
    if name:
        settings = settings.updated(source={"class": name})
    probability = _probability(job)
    if probability is not None:
        settings = settings.updated(probability=probability)
    negative = run.negatives.get(job.column) or _reason_against(job, games[0])
    if negative:
        settings = settings.updated(negative=negative)
    if words := str(chosen):
        settings = settings.updated(chosen=words)
    return Explanation(
        grid=canvas.grid,
        target=describe_target(target),
        leaves=leaves,
        games=games,
        evaluations=job.evaluations,
        seconds=job.seconds,
        draws=canvas.draws,
        unfinished=found.unfinished,
        position=canvas.position,
        settings=settings,
        class_index=class_index(target),
        provenance=provenance,
        certificate=found.certificate,
        filled=_measure_filling(leaves, unsplit, job),
    )


def _reason_against(job: Job[ImageRun], game: Game) -> str:
    """Return why the image of a job is negative; empty if it is positive, or nobody knows."""
    table, reason = job.table, ""
    if table.whole is not None and table.bare is not None:
        reason = decided_against(job.target, table.whole, table.bare[None])
    return reason or not_above(float(game.values[-1]), float(game.values[0]))


def _probability(job: Job[ImageRun]) -> float | None:
    """Return the probability of the explained class on the whole image; None if nobody knows it.

    Outputs are probabilities if they are from 0 to 1 on the image and on the baseline, as in the
    rule of `Positives`. Several others are logits of one softmax, a single one is of a sigmoid.
    """
    target, index, outputs = job.target, class_index(job.target), job.run.outputs
    if outputs is None and job.table.whole is not None:
        known = (job.table.whole, job.table.bare)
        outputs = np.stack([one for one in known if one is not None])
    if index is None or outputs is None:
        return None
    if not isinstance(target, Output) or target.activation == "raw":
        logits = "sigmoid" if outputs.shape[1] == 1 else "softmax"
        target = Output(index, "raw" if ((outputs >= 0) & (outputs <= 1)).all() else logits)
    probability = float(target(outputs[:1])[0])
    return probability if np.isfinite(probability) else None


def _measure_filling(
    leaves: Sequence[Region], unsplit: Sequence[Region], job: Job[ImageRun]
) -> float | None:
    """Return how filled the leaves are; None where that tells nothing.

    That is where stand-ins depend on the shown pixels, and for cells around the differences from a
    template: by their making, most of their pixels are those of the template.
    """
    canvas = job.canvas
    if not canvas.is_still or isinstance(job.run.partition, Spots):
        return None
    left = set(unsplit)
    split = [leaf for leaf in leaves if leaf not in left]
    if not split:
        return 1.0
    stand_ins = [canvas.stand_ins.on_host(draw) for draw in range(canvas.draws)]
    return filled_by(split, canvas.on_host, stand_ins)
