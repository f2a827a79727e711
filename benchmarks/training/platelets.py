"""Train the network of the platelets; run `python -m benchmarks.training.platelets`.

It sees windows of the training photographs, and learns at each place of a window: the boxes of the
training images are used, as on malaria smears. Three windows of ten are drawn around a platelet,
and about as many around places that the network takes for one. Platelets and other spots, cut from
the training images, are pasted into some windows, turned and blended. Half the windows are hidden
in part by the mean colour, as an explanation hides them.

Validation images choose the epoch and the calibration. Test images are judged once, at the end.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from benchmarks.core.folders import RESULTS, WEIGHTS
from benchmarks.datasets.platelets import CONCEPT, LEFT_OUT, Platelets, files
from benchmarks.models.compact import Compact, folded
from benchmarks.training.command import chosen_settings, write_record
from benchmarks.training.judge_platelets import games, on_photographs
from benchmarks.training.loop import Schedule, fit
from benchmarks.training.malaria import calibrate, false_alarms, loss_of
from benchmarks.training.smears import Material, Scene, Smear, hidden, stained, turned, window

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray
    from torch import Tensor

    from benchmarks.core.protocol import Corners, Image
    from benchmarks.training.smears import Alarms

BUNDLE = WEIGHTS / "platelets.safetensors"
RECORD = RESULTS / "train_platelets.json"
LABELS = "the boxes of the training images say which places of a window show a platelet"
CONCEPTS = (CONCEPT,)
OTHER = "other"  # spots cut from anywhere else, so that a pasted edge alone says nothing


@dataclass(frozen=True)
class Settings:
    """All that determines the weights."""

    seed: int = 0
    factor: int = 2
    epochs: int = 24
    patience: int = 12
    batches: int = 40
    batch_size: int = 24
    side: int = 96
    learning_rate: float = 2e-3
    weight_decay: float = 1e-3
    threads: int = 1


def material(split: str, factor: int) -> Material:
    """Read the photographs with all their boxes, and cut platelets and other spots from them."""
    data, smears = Platelets(factor), []
    for folder, name in files(split):
        if name not in LEFT_OUT:
            image = data.example(folder, name).image
            named = data.boxes(folder, name, image).items()
            boxes = tuple((kind, box) for kind, listed in named for box in listed)
            smears.append(Smear(image, boxes))
    colour = np.mean([smear.image.mean((1, 2)) for smear in smears], axis=0)
    mean = colour[:, None, None].astype(np.float32)
    rng = np.random.default_rng(0)
    cells: dict[str, list[Image]] = {CONCEPT: [], OTHER: []}
    for smear in smears:
        for box in platelets(smear):
            cells[CONCEPT].append(_cut(smear.image, box))
            cells[OTHER].append(_cut(smear.image, _elsewhere(rng, smear, box)))
    return Material(tuple(smears), cells, mean)


def platelets(smear: Smear) -> list[Corners]:
    return [box for kind, box in smear.boxes if kind == CONCEPT]


def _cut(image: Image, box: Corners) -> Image:
    (top, left), (bottom, right) = box
    return image[:, top:bottom, left:right].copy()


def _elsewhere(rng: Generator, smear: Smear, box: Corners) -> Corners:
    """Return a box of the same size that overlaps no platelet."""
    size = np.subtract(box[1], box[0])
    while True:
        corner = rng.integers(np.array(smear.image.shape[1:]) - size + 1)
        end = corner + size
        if not any((corner < b).all() and (end > a).all() for a, b in platelets(smear)):
            return (int(corner[0]), int(corner[1])), (int(end[0]), int(end[1]))


def draw(rng: Generator, given: Material, alarms: Alarms, side: int) -> Scene:
    """Draw a window, and paste, stain and hide at random."""
    which = int(rng.integers(len(given.smears)))
    smear = given.smears[which]
    room = np.array(smear.image.shape[1:]) - side
    corner = np.clip(_corner(rng, smear, alarms[which], side), 0, room)
    scene = window(smear, corner, side)
    if rng.random() < 0.4:
        for kind in rng.choice([CONCEPT, OTHER], int(rng.integers(1, 4))):
            among = given.cells[str(kind)]
            scene.paste(rng, str(kind), turned(rng, among[int(rng.integers(len(among)))]))
    if rng.random() < 0.5:
        scene.image = stained(rng, scene.image)
    if rng.random() < 0.5:
        scene.hide(hidden(rng, side), given.mean)
    return scene


def _corner(
    rng: Generator, smear: Smear, alarms: NDArray[np.int64], side: int
) -> NDArray[np.int64]:
    chance, found = rng.random(), platelets(smear)
    if found and chance < 0.5:
        (top, left), (bottom, right) = found[int(rng.integers(len(found)))]
        middle = np.array([top + bottom, left + right]) // 2
        return middle - rng.integers(12, side - 12, 2)
    if len(alarms) and chance > 0.7:
        return rng.choice(alarms) - rng.integers(12, side - 12, 2)
    return rng.integers(np.array(smear.image.shape[1:]) - side + 1)


def batch(
    rng: Generator, given: Material, alarms: Alarms, settings: Settings
) -> tuple[Tensor, Tensor]:
    """Draw windows; return their images and the targets of their places."""
    scenes = [draw(rng, given, alarms, settings.side) for _ in range(settings.batch_size)]
    images = np.stack([scene.image for scene in scenes])
    targets = np.stack([scene.targets(CONCEPTS) for scene in scenes])
    return torch.from_numpy(images), torch.from_numpy(targets)


def train(settings: Settings) -> tuple[Compact, dict[str, Any]]:
    """Train; return the folded network and how it went."""
    torch.manual_seed(settings.seed)
    given, held = (material(split, settings.factor) for split in ("training", "validation"))
    model = Compact(len(CONCEPTS), norm=True)
    optimiser = torch.optim.AdamW(
        model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
    )
    nowhere = (np.zeros((0, 2), dtype=np.int64),) * len(held.smears)
    rng = np.random.default_rng(settings.seed)
    fixed = [batch(rng, held, nowhere, settings) for _ in range(6)]

    def train_epoch(number: int) -> float:
        rng = np.random.default_rng((settings.seed, number))
        alarms = false_alarms(model, given, CONCEPTS)
        losses = []
        for step in range(settings.batches):
            for group in optimiser.param_groups:
                group["lr"] = rate(settings, number - 1 + step / settings.batches)
            loss = loss_of(model, *batch(rng, given, alarms, settings), half=False)
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
        key={"name": "platelets", "labels": LABELS} | asdict(settings),
    )
    return folded(model), outcome


def rate(settings: Settings, epoch: float) -> float:
    """Warm up for one epoch, then fall along half a cosine."""
    fall = (1 + math.cos(math.pi * epoch / settings.epochs)) / 2
    return settings.learning_rate * min(1.0, epoch + 0.05) * fall


def load() -> Compact:
    """Return the trained network in evaluation mode; its `last` layer still has places."""
    model = Compact(len(CONCEPTS))
    model.load_state_dict(load_file(BUNDLE))
    return model.eval()


def run(settings: Settings) -> dict[str, Any]:
    """Train, write the weights and return the figures."""
    torch.set_num_threads(settings.threads)
    model, outcome = train(settings)
    # Of images that it was not trained on, whose scores are not better than those to come.
    calibrate(model, list(Platelets(settings.factor).examples("validation")), CONCEPTS)
    BUNDLE.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, BUNDLE)
    model = load()
    options = {"factor": settings.factor, "seed": settings.seed}
    return {
        "settings": asdict(settings),
        "labels": LABELS,
        "left_out": LEFT_OUT,
        "epochs": outcome["epoch"],
        "best_epoch": outcome["best_epoch"],
        "validation_loss": outcome["best_loss"],
        "seconds": round(outcome["seconds"], 1),
        "torch": torch.__version__,
        "parameters": sum(value.numel() for value in model.parameters()),
        "games_on_validation": games(
            model, material("training", settings.factor).mean, factor=settings.factor
        ),
        **{
            split: on_photographs(model, split, **options)
            for split in ("training", "validation", "test")
        },
        "history": outcome["history"],
    }


def main() -> None:
    results = run(chosen_settings(Settings(), "Train the network of the platelets."))
    write_record(RECORD, results)
    shown = ("games_on_validation", "validation", "test")
    print(json.dumps({name: results[name] for name in shown}, indent=2))


if __name__ == "__main__":
    main()
