"""Questions of the experiment with the default call: images, classes, and networks to ask."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.core.folders import cache
from benchmarks.core.protocol import Example, Subject, UnknownNameError
from benchmarks.core.tasks import SEED, TASKS, Photographs, fitted
from benchmarks.datasets import coco, pets
from benchmarks.datasets.photographs import PHOTOGRAPHS
from benchmarks.experiments.gallery import FILLED
from benchmarks.methods.common import PRESENT, package
from benchmarks.models import efficientnet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Array = NDArray[Any]

SETS = {
    "coco-choosing": "choosing",
    "photographs": "choosing",
    "platelets-validation": "choosing",
    "boards-validation": "choosing",
    "coco-judging": "judging",
    "pets": "judging",
    "malaria": "judging",
    "platelets": "judging",
    "boards": "judging",
}
MOST = {"boards": 40}  # images; all, where a set is not named
PETS_EVERY = 2
CELL = 32  # pixels of an image for one place in the last layer of EfficientNet-lite0


@dataclass(frozen=True, eq=False)
class Question:
    """An image, the class to explain there, and the models to ask.

    `fronts` has the same network in each form that it comes in. `subject` is for peers: its model
    gives two logits, whose softmax is the score of the class by the function.
    """

    example: Example
    target: int
    subject: Subject
    fronts: dict[str, Any]

    @property
    def truth(self) -> NDArray[np.bool_]:
        """The pixels of the class."""
        return next(iter(self.example.truths.values()))

    def score(self, images: Array) -> Array:
        """Return the score of the class by the function, for each image."""
        return self.fronts["function"](images)[:, self.target]


def questions(name: str) -> Iterator[Question]:
    """Yield the questions of a set, always in the same order."""
    if name not in SETS:
        message = f"no set {name!r}; there are {', '.join(SETS)}"
        raise UnknownNameError(message)
    if name.startswith("coco"):
        detector = coco.Detector()
        for example, number in coco.questions(name.removeprefix("coco-"), detector):
            model = FromFunction(detector, number).eval()
            subject = _subject(model, model, example)
            yield Question(example, number, subject, {"function": detector})
    elif name in {"pets", "photographs"}:
        network = efficientnet.load()
        fronts = _fronts("efficientnet-lite0", network, (3, efficientnet.SIDE, efficientnet.SIDE))
        layer = cast("Any", network).network._conv_head  # noqa: SLF001, it has no other name
        asked = pets.questions(network, PETS_EVERY) if name == "pets" else _photographs()
        for example, number in asked:
            model = ClassAndRest(network, number).eval()
            yield Question(example, number, _subject(model, layer, example), fronts)
    else:
        yield from _of_task(name)


def _of_task(name: str) -> Iterator[Question]:
    task = cast("Photographs", TASKS[name.removesuffix("-validation")]())
    subject = task.subject()
    split = "validation" if name.endswith("validation") else "test"
    fronts = _fronts(task.name, subject.model, subject.baseline.shape)
    for example in task.positives(split, quick=False):
        yield Question(example, PRESENT, fitted(subject, example), fronts)


def _photographs() -> Iterator[tuple[Example, int]]:
    """Yield the photographs of scikit-image, but for things that fill them: any map is right."""
    for photograph in PHOTOGRAPHS:
        for asked in photograph.questions:
            name, truth = f"{photograph.name}, {asked.name}", asked.truth()
            if truth.mean() <= FILLED:
                boxes, truths = {asked.name: asked.boxes}, {asked.name: truth}
                yield Example(name, photograph.image(), boxes, truths), asked.index


def _subject(model: nn.Module, layer: nn.Module, example: Example) -> Subject:
    """Return what peers may use; the baseline is the image's mean colour."""
    colour = example.image.mean(axis=(1, 2), keepdims=True)
    baseline = np.broadcast_to(colour, example.image.shape).astype(np.float32)
    return Subject(model, layer, baseline, baseline[None], CELL, SEED)


def _fronts(name: str, network: nn.Module, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return a network as a torch module, as a function, and as a session of ONNX."""
    onnxruntime = package("onnxruntime")
    path = cache("default", f"{name}.onnx")
    free = {0: "images", 2: "height", 3: "width"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        torch.onnx.export(
            network.eval(),
            (torch.zeros(2, *shape),),
            str(path),
            input_names=["images"],
            output_names=["logits"],
            dynamic_axes={"images": free, "logits": {0: "images"}},
            dynamo=False,
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options)
    return {"torch": network, "function": Probabilities(network), "ONNX": session}


class ClassAndRest(nn.Module):
    """Two logits of a network: all other classes as one, and the class. Softmax stays the same."""

    def __init__(self, network: nn.Module, number: int) -> None:
        super().__init__()
        self.network, self.number = network, number

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits = self.network(images)
        others = torch.arange(logits.shape[1]) != self.number
        return torch.stack([logits[:, others].logsumexp(1), logits[:, self.number]], dim=1)


class FromFunction(nn.Module):
    """Two logits whose softmax is one score of a function, for peers that ask torch modules."""

    def __init__(self, function: Callable[[Array], Array], number: int) -> None:
        super().__init__()
        self.function, self.number = function, number

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        score = torch.from_numpy(self.function(images.numpy())[:, self.number]).double()
        present = torch.logit(score, eps=1e-7).float()
        return torch.stack([torch.zeros_like(present), present], dim=1)


@dataclass
class Probabilities:
    """A network as a function of arrays: images become probabilities (n, classes)."""

    network: nn.Module = field(repr=False)

    @torch.no_grad()
    def __call__(self, images: Array) -> Array:
        logits = self.network(torch.from_numpy(np.ascontiguousarray(images, np.float32)))
        return torch.softmax(logits, 1).numpy()
