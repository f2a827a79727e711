"""Peers that see outputs only, as their own documentation calls them, at 200 and 500 evaluations.

- RISE of dianna: random masks of 8 x 8 cells, half of them kept, over black. Its own choice of that
  share, which costs 900 evaluations, is left out: 0.5 is the share of RISE's paper.
- PartitionExplainer of shap: hidden pixels are blurred by 16 x 16, as in its examples of images.
- ShapBPT of shap-bpt: hidden pixels are the same blur.
- ReX of rex-xai: hidden pixels are 0, and 20 searches of random boxes, its defaults. It has no
  budget: it takes about 100 evaluations for each search, so 5 searches stand beside 500. It asks
  whether the class is still found: here, whether its score is at least half of the image's.

An image with a template has no other hidden pixels: every one of them shows the template.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.core.protocol import Method
from benchmarks.methods import bpt, partition
from benchmarks.methods.common import (
    PRESENT,
    channels_first,
    channels_last,
    package,
    quiet,
    scores,
    seeded,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.core.protocol import Image, Map, Subject

    Explain = Callable[[Subject, Image], Map]

BUDGETS = (200, 500)
CELLS, KEPT = 8, 0.5  # of RISE: cells on a side, and the share of them that is shown
MASKS_AT_ONCE = 100  # of RISE, which keeps them all in memory
BLUR = (16, 16)
STILL_FOUND = 0.5  # of the image's score
FOUND = 1  # the class that ReX is told of, if the class is still found
SEARCHES = (20,)


def rise(subject: Subject, image: Image, budget: int) -> Map:
    """Average random masks, each by the score of the image seen through it.

    Masks come in rounds: the mean of their maps is the map of all.
    """
    dianna = package("dianna.methods.rise_image")
    # The package multiplies by masks, so hidden pixels are 0: of a template, the difference is.
    hidden = subject.baseline if subject.template else np.zeros_like(image)

    def score(shown: NDArray[Any]) -> NDArray[np.float32]:
        return scores(subject.model, shown + hidden)[:, [PRESENT]]

    rounds = budget // MASKS_AT_ONCE
    heat = np.zeros(image.shape[1:])
    with seeded(subject.seed), quiet():
        for _ in range(rounds):
            explainer = dianna.RISEImage(MASKS_AT_ONCE, CELLS, KEPT, axis_labels={0: "channels"})
            heat += np.asarray(explainer.explain(score, image - hidden, labels=[0])[0]) / rounds
    return heat


def rex(subject: Subject, image: Image, searches: int) -> Map:
    """Search for small sets of boxes that keep the class, and mark each box by its part in them."""
    searching = package("rex_xai.explanation.rex")
    config, inputs = package("rex_xai.input.config"), package("rex_xai.input.input_data")
    prediction = package("rex_xai.responsibility.prediction").Prediction
    logging.getLogger("ReX").setLevel(logging.ERROR)
    least = STILL_FOUND * float(scores(subject.model, image[None])[0, PRESENT])

    def predict(shown: torch.Tensor, target: Any = None) -> list[Any]:
        images = shown.reshape(-1, *image.shape).numpy()
        found = scores(subject.model, images)[:, PRESENT]
        return [
            prediction(FOUND * int(s >= least), float(s), None, target, float(s)) for s in found
        ]

    settings = config.CausalArgs()
    settings.gpu, settings.progress_bar, settings.seed = False, False, subject.seed
    settings.iters = searches
    data = inputs.Data(None, (1, *image.shape), "cpu", mode="RGB")
    data.data = torch.from_numpy(image)[None]
    data.set_mask_value(settings.mask_value)
    if subject.template:
        template = torch.from_numpy(np.ascontiguousarray(subject.baseline, np.float32))
        data.mask_value = lambda mask, shown: torch.where(mask, shown, template)
    data.target = predict(data.data)[0]
    with seeded(subject.seed), quiet():
        maps, _ = searching.calculate_responsibility(data, settings, predict)
    found = maps.get(FOUND)
    return np.zeros(image.shape[1:]) if found is None else found


def blurred(image: Image) -> Image:
    """Return the image with each pixel the mean of 16 x 16 around it, as shap blurs it."""
    import cv2

    rows = channels_last(image)
    return channels_first(cv2.blur(rows, BLUR).reshape(1, *rows.shape), len(image))[0].copy()


def _over_blur(explain: Explain, subject: Subject, image: Image) -> Map:
    """Explain with the blurred image as the baseline, unless there is a template.

    shap makes the same blur itself, but keeps the last one by the address of an array, which may be
    that of the image before.
    """
    if subject.template:
        return explain(subject, image)
    return explain(replace(subject, baseline=blurred(image)), image)


def _named(method: Method, name: str) -> Method:
    return replace(method, name=name, explain=partial(_over_blur, method.explain))


RISE = tuple(Method(f"RISE {n}", "RISE", partial(rise, budget=n), "dianna") for n in BUDGETS)
PARTITION = tuple(_named(partition.default_at(n), f"PartitionExplainer {n}") for n in BUDGETS)
BPT = tuple(_named(bpt.at(n), f"shap-bpt {n}") for n in BUDGETS)
REX = tuple(
    Method(f"ReX {n} searches", "ReX", partial(rex, searches=n), "rex-xai") for n in SEARCHES
)
METHODS = (*RISE, *PARTITION, *BPT)
