"""Methods that follow gradients: two of shap, and Grad-CAM. All explain the logit of column 1."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from benchmarks.core.protocol import Cannot, Method
from benchmarks.methods.common import PRESENT, as_batch, package, seeded
from benchmarks.methods.rules import with_rules
from benchmarks.methods.torchvision_operators import define_missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.core.protocol import Image, Map, Subject

    Explain = Callable[[Subject, Image], Map]

BACKGROUNDS = 100
ROUNDS, SAMPLES = 4, 50  # 200 samples, the package's default; it keeps those of a round in memory
TOGETHER = 16  # rows at once; their activations are all kept for the way back


class Logit(nn.Module):
    """Column 1 of a model as its only output, since shap explains every output there is.

    Without gradients it gives zeros: that is shap setting up, which only wants to know how many
    outputs there are, and would run the whole background for it.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled():
            return images.new_zeros(len(images), 1)
        return self.model(images)[:, PRESENT : PRESENT + 1]


def gradient_explainer(subject: Subject, image: Image) -> Map:
    """Average gradients between the image and training images, which serve as the baseline."""
    shap = package("shap")
    background = torch.tensor(subject.background[:BACKGROUNDS])
    with torch.no_grad():
        explainer = shap.GradientExplainer(Logit(subject.model), background, batch_size=TOGETHER)
    given, total = as_batch(image), np.zeros(image.shape)
    with torch.enable_grad(), seeded(subject.seed):
        for _ in range(ROUNDS):  # each draws its own seed from ours
            total += explainer.shap_values(given, nsamples=SAMPLES)[0, ..., 0]
    return total.sum(axis=0) / ROUNDS


def deep_explainer(subject: Subject, image: Image) -> Map:
    """Compare activations with those of training images, a few at a time to bound memory.

    The result is a mean over them, so that the mean over all parts is that of one call.
    """
    shap = package("shap")
    total = np.zeros(image.shape)
    background = torch.tensor(subject.background[:BACKGROUNDS])
    with with_rules(subject.model) as model, torch.enable_grad():
        for part in background.split(TOGETHER):
            explainer = shap.DeepExplainer(Logit(model), part)
            # Unchecked: values of overlapping pools do not quite add up, and the check would raise.
            found = explainer.shap_values(as_batch(image), check_additivity=False)
            total += len(part) * found[0, ..., 0]
    return total.sum(axis=0) / len(background)


def against_baseline(explain: Explain, subject: Subject, image: Image) -> Map:
    """Explain with the baseline of all other methods as the one background."""
    return explain(replace(subject, background=subject.baseline[None]), image)


def grad_cam(subject: Subject, image: Image) -> Map:
    """Weight the channels of one layer by their gradients; the package scales it to [0, 1]."""
    define_missing()
    cam = package("pytorch_grad_cam")
    if all(subject.layer is not module for module in subject.model.modules()):
        message = "the layer is not a part of the model"
        raise Cannot(message)
    targets = [cam.utils.model_targets.ClassifierOutputTarget(PRESENT)]
    # The gradient of the image keeps the way back open even if all weights are frozen.
    given = as_batch(image).requires_grad_()
    with torch.enable_grad(), cam.GradCAM(subject.model, [subject.layer]) as explainer:
        found = explainer(given, targets)[0]
    subject.model.zero_grad()  # it leaves gradients in the weights
    return found


METHODS = (
    Method("GradientExplainer", "GradientExplainer", gradient_explainer, "shap", gradients=True),
    Method("DeepExplainer", "DeepExplainer", deep_explainer, "shap", gradients=True),
    Method(
        "GradientExplainer baseline",
        "GradientExplainer",
        partial(against_baseline, gradient_explainer),
        "shap",
        gradients=True,
    ),
    Method(
        "DeepExplainer baseline",
        "DeepExplainer",
        partial(against_baseline, deep_explainer),
        "shap",
        gradients=True,
    ),
    Method("Grad-CAM", "Grad-CAM", grad_cam, "grad-cam", gradients=True),
)
