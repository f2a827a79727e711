"""Measure what differs from the authors' own package, h-shap 0.1.6, for the table in the README.

Run `python -m benchmarks.experiments.compare_reference` from the root of the repository; it prints
a Markdown table. `benchmarks.speed.own_cost` measures time and memory at large sizes.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hshap
from benchmarks.core.reference import TARGET, install_reference, load_reference
from benchmarks.datasets import synthetic
from hshap.demo import bundled, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SEED = 11
IMAGES = 20  # for each number of crosses
SIZE = 8  # both packages then end at leaves of 6 to 8 pixels a side


def probability(outputs: NDArray[Any]) -> NDArray[Any]:
    """Return what the reference explains unless told otherwise: the softmax of class 1."""
    return torch.softmax(torch.from_numpy(outputs).float(), 1)[:, 1].double().numpy()


class Counting(torch.nn.Module):
    """A model that counts the inputs it is given."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model, self.count = model, 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Score a batch."""
        self.count += len(batch)
        return self.model(batch)


def by_reference(model: Counting, mean: Any, image: Any, threshold: float) -> tuple[int, Any]:
    """Return the reference's evaluations and the pixels it marks."""
    explainer = load_reference().Explainer(model, torch.from_numpy(mean.copy()))
    model.count = 0
    given = torch.from_numpy(image.copy())
    try:
        with torch.no_grad():
            marks = explainer.explain(given, label=1, s=SIZE, threshold=threshold)[0].numpy()
    except ValueError:
        # Nothing relevant is an error there; it counts as a map of zeros.
        marks = np.zeros(image.shape[1:])
    return model.count, marks > 0


def by_hshap(
    model: Counting, mean: Any, image: Any, threshold: float, partition: Any
) -> tuple[int, Any]:
    """Return our evaluations and the pixels we mark."""
    explainer = hshap.Explainer(
        model,
        baseline=hshap.Fixed(mean),
        partition=partition(SIZE),
        search=hshap.DepthFirst(threshold),
    )
    model.count = 0
    found = explainer.explain(image, target=probability)
    return model.count, found.saliency() > 0


def same_leaves(model: Counting, mean: Any, image: Any) -> tuple[bool, bool]:
    """Say whether both mark the same pixels at tolerance 0, and whether only noise parts them.

    Where one marks a pixel and the other does not, noise decided if our coefficient on the way to
    that pixel is zero: ours rounds away what is within the rounding errors of the scores.
    """
    _, theirs = by_reference(model, mean, image, 0.0)
    explainer = hshap.Explainer(model, baseline=hshap.Fixed(mean), partition=hshap.Dyadic(SIZE))
    found = explainer.explain(image, target=probability)
    differ = theirs != (found.saliency() > 0)
    least = np.full(differ.shape, np.inf)
    for game in found.games:
        for phi, part in zip(game.coefficients, game.children, strict=True):
            least[part.index] = np.minimum(least[part.index], abs(phi))
    return not differ.any(), not least[differ].any()


def outcome(act: Callable[[], Any]) -> str:
    """Say how a call ends."""
    try:
        return str(act())
    except Exception as error:  # noqa: BLE001, whatever it raises is the finding
        return f"{type(error).__name__}: {error}"


def evaluation_rows(model: Counting, mean: Any) -> list[tuple[str, str, str]]:
    """Compare evaluations on images with 1 and with 6 crosses."""
    rng = np.random.default_rng(SEED)
    images = [synthetic.draw(rng, crosses).image for crosses in [1] * IMAGES + [6] * IMAGES]
    rows = []
    for threshold in (0.0, 1e-6):
        theirs = [by_reference(model, mean, image, threshold) for image in images]
        ours = [
            np.mean([by_hshap(model, mean, image, threshold, kind)[0] for image in images])
            for kind in (hshap.Dyadic, hshap.Bisection)
        ]
        what = f"evaluations at tolerance {threshold:g}, mean of {len(images)} images"
        shown = f"{ours[0]:.0f} (Dyadic), {ours[1]:.0f} (Bisection)"
        rows.append((what, f"{np.mean([count for count, _ in theirs]):.0f}", shown))
    alike, noise = np.array([same_leaves(model, mean, image) for image in images]).sum(axis=0)
    rows.append(
        (
            "the same leaves at tolerance 0 (Dyadic)",
            f"on {alike} of {len(images)} images",
            f"on {noise} of {len(images)}, but for regions whose coefficient is rounding noise",
        )
    )
    return rows


def behaviour_rows(model: Counting, mean: Any) -> list[tuple[str, str, str]]:
    """Compare what each does with awkward input."""
    reference = load_reference()
    theirs = reference.Explainer(model, torch.from_numpy(mean.copy()))
    ours = hshap.Explainer(model, baseline=hshap.Fixed(mean), partition=hshap.Dyadic(SIZE))
    image = torch.from_numpy(mean.copy())

    def shape_after(act: Callable[[Any], Any]) -> str:
        given = torch.from_numpy(bundled()["images"][0].astype(np.float32) / 255)
        before = tuple(given.shape)
        with torch.no_grad():
            act(given)
        return f"{before} -> {tuple(given.shape)}"

    code = f"import sys; sys.path.insert(0, {str(TARGET)!r}); import hshap"
    imported = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    def marked(threshold: float) -> str:
        with torch.no_grad():
            heat = theirs.explain(image.clone(), label=1, s=SIZE, threshold=threshold)
        return f"{int((heat > 0).sum())} pixels marked"

    ends = [f"{outcome(lambda t=t: marked(t))} at tolerance {t:g}" for t in (0.0, 1e-6)]
    found = ours.explain(image, target=probability)
    return [
        (f"import on NumPy {np.__version__}", imported.stderr.strip().splitlines()[-1], "works"),
        (
            "the baseline itself explained: nothing can matter",
            "; ".join(ends),
            f"{int((found.saliency() > 0).sum())} pixels marked",
        ),
        (
            "the caller's tensor after a call",
            shape_after(lambda given: theirs.explain(given, label=1, s=SIZE)),
            shape_after(lambda given: ours.explain(given, target=1)),
        ),
    ]


def main() -> None:
    """Print the table."""
    install_reference()
    torch.set_num_threads(1)
    model, mean = Counting(load()).eval(), bundled()["mean"]
    print("| | h-shap 0.1.6 | hshap |\n|---|---|---|")
    for row in (*behaviour_rows(model, mean), *evaluation_rows(model, mean)):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
