"""The memory layout of a run: channels last, where that is measured to be faster and to agree.

The layout is chosen before the first explanation, and stays: two layouts round differently, and a
part without effect is one whose scores are equal to the last digit.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from hshap.cli.output import say
from hshap.evaluators.batched import LARGEST_BYTES
from hshap.evaluators.runners import runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap._util.types import Heat, Image
    from hshap.cli.inputs.models import Loaded

COUNT = 2
"""Images of a batch that is timed."""

TURNS = 2
BETTER = 1.05
"""Times as many inputs in a second that channels last must score."""

AGREE = 1e-4
"""Largest difference between the scores of both layouts, relative to the largest score."""


def faster_layout(loaded: Loaded, image: Image, clock: Callable[[], float] = perf_counter) -> bool:
    """Tell whether a torch module is faster with channels last, and say so.

    Two batches of two copies of the image run in each layout, in turns; the faster one of each
    counts. Models of other libraries, and images that are no planes, keep their layout.
    """
    torch = sys.modules.get("torch")
    is_module = torch is not None and isinstance(loaded.model, torch.nn.Module)
    if not is_module or image.ndim != 3 or image.shape[0] == 1:
        return False
    count = max(1, min(COUNT, LARGEST_BYTES // image.nbytes))
    ways = {last: _Way(loaded, image, count, last=last) for last in (False, True)}
    seconds: dict[bool, list[float]] = {last: [] for last in ways}
    scores: dict[bool, Heat] = {}
    for _ in range(TURNS):
        for last, way in ways.items():
            started = clock()
            scores[last] = way.scores()
            seconds[last].append((clock() - started) / count)
    plain, turned = (min(seconds[last]) for last in (False, True))
    scale = max(float(np.abs(scores[False]).max()), float(np.finfo(np.float32).tiny))
    difference = float(np.abs(scores[True] - scores[False]).max()) / scale
    chosen = turned * BETTER < plain and difference <= AGREE
    if chosen:
        say(
            f"channels last: {turned * 1e3:.3g} ms for an evaluation instead of "
            f"{plain * 1e3:.3g}, scores differ by {difference:.0e}; --no-channels-last keeps the "
            "usual layout"
        )
    return chosen


class _Way:
    """A model in one layout, with a batch of copies of one image."""

    def __init__(self, loaded: Loaded, image: Image, count: int, *, last: bool) -> None:
        self._runner = runner(loaded.model, autocast=None, channels_last=last)
        self._room = self._runner.inputs(count, image.shape, image.dtype)
        for place in range(count):
            self._room[place] = self._runner.put(image)
        self._count = count

    def scores(self) -> Heat:
        return self._runner.run(self._room, self._count)
