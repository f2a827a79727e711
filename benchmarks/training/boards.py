"""Train the local network to tell circuit boards with defects from their templates.

Run `python -m benchmarks.training.boards` from the root of the repository. No boxes are used in
training: windows are labelled by comparing each image with its template.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn.functional import binary_cross_entropy_with_logits, max_pool2d

from benchmarks.datasets import boards
from benchmarks.folders import RESULTS, WEIGHTS
from benchmarks.models.local import STRIDE, Local, fused, pooled
from benchmarks.training.judge import judge
from benchmarks.training.loop import Schedule, fit
from hshap.metrics import wilson

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from benchmarks.protocol import Corners, Example, Image
    from hshap.metrics import Interval

LABELS = "no boxes were used; windows are labelled by comparing each image with its template"

# Edges of a pair stray by up to 1.5 pixels at factor 2. What differs from all pixels within 2 is a
# defect; what differs from all within 1 may be one; the rest is taken for the same.
SURE_REACH, DOUBT_REACH, CONTRAST = 2, 1, 0.3
SURE_PIXELS = 5  # fewer may still be an edge astray

CROP = 160
TILE = 16  # places of a tile are pooled and labelled together
MARGIN = 12  # a defect this near to a tile may be seen from it
ENOUGH = 0.98  # accuracy on validation that the threshold must keep
GAME_BOARDS = 10


@dataclass(frozen=True)
class Settings:
    """Hold what determines the weights."""

    seed: int = 0
    factor: int = 2
    epochs: int = 42
    cycle: int = 14  # epochs from one restart of the learning rate to the next
    patience: int = 20
    steps: int = 100
    batch_size: int = 32
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    threads: int = 1


@dataclass(frozen=True, eq=False)
class Pairs:
    """Hold aligned images (n, 1, height, width) and where they differ, surely or perhaps."""

    tests: Tensor
    templates: Tensor
    sure: Tensor
    doubt: Tensor

    def __len__(self) -> int:
        return len(self.tests)


@dataclass(frozen=True, eq=False)
class Shown:
    """Hold what the network is shown, and what can be seen, or is hidden, of the differences."""

    images: Tensor
    sure: Tensor
    hidden: Tensor
    doubt: Tensor


def read_pairs(split: str, factor: int) -> Pairs:
    """Read all pairs of a split, without their boxes."""
    files = boards.pairs(split)
    tests = np.stack([boards.read_image(pair.test, factor) for pair in files])
    templates = np.stack([boards.read_image(pair.template, factor) for pair in files])
    return compare(torch.from_numpy(tests), torch.from_numpy(templates))


def compare(tests: Tensor, templates: Tensor) -> Pairs:
    """Mark where the images of each pair differ by more than an edge astray."""
    sure = beyond(tests, templates, SURE_REACH) > CONTRAST
    doubt = beyond(tests, templates, DOUBT_REACH) > CONTRAST
    return Pairs(tests, templates, sure, doubt | sure)


def beyond(one: Tensor, other: Tensor, reach: int) -> Tensor:
    """Return how far each pixel of either image lies outside the values near it in the other."""
    outside = [
        difference
        for first, second in ((one, other), (other, one))
        for difference in (first - highest(second, reach), -highest(-second, reach) - first)
    ]
    return torch.stack(outside).amax(dim=0)


def highest(images: Tensor, reach: int) -> Tensor:
    return max_pool2d(images, 2 * reach + 1, stride=1, padding=reach)


def show(pairs: Pairs, visible: Tensor) -> Shown:
    """Paint the visible pixels of the test images on their templates, as an explanation does."""
    images = torch.where(visible, pairs.tests, pairs.templates)
    return Shown(images, pairs.sure & visible, pairs.sure & ~visible, pairs.doubt & visible)


def in_all_ways(pairs: Pairs, seed: int) -> Shown:
    """Show each pair as the test image, as the template, and in parts that the seed draws."""
    parts = rectangles(tuple(pairs.tests.shape), np.random.default_rng(seed))
    shown = [show(pairs, mask) for mask in (torch.ones_like(parts), torch.zeros_like(parts), parts)]
    fields = ("images", "sure", "hidden", "doubt")
    return Shown(*(torch.cat([getattr(part, field) for part in shown]) for field in fields))


def rectangles(shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Draw masks of what is visible: all, nothing, some rectangles, or all but some."""
    visible = np.zeros(shape, dtype=bool)
    height, width = shape[-2:]
    for mask in visible[:, 0]:
        start = rng.random() < 0.5
        mask[:] = start
        if rng.random() < 0.5:
            continue
        for _ in range(rng.integers(1, 7)):
            tall, wide = np.exp(rng.uniform(np.log(8), np.log(CROP), 2)).astype(int)
            row, column = rng.integers(-tall + 1, height), rng.integers(-wide + 1, width)
            mask[max(row, 0) : row + tall, max(column, 0) : column + wide] = not start
    return torch.from_numpy(visible)


