"""The cost of each package outside the model: seconds and peak memory."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hshap
from benchmarks.core.meter import Meter, Watch, timed
from benchmarks.core.reference import load_reference
from benchmarks.datasets.synthetic import draw, generate
from benchmarks.speed import explaining
from benchmarks.speed.cases import CASES, METHODS, SHARES, Case, Method, Scene, scene
from benchmarks.speed.memory import limit_to_available_memory, peak_bytes, resident_bytes
from hshap.demo.model import ConvNet
from hshap.demo.model import load as load_convnet

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

TARGET = 1
MIN_SIZE = 4
TOLERANCES = (0.0, *(10.0**power for power in range(-6, 3)))
MOST_EVALUATIONS = 1000


def with_oracle(case: str, method: str, seed: int) -> dict[str, Any]:
    """Explain the image of a case once, by an oracle that costs nothing.

    The time is that of making the explainer and the map.
    """
    limit_to_available_memory()
    chosen, way = _named(CASES, case), _named(METHODS, method)
    if way.library == "reference":
        load_reference()
    drawn, watch = scene(chosen, seed), Watch()
    _collect_garbage()
    before = resident_bytes()
    heat, seconds = timed(lambda: _heat(chosen, way, drawn, watch))
    peak = peak_bytes()
    return {
        **_times(seconds, watch),
        "peak_mb": peak / 1e6,
        "peak_above_start_mb": (peak - before) / 1e6,
        "support_pixels": int((heat > 0).sum()),
        "support_sha256": explaining.support_digest(heat),
    }


def _heat(case: Case, method: Method, drawn: Scene, watch: Watch) -> NDArray[Any]:
    oracle = explaining.torch_oracle if method.torch else explaining.numpy_oracle
    model: Any = oracle(drawn, watch)
    if method.library == "reference":
        return explaining.with_reference(model, case, drawn, method.threshold)
    found = explaining.with_hshap(model, case, drawn, method.partition, method.threshold)
    return found.saliency()


def with_convnet(share: str, seed: int) -> dict[str, Any]:
    """Explain synthetic images with the ConvNet, and measure the share of the time inside it.

    The tolerance is the smallest at which one image takes at most a thousand evaluations: 0 for a
    trained model. Finding it also warms torch up, whose first calls are slow inside the model and
    would flatter the share.
    """
    limit_to_available_memory()
    chosen = _named(SHARES, share)
    rng = np.random.default_rng(seed)
    images = [draw(rng, crosses=3).image for _ in range(chosen.images)]
    baseline = hshap.Mean(generate(64, seed).images)
    model, weights = _convnet(seed)
    watch = Watch()

    def explainer(tolerance: float, limit: int | None = None) -> hshap.Explainer:
        return hshap.Explainer(
            Meter(model, watch, pixels_at_once=None).eval(),
            baseline=baseline,
            partition=getattr(hshap, chosen.partition)(min_size=MIN_SIZE),
            search=hshap.DepthFirst(tolerance=tolerance, max_evaluations=limit),
        )

    def explain() -> None:
        if len(images) == 1:
            final.explain(images[0], target=TARGET)
        else:
            list(final.explain_many((image, TARGET) for image in images))

    tolerance = _tolerance(explainer, images[0])
    final = explainer(tolerance)
    watch.reset()
    _collect_garbage()
    _, seconds = timed(explain)
    return {
        **_times(seconds, watch),
        "share_inside_model": watch.seconds / seconds,
        "tolerance": tolerance,
        "weights": weights,
    }


def _times(seconds: float, watch: Watch) -> dict[str, Any]:
    outside = seconds - watch.seconds
    return {
        "total_seconds": seconds,
        "model_seconds": watch.seconds,
        "outside_seconds": outside,
        "evaluations": watch.evaluations,
        "outside_ms_per_evaluation": 1e3 * outside / watch.evaluations,
    }


def _tolerance(explainer: Callable[[float, int], hshap.Explainer], image: NDArray[Any]) -> float:
    for tolerance in TOLERANCES:
        found = explainer(tolerance, MOST_EVALUATIONS).explain(image, target=TARGET)
        if not found.unfinished:
            return tolerance
    message = f"no tolerance up to {TOLERANCES[-1]} ends within {MOST_EVALUATIONS} evaluations"
    raise RuntimeError(message)


def _convnet(seed: int) -> tuple[torch.nn.Module, str]:
    try:
        return load_convnet(), "trained"
    except FileNotFoundError:
        torch.manual_seed(seed)
        return ConvNet().eval(), "random"


def _collect_garbage() -> None:
    # The first full pass after the imports goes over all of torch and takes some 80 ms, longer than
    # many a run. Garbage that a method makes itself still counts as its own time.
    gc.collect()


def _named(items: tuple[Any, ...], name: str) -> Any:
    return next(item for item in items if item.name == name)
