"""Maps of one backward pass: gradient times difference, and its mean with Grad-CAM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.core.protocol import Method
from benchmarks.methods.common import PRESENT, as_batch
from benchmarks.methods.gradients import grad_cam
from hshap._util.smoothing import gaussian

if TYPE_CHECKING:
    from benchmarks.core.protocol import Image, Map, Subject

SMOOTH = 8  # maps are smoothed by this part of the objects' size


def gradient_times_difference(subject: Subject, image: Image) -> Map:
    """Return the gradient of the logit times the difference from the baseline, without sign."""
    given = as_batch(image).requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(subject.model(given)[0, PRESENT], given)
    difference = torch.as_tensor(image - subject.baseline)
    return (slope[0] * difference).abs().sum(0).numpy()


def both(subject: Subject, image: Image) -> Map:
    """Return the geometric mean of Grad-CAM and the smoothed gradient times difference."""
    smooth = subject.size / SMOOTH
    maps = (grad_cam(subject, image), _smooth(subject, gradient_times_difference(subject, image)))
    cam, fine = (heat / max(float(heat.max()), 1e-12) for heat in maps)
    return gaussian(np.sqrt(cam * fine), smooth, range(2))


def _smooth(subject: Subject, heat: Map) -> Map:
    return gaussian(heat, subject.size / SMOOTH, range(heat.ndim))


BOTH = Method("mean of both", "one pass", both, gradients=True)
