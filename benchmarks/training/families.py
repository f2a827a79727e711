"""Train the network of the families; run `python -m benchmarks.training.families`.

It stands for a user's model, so it sees every style, and shapes of all kinds. Only the constants
of the method are split by family. Some shapes are replaced by the clean background, as games do it,
and then do not count: else a network would see the hole that a hidden shape leaves under noise. In
the second half of training, half of them keep the pixels that they cover by less than a half, since
the truth says that these are no evidence. In the last epochs, half of the images show some areas
alone, as games do, and some other shapes are parts of targets.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, Dataset

from benchmarks.core.folders import RESULTS
from benchmarks.datasets.families import FAMILIES, HEIGHT, TARGETS, WIDTH, any_style, draw, example
from benchmarks.models.finder import STRIDE, Finder, folded, load, save
from benchmarks.training.command import chosen_settings, write_record
from benchmarks.training.judge import judge
from benchmarks.training.loop import Schedule, fit

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from benchmarks.datasets.families import Sample

RECORD = RESULTS / "train_families.json"
UNKNOWN = -1.0
DECISIVE = ("seed", "steps", "batch_size", "learning_rate", "weight_decay", "threads")


@dataclass(frozen=True)
class Settings:
    """All that determines the weights."""

    seed: int = 0
    epochs: int = 30
    outlines_from: int = 17  # epoch
    cuts_from: int = 25  # epoch, the first of the second stage
    steps: int = 80
    batch_size: int = 32
    learning_rate: float = 4e-3
    weight_decay: float = 1e-4
    threads: int = 1


def scene(
    seed: list[int], *, outlines: bool = True, cuts: bool = True
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Draw an image of any style; return it and the targets of its places.

    With `outlines`, hidden shapes leave theirs in half of the images. With `cuts`, half of the
    images show some areas alone, on the clean background, and there are parts of shapes.
    """
    rng = np.random.default_rng(seed)
    kinds = [str(kind) for kind in rng.choice(TARGETS, int(rng.integers(0, 5)))]
    hidden = [str(kind) for kind in rng.choice(TARGETS, int(rng.integers(0, 3)))]
    sample = draw(
        rng,
        any_style(rng),
        kinds,
        others=int(rng.integers(0, 5)),
        hidden=hidden,
        outlines=outlines and bool(rng.random() < 0.5),
        strange=("slash", "arc") if cuts else (),
    )
    if cuts and rng.random() < 0.5:
        sample = cut(rng, sample)
    return sample.image, targets(sample)


def cut(rng: np.random.Generator, sample: Sample) -> Sample:
    """Return the sample with some of its area hidden; shapes are shown or hidden whole."""
    rows, columns = np.indices((HEIGHT, WIDTH))
    middles = rng.uniform(0, 1, (int(rng.integers(4, 30)), 2)) * (HEIGHT, WIDTH)
    away = [np.hypot(rows - y, columns - x) for y, x in middles]
    nearest = np.argmin(away, axis=0)
    shown = (rng.random(len(middles)) < rng.uniform(0.1, 0.9))[nearest]
    shapes = []
    for shape in sample.shapes:
        mostly = shown[shape.index][shape.cover > 0].mean() > 0.5
        shown[shape.index][shape.cover > 0] = mostly
        shapes.append(shape._replace(hidden=shape.hidden or not mostly))
    image = np.where(shown, sample.image, sample.ground)
    return replace(sample, image=image, shapes=tuple(shapes))


def targets(sample: Sample) -> NDArray[np.float32]:
    """Return 1 for places at the centre of a target, -1 where they may see one, 0 elsewhere."""
    rows, columns = np.mgrid[:HEIGHT:STRIDE, :WIDTH:STRIDE]
    out = np.zeros((len(TARGETS), *rows.shape), dtype=np.float32)
    for shape in sample.shapes:
        if shape.hidden or shape.kind not in TARGETS:
            continue
        height, width = shape.cover.shape
        away = np.maximum(
            abs(rows - shape.top - (height - 1) / 2), abs(columns - shape.left - (width - 1) / 2)
        )
        kind = out[TARGETS.index(shape.kind)]
        kind[(away <= height / 2 + STRIDE) & (kind < 1)] = UNKNOWN
        kind[away <= max(height / 4, STRIDE / 2)] = 1
    return out


class Scenes(Dataset):
    """The images of one epoch, each drawn from a seed of its own."""

    def __init__(self, settings: Settings, epoch: int, count: int) -> None:
        self.settings, self.epoch, self.count = settings, epoch, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        image, wanted = scene(
            [self.settings.seed, self.epoch, number],
            outlines=self.epoch >= self.settings.outlines_from,
            cuts=self.epoch >= self.settings.cuts_from,
        )
        return torch.from_numpy(image), torch.from_numpy(wanted)


def loss_of(model: Finder, images: Tensor, wanted: Tensor) -> Tensor:
    """Add the focal loss of the places to the loss of the images as a whole."""
    places = model.places(images)
    there, known = (wanted == 1).float(), (wanted != UNKNOWN).float()
    errors = binary_cross_entropy_with_logits(places, there, reduction="none")
    wrong = (there - torch.sigmoid(places)).abs()
    focal = (wrong**2 * errors * known).sum() / there.sum().clamp(min=8)
    whole = binary_cross_entropy_with_logits(model.pool(places), there.flatten(2).amax(2))
    return focal + whole


