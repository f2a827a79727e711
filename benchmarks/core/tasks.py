"""The tasks: a data set, a trained network, and the images that it calls positive.

To add a data set, write a `Task` for it and name it in `TASKS`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import nn

from benchmarks.core.measures import margins
from benchmarks.core.protocol import Example, Subject
from benchmarks.datasets import synthetic
from hshap.demo import bundled, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.core.protocol import Corners, DataSet

BACKGROUNDS = 100
VALIDATION = 10  # images (of each number of crosses) to choose thresholds on
QUICK = {"validation": 1, "test": 5}
SEED = 0


class Task(Protocol):
    """One concept in one data set, and the network that detects it.

    `positives` gives examples that have the concept and that the network says have it.
    """

    name: str
    concept: str

    def subject(self) -> Subject:
        """Return all that methods may use, made once a run."""
        ...

    def positives(self, split: str, *, quick: bool) -> Iterator[Example]: ...


class Column(nn.Module):
    """Give one of a network's logits as two, (absent, present): softmax is then its sigmoid."""

    def __init__(self, model: nn.Module, column: int) -> None:
        super().__init__()
        self.model, self.column = model, column

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        present = self.model(images)[:, self.column]
        return torch.stack([torch.zeros_like(present), present], dim=1)


@dataclass(frozen=True)
class Synthetic:
    """The paper's synthetic images, with 1 and with 6 crosses; fresh ones, from the same law."""

    name: str = "synthetic"
    concept: str = "cross"
    each: int = 300

    def subject(self) -> Subject:
        background = synthetic.generate(BACKGROUNDS, SEED).images
        model = load()
        return Subject(model, model.conv_2, bundled()["mean"], background, size=10, seed=SEED)

    def positives(self, split: str, *, quick: bool) -> Iterator[Example]:
        each = VALIDATION if split == "validation" else self.each
        model = load()
        for crosses in (1, synthetic.MAX_CROSSES):
            drawn = self._drawn(split, crosses)
            found = (e for e in drawn if margins(model, e.image[None])[0] > 0)
            yield from islice(found, min(each, QUICK[split]) if quick else each)

    def _drawn(self, split: str, crosses: int) -> Iterator[Example]:
        # Seeds that no training, validation or test set of train_synthetic.py was drawn from.
        stream = {"validation": 1, "test": 2}[split]
        rng = np.random.default_rng([SEED, stream, crosses])
        index = 0
        while True:
            sample = synthetic.draw(rng, crosses)
            yield Example(
                name=f"{split}-{crosses}-{index}",
                image=sample.image,
                objects={self.concept: tuple(map(_around, sample.corners))},
                truths={self.concept: sample.truth},
                group="1 cross" if crosses == 1 else f"{crosses} crosses",
            )
            index += 1


@dataclass(frozen=True)
class Photographs:
    """A data set of photographs and the network trained on it.

    Of a data set without counterfactuals, the baseline is the mean colour: there are too few images
    for their mean to be smooth, and things lie anywhere in them.
    """

    name: str
    concept: str
    data: DataSet
    load: Callable[[], Any]
    column: int | None  # the network's logit of the concept; None if it gives absent and present
    size: int

    def subject(self) -> Subject:
        network = self.load()
        background, colour = _sampled(self.data)
        baseline = np.broadcast_to(colour[:, None, None], background[0].shape).astype(np.float32)
        model = _two_logits(network, self.column)
        return Subject(model, network.last, baseline, background, self.size, SEED)

    def positives(self, split: str, *, quick: bool) -> Iterator[Example]:
        model = _two_logits(self.load(), self.column)
        # Not split further: there are too few images for that.
        every = (replace(e, group="") for e in self.data.examples(split))
        there = (e for e in every if e.label(self.concept))
        found = (e for e in there if margins(model, e.image[None])[0] > 0)
        most = 2 if quick else VALIDATION if split == "validation" else None
        return islice(found, most)


def _sampled(data: DataSet) -> tuple[Any, Any]:
    """Return some training images of the first one's shape, and the mean colour of all.

    One pass: a whole training set may not fit into memory. Whatever its length, each image has the
    same chance to be kept.
    """
    rng, kept, colours = np.random.default_rng(SEED), [], []
    seen = 0
    for example in data.examples("training"):
        colours.append(example.image.mean(axis=(1, 2)))
        if kept and example.image.shape != kept[0].shape:
            continue
        seen += 1
        if len(kept) < BACKGROUNDS:
            kept.append(example.image)
        elif (place := int(rng.integers(seen))) < BACKGROUNDS:
            kept[place] = example.image
    return np.stack(kept), np.mean(colours, axis=0)


def _two_logits(network: nn.Module, column: int | None) -> nn.Module:
    return network if column is None else Column(network, column).eval()


def fitted(subject: Subject, example: Example) -> Subject:
    """Return the subject with the baseline of this image, and everything in its size."""
    shape = example.image.shape[1:]
    baseline = example.counterfactual
    if baseline is None:
        baseline = _resized(subject.baseline[None], shape)[0]
    return replace(
        subject,
        baseline=baseline,
        background=_resized(subject.background, shape),
        template=example.counterfactual is not None,
    )


def _resized(images: Any, shape: tuple[int, ...]) -> Any:
    if images.shape[2:] == shape:
        return images
    resized = nn.functional.interpolate(torch.from_numpy(images), shape, mode="bilinear")
    return resized.numpy()


def _around(corner: tuple[int, int]) -> Corners:
    row, column = corner
    return corner, (row + synthetic.SIDE, column + synthetic.SIDE)


def _malaria() -> Photographs:
    from benchmarks.datasets.malaria import Malaria
    from benchmarks.training.malaria import load as network

    return Photographs("malaria", "trophozoite", Malaria(), network, column=0, size=20)


def _platelets() -> Photographs:
    from benchmarks.datasets.platelets import CONCEPT, Platelets
    from benchmarks.training.platelets import load as network

    return Photographs("platelets", CONCEPT, Platelets(), network, column=0, size=16)


def _boards() -> Photographs:
    from benchmarks.datasets.boards import Boards
    from benchmarks.models.local import load as network

    return Photographs("boards", "defect", Boards(), network, column=None, size=16)


TASKS: dict[str, Callable[[], Task]] = {
    "synthetic": Synthetic,
    "malaria": _malaria,
    "platelets": _platelets,
    "boards": _boards,
}
