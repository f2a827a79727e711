"""Train the paper's ConvNet on the synthetic images and bundle it with the package.

Run `python -m benchmarks.training.synthetic` from the root of the repository. An interrupted run
continues from its last epoch, with the same outcome as an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save as encode
from torch.nn.functional import cross_entropy

from benchmarks.core.folders import CACHE, RESULTS, ROOT
from benchmarks.datasets import synthetic
from benchmarks.training.command import chosen_settings, write_record
from hshap.demo.model import ConvNet

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.datasets.synthetic import Dataset

BUNDLE = ROOT / "src" / "hshap" / "demo"
RECORD = RESULTS / "train_synthetic.json"

SHOWN_CROSSES = (1, 2, 4, 6)
PLACEMENTS = 500


@dataclass(frozen=True)
class Settings:
    """All that determines the weights; Adam, its rate and the epochs are the paper's."""

    seed: int = 0
    epochs: int = 50
    patience: int = 10
    batch_size: int = 64
    learning_rate: float = 1e-3
    dropout: float = 0.5
    threads: int = 2


def train(settings: Settings, training: Dataset, validation: Dataset) -> dict[str, Any]:
    """Train until the validation loss stops improving; return the final checkpoint.

    Each epoch reseeds from its own number, so a resumed run draws the same numbers.
    """
    key = {**asdict(settings), "training_sha256": digest(training)}
    state = _resume(key) or _start(settings, key)
    model, optimiser = _build(settings, state)
    while state["epoch"] < settings.epochs and not _stalled(state, settings.patience):
        begun = time.perf_counter()
        state["epoch"] += 1
        loss = _train_epoch(model, optimiser, training, settings, state["epoch"])
        margins = margin(model, validation.pixels)
        held_out = _loss(margins, validation.labels)
        if held_out < state["best_loss"]:
            best = {name: value.clone() for name, value in model.state_dict().items()}
            state.update(best=best, best_loss=held_out, best_epoch=state["epoch"])
        state.update(model=model.state_dict(), optimiser=optimiser.state_dict())
        state["seconds"] += time.perf_counter() - begun
        _save(state)
        right = np.mean((margins > 0) == validation.labels)
        print(
            f"epoch {state['epoch']:2d}  training loss {loss:.4f}  "
            f"validation loss {held_out:.4f}  accuracy {right:.4f}  "
            f"{state['seconds']:.0f} s",
            flush=True,
        )
    return state


