"""Train the network of the malaria images; run `python -m benchmarks.training.malaria`.

It sees scenes drawn from the training images, and learns at each place of a scene: see smears.py.

The test images serve to report the outcome, not to choose the epoch or the calibration. But the
test figures of one earlier run were seen before `sharpness` and `smears.ODDS` got their values.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.core.folders import RESULTS, WEIGHTS
from benchmarks.datasets.malaria import CONCEPTS, Malaria
from benchmarks.models.compact import STRIDE, Compact, folded
from benchmarks.training.command import chosen_settings, write_record
from benchmarks.training.judge_smears import on_cells, on_smears, scores
from benchmarks.training.loop import Schedule, fit
from benchmarks.training.smears import draw, material, mean_image, smears

if TYPE_CHECKING:
    from numpy.random import Generator
    from torch import Tensor

    from benchmarks.core.protocol import Example, Image
    from benchmarks.training.smears import Alarms, Material

BUNDLE = WEIGHTS / "malaria.safetensors"
RECORD = RESULTS / "train_malaria.json"


@dataclass(frozen=True)
class Settings:
    """All that determines the weights."""

    seed: int = 0
    factor: int = 4
    epochs: int = 60
    patience: int = 20
    batches: int = 60
    batch_size: int = 32
    side: int = 96
    pasted: int = 4
    learning_rate: float = 2e-3
    weight_decay: float = 1e-3
    threads: int = 1


def batch(
    rng: Generator, given: Material, alarms: Alarms, settings: Settings
) -> tuple[Tensor, Tensor]:
    """Draw scenes; return their images and the targets of their places."""
    scenes = [
        draw(rng, given, alarms, side=settings.side, pasted=settings.pasted)
        for _ in range(settings.batch_size)
    ]
    images = np.stack([scene.image for scene in scenes])
    targets = np.stack([scene.targets() for scene in scenes])
    return torch.from_numpy(images), torch.from_numpy(targets)


def loss_of(model: Compact, images: Tensor, targets: Tensor, *, half: bool = True) -> Tensor:
    """Add the focal loss of the places to the loss of the images as a whole.

    Next to all places show nothing and are soon known to: the focal loss (Lin et al. 2017) lets
    them count for little. The mean over the worst of them alone did not learn at all.
    """
    # Half the time on a processor that knows bfloat16; elsewhere the same, up to ten times slower.
    with torch.autocast("cpu", torch.bfloat16, enabled=half and model.training):
        places = model.places(images)
    places = places.float()
    there, known = (targets == 1).float(), (targets != -1).float()
    errors = binary_cross_entropy_with_logits(places, there, reduction="none")
    wrong = (there - torch.sigmoid(places)).abs()
    focal = (wrong**2 * errors * known).sum((0, 2, 3)) / there.sum((0, 2, 3)).clamp(min=8)
    shown = there.flatten(2).amax(2)
    # Where only parts of a cell are in sight, neither answer would be wrong.
    certain = shown.maximum(known.flatten(2).amin(2))
    whole = binary_cross_entropy_with_logits(model.pool(places), shown, reduction="none")
    return focal.mean() + 0.3 * (whole * certain).sum() / certain.sum().clamp(min=1)


@torch.no_grad()
def false_alarms(
    model: Compact, given: Material, concepts: tuple[str, ...] = CONCEPTS, count: int = 24
) -> Alarms:
    """Return the pixels of the highest answers where a concept is not, of each smear."""
    model.eval()
    found = []
    for smear in given.smears:
        places = model.places(torch.from_numpy(smear.image)[None])[0]
        for category, ((top, left), (bottom, right)) in smear.boxes:
            if category in concepts:
                rows = slice(top // STRIDE, -(-bottom // STRIDE) + 1)
                columns = slice(left // STRIDE, -(-right // STRIDE) + 1)
                places[concepts.index(category), rows, columns] = -math.inf
        highest = places.amax(0)
        order = highest.flatten().topk(count).indices.numpy()
        found.append(np.stack(np.unravel_index(order, highest.shape), 1) * STRIDE)
    model.train()
    return tuple(found)


def train(settings: Settings) -> tuple[Compact, dict[str, Any]]:
    """Train; return the folded network and how it went."""
    torch.manual_seed(settings.seed)
    mean = mean_image(smears("training", settings.factor))
    given, held = (material(split, settings.factor, mean) for split in ("training", "validation"))
    model = Compact(len(CONCEPTS), norm=True)
    optimiser = torch.optim.AdamW(
        model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
    )
    rng = np.random.default_rng(settings.seed)
    nowhere = (np.zeros((0, 2), dtype=np.int64),) * len(held.smears)
    fixed = [batch(rng, held, nowhere, settings) for _ in range(8)]

    def train_epoch(number: int) -> float:
        rng = np.random.default_rng((settings.seed, number))
        alarms = false_alarms(model, given)
        losses = []
        for step in range(settings.batches):
            for group in optimiser.param_groups:
                group["lr"] = rate(settings, number - 1 + step / settings.batches)
            loss = loss_of(model, *batch(rng, given, alarms, settings))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        return float(np.mean(losses))

    outcome = fit(
        model,
        optimiser,
        Schedule(settings.epochs, settings.patience),
        train_epoch=train_epoch,
        validate=lambda: float(np.mean([loss_of(model, *pair).item() for pair in fixed])),
        key={"name": "malaria", "mean": _digest(mean)} | asdict(settings),
    )
    return folded(model), outcome


def _digest(image: Image) -> str:
    return hashlib.sha256(image.tobytes()).hexdigest()


def rate(settings: Settings, epoch: float) -> float:
    """Warm up for one epoch, then fall along half a cosine."""
    fall = (1 + math.cos(math.pi * epoch / settings.epochs)) / 2
    return settings.learning_rate * min(1.0, epoch + 0.05) * fall


def calibrate(
    model: Compact, examples: list[Example], concepts: tuple[str, ...] = CONCEPTS
) -> None:
    """Scale and shift the answers so that 0 divides whole images, in place.

    Scenes are smaller than images and show parasites more often, so that the network leans towards
    finding one. The smoothed labels are Platt's: with few images, none is beyond doubt.
    """
    with torch.no_grad():
        places = [model.places(torch.from_numpy(example.image)[None])[0] for example in examples]
    labels = torch.tensor(
        [[example.label(concept) for concept in concepts] for example in examples]
    )
    positive, negative = labels.sum(0), (~labels).sum(0)
    wanted = torch.where(labels, (positive + 1) / (positive + 2), 1 / (negative + 2))
    gain, shift = torch.ones(len(concepts)), torch.zeros(len(concepts))
    optimiser = torch.optim.LBFGS(
        [gain.requires_grad_(), shift.requires_grad_()], max_iter=100, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        changed = [gain[:, None, None] * place + shift[:, None, None] for place in places]
        pooled = torch.stack([model.pool(place[None])[0] for place in changed])
        loss = binary_cross_entropy_with_logits(pooled, wanted)
        loss.backward()
        return loss

    optimiser.step(closure)
    with torch.no_grad():
        model.head.weight.mul_(gain[:, None, None, None])
        model.head.bias.mul_(gain).add_(shift)


def load() -> Compact:
    """Return the trained network in evaluation mode; its `last` layer still has places."""
    model = Compact(len(CONCEPTS))
    model.load_state_dict(load_file(BUNDLE))
    return model.eval()


def run(settings: Settings) -> dict[str, Any]:
    """Train, write the weights and return the figures."""
    torch.set_num_threads(settings.threads)
    model, outcome = train(settings)
    data = Malaria(settings.factor)
    calibrate(model, [*data.examples("training"), *data.examples("validation")])
    BUNDLE.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, BUNDLE)
    model = load()
    mean = mean_image(smears("training", settings.factor))
    options = {"factor": settings.factor, "seed": settings.seed}
    empty = 1 / (1 + np.exp(-scores(model, [mean])[0]))
    return {
        "settings": asdict(settings),
        "epochs": outcome["epoch"],
        "best_epoch": outcome["best_epoch"],
        "validation_loss": outcome["best_loss"],
        "seconds": round(outcome["seconds"], 1),
        "torch": torch.__version__,
        "parameters": sum(value.numel() for value in model.parameters()),
        "mean_image_probability": dict(zip(CONCEPTS, empty.tolist(), strict=True)),
        "single_cells": {
            split: on_cells(model, split, mean, **options) for split in ("validation", "test")
        },
        **{
            split: on_smears(model, split, **options)
            for split in ("training", "validation", "test")
        },
    }


def main() -> None:
    results = run(chosen_settings(Settings(), "Train the network of the malaria images."))
    write_record(RECORD, results)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
