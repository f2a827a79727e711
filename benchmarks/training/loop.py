"""The training loop that every data set shares: seeded, resumable, stopped early."""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.core.folders import cache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

    Epoch = Callable[[int], float]


@dataclass(frozen=True)
class Schedule:
    """Hold how long to train. A patience of `epochs` never stops early."""

    epochs: int
    patience: int


def fit(  # noqa: PLR0913, each is a part of training
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    schedule: Schedule,
    *,
    train_epoch: Epoch,
    validate: Callable[[], float],
    key: dict[str, Any],
) -> dict[str, Any]:
    """Train until the validation loss stops improving; leave the best weights in the model.

    `train_epoch(number)` runs one epoch and returns its loss; it must draw at random from its
    number alone, so that a resumed run equals an uninterrupted one. `key` is everything
    that decides the outcome: a run with the same key continues where the last one stopped.
    """
    path = _checkpoint(key)
    state = _resume(path, model, optimiser)
    while state["epoch"] < schedule.epochs and not _stalled(state, schedule):
        begun = time.perf_counter()
        state["epoch"] += 1
        model.train()
        loss = train_epoch(state["epoch"])
        model.eval()
        with torch.no_grad():
            held_out = validate()
        if held_out < state["best_loss"]:
            best = {name: value.clone() for name, value in model.state_dict().items()}
            state.update(best=best, best_loss=held_out, best_epoch=state["epoch"])
        state["seconds"] += time.perf_counter() - begun
        state["history"].append((state["epoch"], loss, held_out))
        state.update(model=model.state_dict(), optimiser=optimiser.state_dict())
        _save(path, state)
        print(
            f"epoch {state['epoch']:3d} of {schedule.epochs}  training loss {loss:.4f}  "
            f"validation loss {held_out:.4f}  {state['seconds']:.0f} s",
            flush=True,
        )
    model.load_state_dict(state["best"])
    model.eval()
    kept = ("epoch", "best_epoch", "best_loss", "seconds", "history")
    return {"key": key} | {name: state[name] for name in kept}


def _resume(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    if not path.exists():
        empty = {"epoch": 0, "best_epoch": 0, "best_loss": math.inf, "seconds": 0.0, "history": []}
        first = {name: value.clone() for name, value in model.state_dict().items()}
        return empty | {"best": first}
    state = torch.load(path, weights_only=True)
    print(f"resuming after epoch {state['epoch']}")
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    return state


def _stalled(state: dict[str, Any], schedule: Schedule) -> bool:
    return state["epoch"] - state["best_epoch"] >= schedule.patience


def _checkpoint(key: dict[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    return cache("training", f"{key['name']}-{name}.pt")


def _save(path: Path, state: dict[str, Any]) -> None:
    # Rename at the end: an interruption leaves the previous checkpoint whole.
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)
