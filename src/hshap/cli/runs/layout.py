"""The memory layout of a run: channels last, where that is measured to be faster and to agree.

The layout is chosen before the first explanation, and stays: two layouts round differently, and a
part without effect is one whose scores are equal to the last digit.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Literal

import numpy as np

from hshap.cli.output import say
from hshap.evaluators.runners import runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap._util.types import Heat, Image, Shape
    from hshap.cli.inputs.models import Loaded

MANY_IMAGES = 4
"""Images of a run from which on the layout is measured: it takes four or eight evaluations."""

COUNT = 2
"""Images of a batch that is timed; one if they are large."""

LARGE = 2**21
"""Bytes of an image that fills the cores and their caches by itself."""

TURNS = 2
BETTER = 1.05
"""Times as many inputs in a second that channels last must score."""

AGREE = 1e-4
"""Largest difference between the scores of both layouts, relative to the largest score."""


def has_layouts(loaded: Loaded, shape: Shape) -> bool:
    """Tell whether a model is a torch module, and its images have several planes."""
    torch = sys.modules.get("torch")
    is_module = torch is not None and isinstance(loaded.model, torch.nn.Module)
    return is_module and len(shape) == 3 and shape[0] > 1


def faster_layout(
    loaded: Loaded,
    image: Image,
    batch_size: int | Literal["auto"] | None = None,
    clock: Callable[[], float] = perf_counter,
) -> bool:
    """Tell whether a torch module is faster with channels last, and say so.

    Two batches of two copies of the image, or of one large image, run in each layout, in turns; the
    faster one of each counts. A batch is no larger than `batch_size`. Models of other libraries,
    models that fail in either layout, and images that are no planes, keep their layout.
    """
    if not has_layouts(loaded, image.shape):
        return False
    most = batch_size if isinstance(batch_size, int) else COUNT
    count = min(COUNT, most) if image.nbytes < LARGE else 1
    try:
        plain, last = (_Way(loaded, image, count, last=last) for last in (False, True))
        for _ in range(TURNS):
            plain.run(clock)
            last.run(clock)
    except Exception:  # noqa: BLE001, such as that of tensor.view, which needs the usual layout
        return False
    scale = max(float(np.abs(plain.scores).max()), float(np.finfo(np.float32).tiny))
    difference = float(np.abs(last.scores - plain.scores).max()) / scale
    chosen = last.seconds * BETTER < plain.seconds and difference <= AGREE
    if chosen:
        say(
            f"channels last: {last.seconds * 1e3:.3g} ms for an evaluation instead of "
            f"{plain.seconds * 1e3:.3g}, scores differ by {difference:.0e}; --no-channels-last "
            "keeps the usual layout"
        )
    return chosen


class _Way:
    """A model in one layout, with a batch of copies of one image; the fastest run counts."""

    def __init__(self, loaded: Loaded, image: Image, count: int, *, last: bool) -> None:
        self._runner = runner(loaded.model, autocast=None, channels_last=last)
        self._room = self._runner.inputs(count, image.shape, image.dtype)
        for place in range(count):
            self._room[place] = self._runner.put(image)
        self._count = count
        self.seconds = np.inf
        self.scores: Heat = np.zeros((0, 0))

    def run(self, clock: Callable[[], float]) -> None:
        started = clock()
        self.scores = self._runner.run(self._room, self._count)
        self.seconds = min(self.seconds, (clock() - started) / self._count)