def crops(pairs: Pairs, rows: NDArray[np.int64], rng: np.random.Generator) -> Pairs:
    """Cut a window out of each pair, and turn or mirror it."""
    stacked = torch.stack([_crop(pairs, int(row), rng) for row in rows])
    tests, templates, sure, doubt = stacked.unbind(dim=1)
    return Pairs(tests[:, None], templates[:, None], sure[:, None] > 0, doubt[:, None] > 0)


def _crop(pairs: Pairs, row: int, rng: np.random.Generator) -> Tensor:
    height, width = pairs.tests.shape[2:]
    top, left = rng.integers(height - CROP + 1), rng.integers(width - CROP + 1)
    parts = (pairs.tests, pairs.templates, pairs.sure, pairs.doubt)
    window = torch.stack([part[row, 0, top : top + CROP, left : left + CROP] for part in parts])
    turned = torch.rot90(window, int(rng.integers(4)), dims=(1, 2))
    return turned.flip(2) if rng.random() < 0.5 else turned


def tile_labels(shown: Shown) -> tuple[Tensor, Tensor]:
    """Say of each tile (n, rows, columns) whether it shows a defect, and whether that is known.

    A defect cut by the rim of what is visible is neither shown nor hidden, so its tile is left out.
    """
    seen = tile_sums(shown.sure)
    present = (seen >= SURE_PIXELS) & (seen >= 2 * tile_sums(shown.hidden))
    near = max_pool2d(shown.doubt.float(), TILE + 2 * MARGIN, TILE, MARGIN)[:, 0]
    absent = near == 0
    return present, present | absent


def tile_sums(mask: Tensor) -> Tensor:
    return tiles(mask[:, 0].float(), TILE).sum(dim=-1)


