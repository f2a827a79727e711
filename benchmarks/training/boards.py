"""Train the local network to tell circuit boards with defects from their templates.

Run `python -m benchmarks.training.boards` from the root of the repository. No boxes are used in
training: windows are labelled by comparing each image with its template, see windows.py.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.core.folders import RESULTS, WEIGHTS
from benchmarks.models.local import STRIDE, Local, fused, pooled
from benchmarks.training.command import chosen_settings, write_record
from benchmarks.training.judge_boards import evaluate, games, pair_scores
from benchmarks.training.loop import Schedule, fit
from benchmarks.training.windows import (
    TILE,
    crops,
    in_all_ways,
    read_pairs,
    rectangles,
    show,
    tile_labels,
    tiles,
    window_labels,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from benchmarks.training.windows import Pairs, Shown

LABELS = "no boxes were used; windows are labelled by comparing each image with its template"
ENOUGH = 0.98  # accuracy on validation that the threshold must keep


@dataclass(frozen=True)
class Settings:
    """All that determines the weights."""

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


def loss_of(model: Local, shown: Shown) -> Tensor:
    """Return the loss over tiles plus that over whole windows, wherever the label is known."""
    present, known = tile_labels(shown)
    places = model.places(shown.images)
    local = losses_of(tiles(places, TILE // STRIDE).logsumexp(dim=-1), present, known)
    some, known_windows = window_labels(present, known)
    whole = losses_of(pooled(places), some, known_windows)
    # For each tile with a defect there are a hundred without: their mean would drown it.
    return local.sum() / present.sum().clamp(min=1) + whole.sum() / known_windows.sum().clamp(min=1)


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
    # The epoch of the end changes nothing before it, so a longer run continues a shorter one.
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


def threshold(logits: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """Return the threshold nearest to zero, of those accurate enough, or else most accurate.

    The windows were trained for zero. A higher threshold would be right on some more boards, but on
    fewer parts of boards that show a single defect, and explanations are made of these.
    """
    ordered = np.sort(logits)
    candidates = np.concatenate([[0.0], (ordered[1:] + ordered[:-1]) / 2])
    accuracy = ((logits > candidates[:, None]) == labels).mean(axis=1)
    enough = candidates[accuracy >= min(ENOUGH, accuracy.max())]
    return float(enough[np.abs(enough).argmin()])


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
    results = run(chosen_settings(Settings(), "Train the network of the circuit boards."))
    write_record(RESULTS / "train_boards.json", results)
    shown = ("validation", "test")
    print({name: {k: v for k, v in results[name].items() if k != "logits"} for name in shown})
    print(json.dumps(results["games_on_validation"], indent=2))


if __name__ == "__main__":
    main()