def _train_epoch(
    model: ConvNet,
    optimiser: torch.optim.Optimizer,
    training: Dataset,
    settings: Settings,
    epoch: int,
) -> float:
    torch.manual_seed(1_000 * settings.seed + epoch)
    labels = torch.from_numpy(training.labels)
    model.train()
    total = 0.0
    for rows in torch.randperm(len(training)).split(settings.batch_size):
        images = torch.from_numpy(synthetic.to_float(training.pixels[rows.numpy()]))
        loss = cross_entropy(model(images), labels[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.item() * len(rows)
    return total / len(training)


def _start(settings: Settings, key: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(1_000 * settings.seed)
    return {
        "key": key,
        "epoch": 0,
        "best_epoch": 0,
        "best_loss": float("inf"),
        "seconds": 0.0,
        "model": ConvNet(settings.dropout).state_dict(),
        "optimiser": None,
    }


def _build(settings: Settings, state: dict[str, Any]) -> tuple[ConvNet, torch.optim.Optimizer]:
    model = ConvNet(settings.dropout)
    model.load_state_dict(state["model"])
    optimiser = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    if state["optimiser"] is not None:
        optimiser.load_state_dict(state["optimiser"])
    return model, optimiser


def _stalled(state: dict[str, Any], patience: int) -> bool:
    return state["epoch"] - state["best_epoch"] >= patience


def _checkpoint(key: dict[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    return CACHE / f"train_synthetic-{name}.pt"


def _resume(key: dict[str, Any]) -> dict[str, Any] | None:
    path = _checkpoint(key)
    if not path.exists():
        return None
    state = torch.load(path, weights_only=True)
    print(f"resuming after epoch {state['epoch']} from {path.relative_to(ROOT)}")
    return state


def _save(state: dict[str, Any]) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    path = _checkpoint(state["key"])
    # Rename at the end: an interruption leaves the previous checkpoint whole.
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def digest(dataset: Dataset) -> str:
    return hashlib.sha256(dataset.pixels.tobytes()).hexdigest()


def mean_image(dataset: Dataset) -> NDArray[np.float32]:
    """Average the images, the paper's baseline of a removed pixel."""
    # Sums of bytes are exact; averaging floats would depend on the order of summation.
    total = dataset.pixels.sum(axis=0, dtype=np.int64)
    return (total / (255 * len(dataset))).astype(np.float32)


@torch.no_grad()
def margin(model: ConvNet, images: NDArray[np.uint8] | NDArray[np.float32]) -> NDArray[np.float64]:
    """Return logit(cross) - logit(no cross) per image; bytes are scaled, floats taken as is."""
    model.eval()
    logits = []
    for start in range(0, len(images), 250):
        batch = images[start : start + 250]
        floats = synthetic.to_float(batch) if batch.dtype == np.uint8 else batch
        logits.append(model(torch.from_numpy(floats)).numpy())
    both = np.concatenate(logits).astype(np.float64)
    return both[:, 1] - both[:, 0]


def _loss(margins: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    return float(np.logaddexp(0, np.where(labels == 1, -margins, margins)).mean())


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a proportion."""
    z = 1.959964
    share, scale = successes / trials, 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    half = z / scale * np.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    return float(middle - half), float(middle + half)


def auc(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Return the share of (positive, negative) pairs in the right order; a tie counts half."""
    positive, negative = scores[labels == 1][:, None], scores[labels == 0]
    return float((positive > negative).mean() + (positive == negative).mean() / 2)


def evaluate(model: ConvNet, dataset: Dataset) -> dict[str, Any]:
    margins = margin(model, dataset.pixels)
    right = (margins > 0) == dataset.labels
    correct = int(right.sum())
    return {
        "images": len(dataset),
        "correct": correct,
        "accuracy": correct / len(dataset),
        "wilson_95": wilson(correct, len(dataset)),
        "auc": auc(margins, dataset.labels),
        "loss": _loss(margins, dataset.labels),
        "accuracy_by_crosses": {
            str(crosses): float(right[dataset.crosses == crosses].mean())
            for crosses in np.unique(dataset.crosses)
        },
    }


def on_mean_baseline(model: ConvNet, mean: NDArray[np.float32], seed: int) -> dict[str, Any]:
    """Measure how the model sees single shapes on the mean image, at random places and colours.

    An explanation evaluates such images, which training never showed.
    """
    rng = np.random.default_rng(seed)
    rates = {}
    for kind in synthetic.STENCILS:
        images = np.repeat(mean[None], PLACEMENTS, axis=0)
        for image in images:
            synthetic.paint(image, kind, synthetic.corner(rng), synthetic.colour(rng))
        rates[kind] = float((margin(model, images) > 0).mean())
    return {
        "placements_per_kind": PLACEMENTS,
        "mean_image_probability": float(1 / (1 + np.exp(-margin(model, mean[None])[0]))),
        "single_cross_positive": rates["cross"],
        "single_other_negative": 1 - float(np.mean([rates[kind] for kind in synthetic.OTHERS])),
        "positive_by_kind": rates,
    }


def pick_samples(model: ConvNet, test: Dataset) -> list[int]:
    """Pick for each shown number of crosses the true positive most crowded with other shapes."""
    plain = synthetic.to_bytes(np.array(synthetic.BACKGROUND))
    others = (test.pixels != plain).any(axis=1).sum(axis=(1, 2)) - test.truths.sum(axis=(1, 2))
    found = margin(model, test.pixels) > 0
    return [
        int(np.where(found & (test.crosses == crosses), others, -1).argmax())
        for crosses in SHOWN_CROSSES
    ]


def write_bundle(model: ConvNet, mean: NDArray[np.float32], test: Dataset) -> None:
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    (BUNDLE / "weights.safetensors").write_bytes(encode(weights))
    rows = pick_samples(model, test)
    np.savez_compressed(
        BUNDLE / "samples.npz",
        images=test.pixels[rows],
        truths=test.truths[rows],
        crosses=test.crosses[rows],
        mean=mean,
    )


def run(settings: Settings) -> dict[str, Any]:
    """Train, write the bundle and return the figures."""
    torch.set_num_threads(settings.threads)
    training, validation, test = synthetic.splits(settings.seed)
    state = train(settings, training, validation)
    model = ConvNet(settings.dropout)
    model.load_state_dict(state["best"])
    mean = mean_image(training)
    write_bundle(model, mean, test)
    named = {"training": training, "validation": validation, "test": test}
    return {
        "settings": state["key"],
        "epochs": state["epoch"],
        "best_epoch": state["best_epoch"],
        "seconds": round(state["seconds"], 1),
        "torch": torch.__version__,
        "splits": {name: evaluate(model, split) for name, split in named.items()},
        "on_mean_baseline": on_mean_baseline(model, mean, settings.seed),
    }


def main() -> None:
    results = run(chosen_settings(Settings(), "Train the ConvNet of the synthetic images."))
    write_record(RECORD, results)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