def train(settings: Settings) -> tuple[Finder, list[dict[str, Any]]]:
    """Train in two stages; return the folded network and how both went."""
    torch.manual_seed(settings.seed)
    model = Finder(len(TARGETS), norm=True)
    first, second = settings.cuts_from - 1, settings.epochs - settings.cuts_from + 1
    common = {name: getattr(settings, name) for name in DECISIVE}
    key = {"name": "families", "epochs": first, **common}
    outcomes = [_stage(model, settings, key, epochs=first, after=0)]
    key = {"name": "families-cut", "epochs": second, "after": first, **common}
    outcomes.append(_stage(model, settings, key, epochs=second, after=first))
    return folded(model), outcomes


def _stage(
    model: Finder, settings: Settings, key: dict[str, Any], *, epochs: int, after: int
) -> dict[str, Any]:
    """Train for some epochs after others; the learning rate starts at a quarter the second time."""
    optimiser = torch.optim.AdamW(
        model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
    )
    seen = Scenes(settings, 10**5 if after else 0, 400)
    held_out = next(iter(DataLoader(seen, batch_size=400)))
    highest = settings.learning_rate / (4 if after else 1)

    def train_epoch(number: int) -> float:
        scenes = Scenes(settings, after + number, settings.steps * settings.batch_size)
        losses = []
        for step, batch in enumerate(DataLoader(scenes, settings.batch_size, num_workers=1)):
            for group in optimiser.param_groups:
                group["lr"] = highest * rate(number - 1 + step / settings.steps, epochs)
            loss = loss_of(model, *batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        return float(np.mean(losses))

    return fit(
        model,
        optimiser,
        Schedule(epochs, epochs),
        train_epoch=train_epoch,
        validate=lambda: loss_of(model, *held_out).item(),
        key=key,
    )


def rate(epoch: float, epochs: int) -> float:
    """Warm up for one epoch, then fall along half a cosine."""
    return min(1.0, epoch + 0.05) * (1 + math.cos(math.pi * epoch / epochs)) / 2


def calibrate(model: Finder, seed: int, count: int = 1000) -> None:
    """Scale and shift the answers for each kind so that they are probabilities, in place.

    The focal loss stops where places are almost right, which leaves the network unsure.
    """
    drawn = [scene([seed, 2 * 10**6, number]) for number in range(count)]
    there = torch.tensor(np.stack([(wanted == 1).any(axis=(1, 2)) for _, wanted in drawn])).float()
    images = torch.from_numpy(np.stack([image for image, _ in drawn]))
    with torch.no_grad():
        places = torch.cat([model.places(part) for part in images.split(64)])
    gain, shift = torch.ones(len(TARGETS)), torch.zeros(len(TARGETS))
    optimiser = torch.optim.LBFGS(
        [gain.requires_grad_(), shift.requires_grad_()], max_iter=60, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        changed = gain[:, None, None] * places + shift[:, None, None]
        loss = binary_cross_entropy_with_logits(model.pool(changed), there)
        loss.backward()
        return loss

    optimiser.step(closure)
    with torch.no_grad():
        model.head.weight.mul_(gain[:, None, None, None])
        model.head.bias.mul_(gain).add_(shift)


@torch.no_grad()
def logits_of(model: Finder, images: list[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Return the logit of each kind for each image; 0 divides present from absent."""
    parts = torch.from_numpy(np.stack(images)).split(64)
    return torch.cat([model(part) for part in parts]).double().numpy()


def on_fresh(model: Finder, seed: int, count: int = 1000) -> dict[str, Any]:
    """Return how right the answers for each kind are, on images of any style."""
    drawn = [scene([seed, 10**6, number]) for number in range(count)]
    there = np.stack([(wanted == 1).any(axis=(1, 2)) for _, wanted in drawn])
    scores = logits_of(model, [image for image, _ in drawn])
    return {
        kind: judge(scores[:, column], there[:, column], seed)
        for column, kind in enumerate(TARGETS)
    }


def on_families(model: Finder, count: int = 30) -> dict[str, dict[str, float]]:
    """Return the share of images with one target in which it is seen, and nothing else is."""
    found: dict[str, dict[str, float]] = {}
    for half, families in FAMILIES.items():
        found[half] = {}
        for family in families:
            drawn = [example(family, 1, 10**6 + number) for number in range(count)]
            there = np.array([[kind == name for name in TARGETS] for _, kind in drawn])
            said = logits_of(model, [sample.image for sample, _ in drawn]) > 0
            found[half][family.name] = float((said == there).mean())
    return found


def run(settings: Settings) -> dict[str, Any]:
    """Train, write the weights and return the figures."""
    torch.set_num_threads(settings.threads)
    model, outcomes = train(settings)
    calibrate(model, settings.seed)
    save(model)
    model = load()
    return {
        "settings": asdict(settings),
        "epochs": [outcome["epoch"] for outcome in outcomes],
        "best_epochs": [outcome["best_epoch"] for outcome in outcomes],
        "validation_losses": [outcome["best_loss"] for outcome in outcomes],
        "seconds": round(sum(outcome["seconds"] for outcome in outcomes), 1),
        "torch": torch.__version__,
        "parameters": sum(value.numel() for value in model.parameters()),
        "test": on_fresh(model, settings.seed),
        "accuracy_on_families": on_families(model),
        "histories": [outcome["history"] for outcome in outcomes],
    }


def main() -> None:
    results = run(chosen_settings(Settings(), "Train the network of the families."))
    write_record(RECORD, results)
    print(json.dumps({name: v for name, v in results.items() if name != "histories"}, indent=2))


if __name__ == "__main__":
    main()
