"""Train the network of the malaria images; run `python -m benchmarks.training.malaria`.

Scenes are drawn from the training images: a window, with single cells of other images of the set
pasted into it, so that stages, stains and neighbours come in more combinations than a few smears
hold. Boxes say where each concept is, so the network learns at each place and not from the label
of the scene alone. Half the windows are drawn around what the network takes for a parasite: an
image has a hundred cells, and one false alarm among them makes it positive.

An explanation hides parts of an image by the mean training image. Half the scenes are hidden alike,
by rectangles or all but rectangles: a network that had never seen that might answer anything.

The test images serve to report what came out, not to choose the epoch or the calibration. But the
test figures of one earlier run were seen before `sharpness` and ODDS got their values.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import avg_pool2d, binary_cross_entropy_with_logits, interpolate

from benchmarks.datasets.malaria import CONCEPTS, Malaria, cells, entries
from benchmarks.folders import RESULTS, WEIGHTS
from benchmarks.models.compact import STRIDE, Compact, folded
from benchmarks.training.judge import judge
from benchmarks.training.loop import Schedule, fit

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray
    from torch import Tensor

    from benchmarks.protocol import Corners, Example, Image

    Alarms = tuple[NDArray[np.int64], ...]

BUNDLE = WEIGHTS / "malaria.safetensors"
FIGURES = RESULTS / "train_malaria.json"

ODDS = {"red_blood_cell": 0.38, "trophozoite": 0.28, "ring": 0.22, "schizont": 0.12}
BORDER = 12  # pixels along the border of a smear, whose cut cells nobody labelled
CENTRE = 6  # pixels around the middle of a box whose places must answer
NOBODY, UNKNOWN = 0, -1  # owners of pixels beside the numbers of things


@dataclass(frozen=True)
class Settings:
    """Hold what determines the weights."""

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


@dataclass(frozen=True, eq=False)
class Smear:
    """Hold a smear (3, height, width) and all its boxes, of whatever category."""

    image: Image
    boxes: tuple[tuple[str, Corners], ...]


@dataclass(frozen=True, eq=False)
class Material:
    """Hold what scenes are drawn from; `mean` stands in for what is hidden."""

    smears: tuple[Smear, ...]
    cells: dict[str, list[Image]]
    mean: Image


def smears(split: str, factor: int) -> tuple[Smear, ...]:
    data, found = Malaria(factor), []
    for example, (_, entry) in zip(data.examples(split), entries(split), strict=True):
        named = data.boxes(entry, example.image.shape[1:]).items()
        boxes = tuple((category, box) for category, listed in named for box in listed)
        found.append(Smear(example.image, boxes))
    return tuple(found)


def material(split: str, factor: int, mean: Image) -> Material:
    by_kind: dict[str, list[Image]] = {kind: [] for kind in ODDS}
    for cell in cells(split, factor):
        by_kind[cell.kind].append(cell.image)
    return Material(smears(split, factor), by_kind, mean)


def mean_image(given: tuple[Smear, ...]) -> Image:
    """Average the images of the most frequent shape."""
    shapes = [smear.image.shape for smear in given]
    usual = max(sorted(set(shapes)), key=shapes.count)
    same = [smear.image for smear in given if smear.image.shape == usual]
    return np.mean(same, axis=0, dtype=np.float32)


# Drawing scenes


@dataclass(eq=False)
class Scene:
    """Hold an image in the making, the things in it and whose each of its pixels is.

    A thing is its category, its box and how many pixels it had before others came to lie on it.
    """

    image: Image
    owners: NDArray[np.int16]
    things: list[tuple[str, Corners, int]] = field(default_factory=list)

    def add(self, category: str, box: Corners, shape: NDArray[np.bool_]) -> None:
        """Add a thing of a shape as large as its box, which may reach out of the image."""
        (top, left), (bottom, right) = box
        self.things.append((category, box, int(shape.sum())))
        part = self.owners[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
        inside = shape[max(-top, 0) :, max(-left, 0) :][: part.shape[0], : part.shape[1]]
        part[inside] = len(self.things)

    def paste(self, rng: Generator, kind: str, cell: Image) -> None:
        """Paste a cell at random, its edges blended, its background brought near the image's."""
        height, width = cell.shape[1:]
        top, left = (
            int(rng.integers(max(whole - part, 0) + 1))
            for whole, part in zip(self.owners.shape, (height, width), strict=True)
        )
        part = self.image[:, top : top + height, left : left + width]
        if rng.random() < 0.6:
            ratio = _background(self.image[:, ::4, ::4]) / _background(cell[:, ::2, ::2])
            cell = cell * np.clip(ratio, 0.7, 1.5) ** rng.uniform(0.5, 1)
        cell = np.clip(cell * rng.uniform(0.92, 1.08), 0, 1)
        blend = _blend(height, width, oval=rng.random() < 0.7)
        within = blend[: part.shape[1], : part.shape[2]]
        part += within * (cell[:, : part.shape[1], : part.shape[2]] - part)
        self.add(kind, ((top, left), (top + height, left + width)), blend > 0.5)

    def hide(self, where: NDArray[np.bool_], stand_in: Image) -> None:
        self.image = np.where(where, stand_in, self.image)
        self.owners[where] = NOBODY

    def targets(self) -> NDArray[np.int8]:
        """Return 1 where a concept is, 0 where not, -1 where nobody can say (concepts, places).

        Nobody can say off the centre of a cell, nor if about half of it is hidden.
        """
        rows, columns = (np.arange(-(-size // STRIDE)) * STRIDE for size in self.owners.shape)
        targets = np.zeros((len(CONCEPTS), len(rows), len(columns)), dtype=np.int8)
        targets[:, self.owners[::STRIDE, ::STRIDE] == UNKNOWN] = -1
        seen = np.bincount(np.maximum(self.owners, 0).ravel(), minlength=len(self.things) + 1)
        for number, (category, ((top, left), (bottom, right)), area) in enumerate(self.things, 1):
            if category not in CONCEPTS or seen[number] < 0.15 * area:
                continue
            target = targets[CONCEPTS.index(category)]
            down = abs(rows - (top + bottom) / 2)[:, None]
            along = abs(columns - (left + right) / 2)
            within = (down <= (bottom - top) / 2 + 2) & (along <= (right - left) / 2 + 2)
            target[within & (target == 0)] = -1
            if seen[number] > 0.65 * area:
                target[(down <= CENTRE) & (along <= CENTRE)] = 1
        return targets


def draw(rng: Generator, given: Material, alarms: Alarms, settings: Settings) -> Scene:
    """Draw a scene; `alarms` holds the pixels (n, 2) of each smear to look at again."""
    which, side = int(rng.integers(len(given.smears))), settings.side
    smear = given.smears[which]
    room = np.array(smear.image.shape[1:]) - side
    corner = rng.integers(room + 1)
    if len(alarms[which]) and rng.random() < 0.5:
        corner = rng.choice(alarms[which]) - rng.integers(16, side - 16, 2)
    scene = window(smear, np.clip(corner, 0, room), side)
    if rng.random() < 0.75:
        for kind in rng.choice(
            list(ODDS), int(rng.integers(1, 2 * settings.pasted)), p=[*ODDS.values()]
        ):
            among = given.cells[str(kind)]
            scene.paste(rng, str(kind), _turned(rng, among[int(rng.integers(len(among)))]))
    scene.image = stained(rng, scene.image)
    if rng.random() < 0.5:
        top, left = (int(rng.integers(size - side + 1)) for size in given.mean.shape[1:])
        stand_in = given.mean[:, top : top + side, left : left + side]
        flat = stand_in.mean((1, 2), keepdims=True)
        scene.hide(_hidden(rng, side), flat if rng.random() < 0.3 else stand_in)
    return scene


def window(smear: Smear, corner: NDArray[np.int64], side: int) -> Scene:
    """Cut a window out of a smear, with the cells that lie in it."""
    top, left = (int(at) for at in corner)
    height, width = smear.image.shape[1:]
    owners = np.full((height, width), UNKNOWN, dtype=np.int16)
    owners[BORDER : height - BORDER, BORDER : width - BORDER] = NOBODY
    cut = np.s_[top : top + side, left : left + side]
    scene = Scene(smear.image[:, *cut].copy(), owners[cut].copy())
    for category, (start, stop) in smear.boxes:
        (t, u), (v, w) = (np.subtract(end, corner).tolist() for end in (start, stop))
        if max(t, u) < side and min(v, w) > 0:
            scene.add(category, ((t, u), (v, w)), np.ones((v - t, w - u), dtype=bool))
    return scene


def _background(image: Image) -> NDArray[np.floating]:
    """Return the colour of what is bright, (3, 1, 1)."""
    return np.maximum(np.percentile(image, 92, axis=(1, 2), keepdims=True), 0.2)


def _blend(height: int, width: int, *, oval: bool) -> NDArray[np.float32]:
    """Return how much of a pasted cell is seen at each pixel, less towards its edge."""
    rows = ((np.arange(height) + 0.5) * 2 / height - 1)[:, None]
    columns = (np.arange(width) + 0.5) * 2 / width - 1
    away = np.hypot(rows, columns) - 0.15 if oval else np.maximum(abs(rows), abs(columns))
    return np.clip((1 - away) / 0.2, 0, 1).astype(np.float32)


def _turned(rng: Generator, cell: Image) -> Image:
    cell = np.rot90(cell, int(rng.integers(4)), (1, 2))
    cell = cell[:, :, ::-1] if rng.random() < 0.5 else cell
    if rng.random() < 0.3:
        size = [max(8, round(length * rng.uniform(0.8, 1.25))) for length in cell.shape[1:]]
        given = torch.from_numpy(cell.copy())[None]
        cell = interpolate(given, size, mode="bilinear", antialias=True)[0].numpy()
    return cell


def _hidden(rng: Generator, side: int) -> NDArray[np.bool_]:
    """Hide some rectangles, or all but those."""
    mask = np.zeros((side, side), dtype=bool)
    for _ in range(int(rng.integers(1, 5))):
        height, width = (int(length) for length in rng.integers(16, side // 2 + 24, 2))
        top, left = int(rng.integers(side - height + 1)), int(rng.integers(side - width + 1))
        mask[top : top + height, left : left + width] = True
    return mask if rng.random() < 0.5 else ~mask


def stained(rng: Generator, image: Image) -> Image:
    """Change stain and focus: smears differ in them more than we have smears."""
    grey = image.mean(0)
    image = np.clip(grey + (image - grey) * rng.uniform(0.6, 1.4), 1e-3, 1)
    bend = rng.uniform(0.75, 1.35) * rng.uniform(0.85, 1.18, (3, 1, 1))
    gain = rng.uniform(0.85, 1.08) * rng.uniform(0.93, 1.07, (3, 1, 1))
    image = np.clip(image ** bend.astype(np.float32) * gain, 0, 1).astype(np.float32)
    if rng.random() < 0.2:
        image = avg_pool2d(torch.from_numpy(image), 3, 1, 1, count_include_pad=False).numpy()
    return image


def batch(
    rng: Generator, given: Material, alarms: Alarms, settings: Settings
) -> tuple[Tensor, Tensor]:
    """Draw scenes; return their images and the targets of their places."""
    scenes = [draw(rng, given, alarms, settings) for _ in range(settings.batch_size)]
    images = np.stack([scene.image for scene in scenes])
    targets = np.stack([scene.targets() for scene in scenes])
    return torch.from_numpy(images), torch.from_numpy(targets)


# Training


def loss_of(model: Compact, images: Tensor, targets: Tensor) -> Tensor:
    """Add the focal loss of the places to the loss of the images as a whole.

    Next to all places show nothing and are soon known to: the focal loss (Lin et al. 2017) lets
    them count for little. The mean over the worst of them alone did not learn at all.
    """
    # Half the time on a processor that knows bfloat16; elsewhere the same, slower.
    with torch.autocast("cpu", torch.bfloat16, enabled=model.training):
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
def false_alarms(model: Compact, given: Material, count: int = 24) -> Alarms:
    """Return the pixels of the highest answers where a concept is not, of each smear."""
    model.eval()
    found = []
    for smear in given.smears:
        places = model.places(torch.from_numpy(smear.image)[None])[0]
        for category, ((top, left), (bottom, right)) in smear.boxes:
            if category in CONCEPTS:
                rows = slice(top // STRIDE, -(-bottom // STRIDE) + 1)
                columns = slice(left // STRIDE, -(-right // STRIDE) + 1)
                places[CONCEPTS.index(category), rows, columns] = -math.inf
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


def calibrate(model: Compact, examples: list[Example]) -> None:
    """Scale and shift the answers so that 0 divides whole images, in place.

    Scenes are smaller than images and show parasites more often, so that the network leans towards
    finding one. The smoothed labels are Platt's: with few images, none is beyond doubt.
    """
    with torch.no_grad():
        places = [model.places(torch.from_numpy(example.image)[None])[0] for example in examples]
    labels = torch.tensor(
        [[example.label(concept) for concept in CONCEPTS] for example in examples]
    )
    positive, negative = labels.sum(0), (~labels).sum(0)
    wanted = torch.where(labels, (positive + 1) / (positive + 2), 1 / (negative + 2))
    gain, shift = torch.ones(len(CONCEPTS)), torch.zeros(len(CONCEPTS))
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


# What came out


def load() -> Compact:
    """Return the trained network in evaluation mode; its `last` layer still has places."""
    model = Compact(len(CONCEPTS))
    model.load_state_dict(load_file(BUNDLE))
    return model.eval()


@torch.no_grad()
def scores(model: Compact, images: list[Image]) -> NDArray[np.float64]:
    """Return the logits (n, concepts) of images of any shapes."""
    return np.stack([model(torch.from_numpy(image)[None])[0].double().numpy() for image in images])


def on_smears(model: Compact, split: str, settings: Settings) -> dict[str, Any]:
    examples: list[Example] = list(Malaria(settings.factor).examples(split))
    found = scores(model, [example.image for example in examples])
    by_concept = {
        concept: judge(
            found[:, column],
            np.array([example.label(concept) for example in examples]),
            settings.seed,
        )
        for column, concept in enumerate(CONCEPTS)
    }
    named = {
        example.name: dict(zip(CONCEPTS, logits.round(4).tolist(), strict=True))
        for example, logits in zip(examples, found, strict=True)
    }
    return by_concept | {"scores": named}


def on_cells(model: Compact, split: str, mean: Image, settings: Settings) -> dict[str, Any]:
    """Judge single cells, each alone in the middle of the mean image: an explanation's view."""
    given = list(cells(split, settings.factor))
    top, left = (size // 2 - 48 for size in mean.shape[1:])
    field_ = mean[:, top : top + 96, left : left + 96]
    images = []
    for cell in given:
        image = field_.copy()
        height, width = (min(size, 96) for size in cell.image.shape[1:])
        down, along = (96 - height) // 2, (96 - width) // 2
        image[:, down : down + height, along : along + width] = cell.image[:, :height, :width]
        images.append(image)
    found = scores(model, images)
    kinds = np.array([cell.kind for cell in given])
    return {
        concept: judge(found[:, column], kinds == concept, settings.seed)
        for column, concept in enumerate(CONCEPTS)
    }


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
            split: on_cells(model, split, mean, settings) for split in ("validation", "test")
        },
        **{
            split: on_smears(model, split, settings) for split in ("training", "validation", "test")
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the network of the malaria images.")
    for name, default in asdict(Settings()).items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=type(default), default=default, help=f"default: {default}")
    results = run(Settings(**vars(parser.parse_args())))
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
