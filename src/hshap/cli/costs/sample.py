"""A sample of the images of a run, explained as the run would do it, to predict its cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hshap.cli.faults import few
from hshap.cli.inputs.archives import targets_of
from hshap.cli.output import say
from hshap.cli.progress import Shown
from hshap.evaluators.allocator import keep_memory
from hshap.explainer.predicting import predicted_cost
from hshap.runs.sources.protocol import Decoded, Remembering
from hshap.runs.tasks import Chosen, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hshap.cli.inputs.archives import ImageFiles
    from hshap.cli.inputs.models import Loaded
    from hshap.cli.options import MethodOptions
    from hshap.explainer.predicting import PredictedCost
    from hshap.explainer.readings import Pair

SEED = 0


def sampled_cost(  # noqa: PLR0913, PLR0917, the parts of a run
    source: ImageFiles,
    loaded: Loaded,
    method: MethodOptions,
    images: int | None,
    most: int,
    skipped: list[str],
) -> tuple[PredictedCost, tuple[int, int]]:
    """Explain up to `most` images of a source, drawn by chance, and return the cost of `images`.

    Without a number, all images of the source count. The size of an explained image is returned
    too. Images that cannot be read are left out, and told in `skipped`.
    """
    order = np.random.default_rng(SEED).permutation(len(source.files))[:most]
    drawn = Remembering(replace(source, files=tuple(source.files[n] for n in order)), most)
    reader = source.decode.reader
    explainer = method.explainer(loaded, reader)
    _, targets = targets_of(method.targets, drawn, explainer, reader.format)
    sizes: list[tuple[int, int]] = []

    def pairs() -> Iterator[Pair]:
        for item in drawn.items():
            try:
                made = drawn.read(item).image()
                one = made if isinstance(made, Decoded) else Decoded(made)
                wanted = [
                    target.choose(explainer, one.image) if isinstance(target, Chosen) else target  # pyright: ignore[reportArgumentType]
                    for target in targets or ()
                ]
            except Exception as error:  # noqa: BLE001, it fails alone in the run, too
                told = reason_of(error)
                skipped.append(told if item.name in told else f"{item.name}: {told}")
                continue
            sizes.append(np.shape(one.image)[1:])  # pyright: ignore[reportArgumentType]
            yield (one.image, wanted) if one.baseline is None else (one.image, wanted, one.baseline)

    with keep_memory(), Shown("explaining a sample"):
        found = predicted_cost(
            explainer,
            pairs(),
            images=images or len(source.files),
            most=most,
            positives=method.positives,
        )
    for line in few([f"left out of the sample: {line}" for line in skipped]):
        say(line)
    return found, sizes[0]