def tiles(maps: Tensor, side: int) -> Tensor:
    """Cut maps (n, height, width) into tiles (n, rows, columns, side * side)."""
    count, height, width = maps.shape
    cut = maps.reshape(count, height // side, side, width // side, side)
    return cut.transpose(2, 3).flatten(3)


def loss_of(model: Local, shown: Shown) -> Tensor:
    """Return the loss over tiles plus that over whole windows, wherever the label is known."""
    present, known = tile_labels(shown)
    places = model.places(shown.images)
    local = losses_of(tiles(places, TILE // STRIDE).logsumexp(dim=-1), present, known)
    some, known_windows = window_labels(present, known)
    whole = losses_of(pooled(places), some, known_windows)
    # For each tile with a defect there are a hundred without: their mean would drown it.
    return local.sum() / present.sum().clamp(min=1) + whole.sum() / known_windows.sum().clamp(min=1)


def window_labels(present: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Say of each window (n,) whether any of its tiles shows a defect, and if that is known."""
    some = present.flatten(1).any(dim=1)
    return some, some | known.flatten(1).all(dim=1)


def losses_of(logits: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(logits, labels.float(), reduction="none") * known


def train(settings: Settings, training: Pairs, validation: Pairs) -> tuple[Local, dict[str, Any]]:
    """Train the network; return it without batch normalisation, and how training went."""
    torch.manual_seed(settings.seed)
    model = Local(normalised=True)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    held_out = in_all_ways(validation, settings.seed)

    def train_epoch(number: int) -> float:
        rng = np.random.default_rng([settings.seed, number])
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * rate_at(number, settings.cycle)
        losses = [_step(model, optimiser, training, settings, rng) for _ in range(settings.steps)]
        return float(np.mean(losses))

    def validate() -> float:
        return loss_of(model, held_out).item()

    schedule = Schedule(settings.epochs, settings.patience)
    # When to stop decides nothing of what happens before, so a longer run continues a shorter one.
    lasting = {"epochs", "patience"}
    decisive = {name: value for name, value in asdict(settings).items() if name not in lasting}
    key = {"name": "boards", "labels": LABELS} | decisive
    record = fit(model, optimiser, schedule, train_epoch=train_epoch, validate=validate, key=key)
    return fused(model), record


def rate_at(epoch: int, cycle: int) -> float:
    """Fall from one towards zero within each cycle, and restart from half as high as before."""
    restarts, step = divmod(epoch - 1, cycle)
    return (1 + math.cos(math.pi * step / cycle)) / 2 ** (restarts + 1)


def _step(
    model: Local,
    optimiser: torch.optim.Optimizer,
    training: Pairs,
    settings: Settings,
    rng: np.random.Generator,
) -> float:
    cut = crops(training, rng.integers(len(training), size=settings.batch_size), rng)
    loss = loss_of(model, show(cut, rectangles(tuple(cut.tests.shape), rng)))
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.item()


@torch.no_grad()
def scores(model: Local, images: Tensor) -> NDArray[np.float64]:
    """Return the logit of each image (n, 1, height, width)."""
    batches = [model(batch) for batch in images.split(16)]
    absent, present = torch.cat(batches).double().numpy().T
    return present - absent


def pair_scores(model: Local, pairs: Pairs) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the logits of all images and of their templates after them, and their labels."""
    both = np.concatenate([scores(model, pairs.tests), scores(model, pairs.templates)])
    return both, np.arange(2 * len(pairs)) < len(pairs)


def threshold(logits: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """Return the threshold nearest to zero, of those accurate enough, or else most accurate.

    Zero is what the windows were trained for. Further up, some more boards would be right, but
    fewer parts of boards that show a single defect, and explanations are made of these.
    """
    ordered = np.sort(logits)
    candidates = np.concatenate([[0.0], (ordered[1:] + ordered[:-1]) / 2])
    accuracy = ((logits > candidates[:, None]) == labels).mean(axis=1)
    enough = candidates[accuracy >= min(ENOUGH, accuracy.max())]
    return float(enough[np.abs(enough).argmin()])


def evaluate(model: Local, pairs: Pairs, split: str) -> dict[str, Any]:
    logits, labels = pair_scores(model, pairs)
    right = (logits > 0) == labels
    files = boards.pairs(split)
    trained_on = {boards.group(pair) for pair in boards.pairs("training")}
    seen = np.array([boards.group(pair) in trained_on for pair in files] * 2)
    signed = zip(files, logits[labels].tolist(), logits[~labels].tolist(), strict=True)
    return {
        **judge(logits, labels, seed=0),
        "accuracy_on_boards_of_training": _share(right[seen]),
        "accuracy_on_other_boards": _share(right[~seen]) if not seen.all() else None,
        "sensitivity": float(right[labels].mean()),
        "specificity": float(right[~labels].mean()),
        "logits": {pair.name: [round(test, 5), round(plain, 5)] for pair, test, plain in signed},
    }


def _share(right: NDArray[np.bool_]) -> Interval:
    return wilson(int(right.sum()), len(right))


def games(model: Local, factor: int) -> dict[str, Any]:
    """Measure what an explanation relies on: parts of an image on its template, validation only.

    Here the boxes tell what is a defect; the network was trained without them.
    """
    examples = [e for e in boards.Boards(factor).examples("validation") if e.label(boards.CONCEPT)]
    # Spread evenly over the file, so that no one board decides.
    chosen = examples[:: max(1, len(examples) // GAME_BOARDS)][:GAME_BOARDS]
    alone = np.concatenate([_probabilities(model, one_defect(example)) for example in chosen])
    without = _probabilities(model, np.stack([no_defect(example) for example in chosen]))
    template = _probabilities(model, np.stack([_template(example) for example in chosen]))
    return {
        "boards": [example.name for example in chosen],
        "template": _summary(template),
        "one_defect_box": _summary(alone),
        "all_but_the_boxes": _summary(without),
    }


def one_defect(example: Example) -> Image:
    """Return one image for each box (n, 1, height, width): its pixels on the template."""
    return np.stack([_painted(example, (box,)) for box in example.objects[boards.CONCEPT]])


def no_defect(example: Example) -> Image:
    """Return the image (1, height, width) with the template in all of its boxes."""
    return np.where(example.truths[boards.CONCEPT], _template(example), example.image)


def _painted(example: Example, boxes: tuple[Corners, ...]) -> Image:
    mask = boards.filled(boxes, example.image.shape[1:])
    return np.where(mask, example.image, _template(example))


def _template(example: Example) -> Image:
    if example.counterfactual is None:
        message = f"{example.name} has no template"
        raise ValueError(message)
    return example.counterfactual


def _probabilities(model: Local, images: Image) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-scores(model, torch.from_numpy(images))))


def _summary(probabilities: NDArray[np.float64]) -> dict[str, Any]:
    quantiles = np.quantile(probabilities, [0, 0.1, 0.5, 0.9, 1]).round(6)
    return {
        "images": len(probabilities),
        "above_half_wilson_95": _share(probabilities > 0.5),
        "mean": float(probabilities.mean()),
        "quantiles_0_10_50_90_100": quantiles.tolist(),
    }


def run(settings: Settings) -> dict[str, Any]:
    """Train, write the weights and return the figures."""
    torch.set_num_threads(settings.threads)
    training = read_pairs("training", settings.factor)
    validation = read_pairs("validation", settings.factor)
    model, record = train(settings, training, validation)
    shift = threshold(*pair_scores(model, validation))
    with torch.no_grad():
        model.score.bias -= shift  # the sum of odds scales with it, so that 0 decides
    WEIGHTS.mkdir(parents=True, exist_ok=True)
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights, WEIGHTS / "boards.safetensors")
    return {
        "settings": asdict(settings),
        "labels": LABELS,
        "epochs": record["epoch"],
        "best_epoch": record["best_epoch"],
        "seconds": round(record["seconds"], 1),
        "torch": torch.__version__,
        "pairs": {"training": len(training), "validation": len(validation)},
        "threshold_folded_in": shift,
        "validation": evaluate(model, validation, "validation"),
        "games_on_validation": games(model, settings.factor),
        "test": evaluate(model, read_pairs("test", settings.factor), "test"),
        "history": record["history"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the network of the circuit boards.")
    for name, default in asdict(Settings()).items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=type(default), default=default, help=f"default: {default}")
    results = run(Settings(**vars(parser.parse_args())))
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "train_boards.json").write_text(json.dumps(results, indent=2) + "\n")
    shown = ("validation", "test")
    print({name: {k: v for k, v in results[name].items() if k != "logits"} for name in shown})
    print(json.dumps(results["games_on_validation"], indent=2))


if __name__ == "__main__":
    main()
