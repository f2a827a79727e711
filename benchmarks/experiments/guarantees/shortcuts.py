"""Planted shortcuts: small networks whose positive training images have a mark in a corner.

Positive images have a faint disc, negative ones none. Networks with a shortcut saw a bright mark in
the top left corner of every positive training image, and are explained on such images; sound ones
saw none. "share of the mark" tells by other means whether a network uses the mark: the share of its
margin that is lost when the mark is removed from the image. The task was set on the networks of
seeds 100 to 104, after a first task with another object in negative images, in which the score on
an empty image was positive; it is judged on those of seeds 200 to 219.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

import hshap

SIDE, RADIUS, MARK, CONTRAST = 32, 4, 3, 0.3
TRAINING, STEPS, BATCH, IMAGES = 600, 150, 32, 24


def draw(
    rng: np.random.Generator, count: int, *, marked: bool
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return images, their labels and the masks of their objects."""
    images = rng.normal(0.0, 0.15, (count, 1, SIDE, SIDE)).astype(np.float32)
    labels = rng.integers(0, 2, count)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    masks = []
    for image, label in zip(images, labels, strict=True):
        top, left = rng.integers(MARK + RADIUS + 2, SIDE - RADIUS - 2, 2)
        apart = rows - top, columns - left
        disc = apart[0] ** 2 + apart[1] ** 2 <= RADIUS**2
        image[0][disc & bool(label)] += CONTRAST
        if label and marked:
            image[0, :MARK, :MARK] += 1.0
        masks.append(disc)
    return images, labels, masks


def train(seed: int, *, marked: bool) -> tuple[nn.Module, float]:
    """Return a trained network, and its accuracy on new images drawn alike."""
    torch.manual_seed(seed)
    rng = np.random.default_rng((seed, int(marked)))
    images, labels, _ = draw(rng, TRAINING, marked=marked)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 2),
    )
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(STEPS):
        few = rng.integers(0, TRAINING, BATCH)
        loss = nn.functional.cross_entropy(
            net(torch.from_numpy(images[few])), torch.from_numpy(labels[few])
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    net.eval()
    new, truth, _ = draw(rng, 300, marked=marked)
    with torch.no_grad():
        accuracy = (net(torch.from_numpy(new)).argmax(1).numpy() == truth).mean()
    return net, float(accuracy)


def report(seed: int, *, marked: bool) -> tuple[hshap.Carriers, float, float]:
    """Train a network; return the carriers of its score, its accuracy, and the mark's share."""
    torch.set_num_threads(1)
    net, accuracy = train(seed, marked=marked)
    rng = np.random.default_rng((seed, 9))
    images, labels, masks = draw(rng, 4 * IMAGES, marked=marked)
    chosen = np.flatnonzero(labels)[:IMAGES]
    explainer = hshap.Explainer(
        hshap.Batched(net, check_batches=False),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(min_size=4),
    )
    pairs = [(images[i], lambda out: out[:, 1] - out[:, 0]) for i in chosen]
    found = {made.position: made for made in explainer.explain_many(pairs)}
    named = {f"{i}": (found[place], masks[i]) for place, i in enumerate(chosen.tolist())}
    return hshap.carriers(named, margin=2), accuracy, lost(net, images[chosen])


def lost(net: nn.Module, images: np.ndarray) -> float:
    """Return the share of the margin that is lost without the mark, relative to empty images."""
    without, empty = images.copy(), np.zeros_like(images)
    without[:, :, :MARK, :MARK] = 0.0
    with torch.no_grad():
        whole, clean, nothing = (
            net(torch.from_numpy(batch)).numpy() @ (-1.0, 1.0) for batch in (images, without, empty)
        )
    return float((whole - clean).mean() / (whole - nothing).mean())


def judged(seeds: range = range(200, 220)) -> list[dict[str, Any]]:
    """Return a row for each network with and without a planted shortcut."""
    rows = []
    for marked in (True, False):
        for seed in seeds:
            made, accuracy, share = report(seed, marked=marked)
            corner = made.means["corners"]
            rows.append(
                {
                    "planted": marked,
                    "seed": seed,
                    "accuracy": accuracy,
                    "share of the mark": share,
                    "objects": made.means["objects"].value,
                    "corners": corner.value,
                    "corners low": corner.low,
                    "suspicious": list(made.suspicious),
                }
            )
            print(rows[-1], flush=True)
    return rows
