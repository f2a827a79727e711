"""Agreement: by how much the values of a run may differ between batches, and so between executors.

The order of additions in a network depends on the size of its batch. The images of a batch differ
from run to run, so the last digits of a value may, too. A run measures this once and notes it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.arrays import to_numpy
from hshap.evaluators.batched import Batched
from hshap.runs.sources.protocol import Decoded
from hshap.runs.storing.files import publish
from hshap.runs.storing.folder import AGREEMENT
from hshap.runs.tasks import Chosen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.explainer import Explainer
    from hshap.runs.sources.protocol import Source
    from hshap.runs.storing.files import Files
    from hshap.runs.tasks import AnyTarget

TRIED = 5
"""Images that are tried for one that can be explained."""


def note_agreement(
    files: Files,
    explainer: Explainer,
    source: Source,
    targets: Sequence[AnyTarget] | None,
    layout: str | None,
) -> None:
    """Measure the difference between batches on one image, unless the folder has it already.

    A stream is not read ahead for it, and evaluators of another make than `Batched` are not known.
    """
    if AGREEMENT in files.names("") or source.count is None:
        return
    found = None
    if isinstance(explainer.evaluator, Batched):
        for item, _ in zip(source.items(), range(TRIED), strict=False):
            with suppress(Exception):  # the run itself tells of images and models that fail
                read = source.read(item)
                image = read.image()
                pixels = to_numpy("image", image.image if isinstance(image, Decoded) else image)
                target = targets[0] if targets else int(read.label)  # pyright: ignore[reportArgumentType]
                if isinstance(target, Chosen):
                    target = target.choose(explainer, pixels)
                found = batch_difference(explainer, pixels, target, layout)
                break
    publish(files, AGREEMENT, json.dumps({"batch_difference": found}).encode())


def batch_difference(
    explainer: Explainer, image: object, target: object, layout: str | None = None
) -> float | None:
    """Return the largest difference of a value between inputs alone and in full batches.

    None if the two runs play different games.

    >>> import hshap
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ... )
    >>> batch_difference(explainer, np.ones((1, 4, 4)), 0)
    0.0
    """
    evaluator = explainer.evaluator
    if not isinstance(evaluator, Batched):
        return None
    alone = replace(explainer, model=replace(evaluator, batch_size=1))
    one, other = (
        made.explain(image, target, layout=layout)  # pyright: ignore[reportArgumentType, reportCallIssue]
        for made in (alone, explainer)
    )
    games = {game.region: game.values for game in other.games}
    shared = [
        np.abs(game.values - games[game.region]).max()
        for game in one.games
        if game.region in games and len(games[game.region]) == len(game.values)
    ]
    return float(max(shared)) if shared else None


def read_agreement(files: Files) -> float | None:
    """Return the difference that a run noted; None if it is not known."""
    try:
        found = json.loads(files.read(AGREEMENT))["batch_difference"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return float(found) if isinstance(found, (int, float)) else None
