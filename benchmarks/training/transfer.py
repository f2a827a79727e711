"""Train ResNet-18 as the paper does for malaria and traffic lights.

Run `python -m benchmarks.training.transfer traffic --imagenet resnet18.pth` (or `malaria`) from the
root of the repository. An interrupted run continues from its last epoch, with the same outcome as
an uninterrupted one. With --multi-label all concepts of the set are learnt at once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from benchmarks.core import folders
from benchmarks.models.resnet import ResNet18, load_imagenet, resnet18
from benchmarks.training.command import write_record
from benchmarks.training.judge import judge
from benchmarks.training.loop import Schedule, fit
from benchmarks.training.packed import packed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from benchmarks.core.protocol import DataSet, Example, Image
    from benchmarks.training.packed import Packed

SETS = ("traffic", "malaria")


@dataclass(frozen=True)
class Settings:
    """Hold how to train. Those that are not said to be ours are the paper's."""

    epochs: int = 25
    learning_rate: float = 1e-4
    decay: float = 0.2
    decay_every: int = 10
    weight_decay: float = 0.0
    multi_label: bool = False
    batch_size: int = 16  # ours
    patience: int = 10  # ours: the first decay always gets its chance
    seed: int = 0  # ours

    def rate(self, epoch: int) -> float:
        """Return the learning rate from the epoch's number alone, so that resuming agrees."""
        return self.learning_rate * self.decay ** ((epoch - 1) // self.decay_every)


PAPER = Settings()
PAPER_MULTI_LABEL = Settings(
    epochs=60, decay=0.7, decay_every=7, weight_decay=1e-5, multi_label=True
)


def run(dataset: DataSet, settings: Settings, imagenet: Path | None = None) -> dict[str, Any]:
    """Train on a data set, store the weights and return the figures."""
    concepts = learnt(dataset, settings)
    model = _start(settings, len(concepts), imagenet)
    with (
        packed(dataset.examples("training"), concepts) as training,
        packed(dataset.examples("validation"), concepts) as validation,
    ):
        _tell("training", training, concepts)
        _tell("validation", validation, concepts)
        key = {
            "name": _name(dataset.name, settings),
            "dataset": repr(dataset),
            "concepts": concepts,
            "settings": asdict(settings),
            "training_sha256": training.sha256,
            "validation_sha256": validation.sha256,
            "imagenet_sha256": imagenet and hashlib.sha256(imagenet.read_bytes()).hexdigest(),
            "device": _device(model).type,
        }
        trained = train(model, settings, training, validation, key)
    _store(model, key)
    return {
        **trained,
        "started_from": "ImageNet" if imagenet else "scratch",
        "torch": torch.__version__,
        "splits": {
            split: evaluate(model, dataset.examples(split), concepts, settings)
            for split in ("validation", "test")
        },
    }


def learnt(dataset: DataSet, settings: Settings) -> list[str]:
    """Return the concepts to learn: the first one alone, unless all are learnt at once."""
    return list(dataset.concepts if settings.multi_label else dataset.concepts[:1])


def train(
    model: ResNet18,
    settings: Settings,
    training: Packed,
    validation: Packed,
    key: dict[str, Any],
) -> dict[str, Any]:
    """Train until the validation loss stops improving; leave the best weights in the model."""
    optimiser = torch.optim.Adam(
        model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    return fit(
        model,
        optimiser,
        Schedule(settings.epochs, settings.patience),
        train_epoch=lambda epoch: _train_epoch(model, optimiser, training, settings, epoch),
        validate=lambda: _loss_over(model, validation, settings),
        key=key,
    )


def _start(settings: Settings, concepts: int, imagenet: Path | None) -> ResNet18:
    torch.manual_seed(settings.seed)
    model = resnet18(concepts if settings.multi_label else 2)
    if imagenet is None:
        print("no --imagenet: starting from random weights, unlike the paper")
    else:
        load_imagenet(model, imagenet)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def _train_epoch(
    model: ResNet18,
    optimiser: torch.optim.Optimizer,
    training: Packed,
    settings: Settings,
    epoch: int,
) -> float:
    rng = np.random.default_rng([settings.seed, epoch])
    for group in optimiser.param_groups:
        group["lr"] = settings.rate(epoch)
    total = 0.0
    for rows in _batches(rng.permutation(len(training)), settings.batch_size):
        images = [_flipped(training.image(row), rng) for row in rows]
        loss = _loss(logits(model, images), training.labels[rows], settings)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.item() * len(rows)
    return total / len(training)


def _loss_over(model: ResNet18, split: Packed, settings: Settings) -> float:
    total = 0.0
    for rows in _batches(np.arange(len(split)), settings.batch_size):
        answers = logits(model, [split.image(row) for row in rows])
        total += _loss(answers, split.labels[rows], settings).item() * len(rows)
    return total / len(split)


def _batches(rows: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _flipped(image: Image, rng: np.random.Generator) -> Image:
    return image[:, :, ::-1] if rng.random() < 0.5 else image


def logits(model: ResNet18, images: Sequence[Image]) -> Tensor:
    """Return the logits (images, classes), whether or not the images are of one size."""
    rows: dict[tuple[int, ...], list[int]] = {}
    for row, image in enumerate(images):
        rows.setdefault(image.shape, []).append(row)
    stacks = (np.stack([images[row] for row in alike]) for alike in rows.values())
    answers = torch.cat([model(torch.from_numpy(stack).to(_device(model))) for stack in stacks])
    order = np.argsort(np.concatenate(list(rows.values())))
    return answers[torch.from_numpy(order).to(answers.device)]


def _loss(answers: Tensor, labels: NDArray[np.bool_], settings: Settings) -> Tensor:
    truth = torch.from_numpy(labels).to(answers.device)
    if settings.multi_label:
        return binary_cross_entropy_with_logits(answers, truth.to(answers.dtype))
    return cross_entropy(answers, truth[:, 0].long())


@torch.no_grad()
def evaluate(
    model: ResNet18, examples: Iterable[Example], concepts: Sequence[str], settings: Settings
) -> dict[str, Any]:
    """Judge each concept on a split, which is read a batch at a time."""
    stream, scores, labels = iter(examples), [], []
    while batch := list(islice(stream, settings.batch_size)):
        answers = logits(model, [example.image for example in batch]).cpu().numpy()
        scores.append(answers if settings.multi_label else answers[:, 1:] - answers[:, :1])
        labels += [[example.label(concept) for concept in concepts] for example in batch]
    columns = zip(np.concatenate(scores).T, np.array(labels).T, strict=True)
    return {
        concept: judge(*column, settings.seed)
        for concept, column in zip(concepts, columns, strict=True)
    }


def weights_path(name: str, settings: Settings = PAPER) -> Path:
    """Return where the weights of a data set lie; not in git, since they take 45 MB."""
    return folders.cache("weights", f"{_name(name, settings)}.safetensors")


def trained_model(name: str, classes: int = 2, settings: Settings = PAPER) -> ResNet18:
    """Return the network that was last trained on a data set, in evaluation mode."""
    path = weights_path(name, settings)
    if not path.exists():
        message = f"no weights in {path}; run python -m benchmarks.training.transfer {name}"
        raise folders.MissingDataError(message)
    model = resnet18(classes)
    model.load_state_dict(load_file(path))
    return model.eval()


def _store(model: ResNet18, key: dict[str, Any]) -> None:
    path = folders.cache("weights", f"{key['name']}.safetensors")
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights, path, metadata={"key": json.dumps(key)})
    print(f"weights are in {path}")


def _name(name: str, settings: Settings) -> str:
    return f"{name}-resnet18" + ("-multi_label" if settings.multi_label else "")


def _device(model: ResNet18) -> torch.device:
    return model.fc.weight.device


def _tell(split: str, images: Packed, concepts: Sequence[str]) -> None:
    counts = zip(images.labels.sum(axis=0), concepts, strict=True)
    with_each = ", ".join(f"{count} with {concept}" for count, concept in counts)
    size = images.pixels.nbytes / 1e9
    print(f"{split}: {len(images)} images, {with_each}; {size:.1f} GB on disk", flush=True)


def dataset_named(name: str, factor: int | None = None) -> DataSet:
    """Return a data set; without a factor its images are averaged as its reader does by default."""
    options = {} if factor is None else {"factor": factor}
    if name == "malaria":
        from benchmarks.datasets.malaria import Malaria

        return Malaria(**options)
    from benchmarks.datasets.traffic import Traffic

    return Traffic(**options)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train ResNet-18 as the paper does.")
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--imagenet", type=Path, help="published weights, .pth or .safetensors")
    parser.add_argument("--multi-label", action="store_true", help="learn all concepts at once")
    parser.add_argument("--factor", type=int, help="average over blocks of this side")
    for name in ("epochs", "patience", "batch_size", "seed"):
        parser.add_argument("--" + name.replace("_", "-"), type=int)
    given = vars(parser.parse_args(words))
    name, factor, imagenet = given.pop("set"), given.pop("factor"), given.pop("imagenet")
    paper = PAPER_MULTI_LABEL if given.pop("multi_label") else PAPER
    chosen = {option: value for option, value in given.items() if value is not None}
    settings = replace(paper, **chosen)
    try:
        figures = run(dataset_named(name, factor), settings, imagenet)
    except folders.MissingDataError as error:
        raise SystemExit(str(error)) from None
    path = folders.RESULTS / f"train_{_name(name, settings).replace('-', '_')}.json"
    write_record(path, figures)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
