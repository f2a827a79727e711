"""Evaluations and behaviour of hshap beside the authors' own package, h-shap 0.1.6.

Run `python -m benchmarks.experiments.compare_reference` from the root of the repository. It writes
`results/compare_reference.json` and a table beside it. `benchmarks.speed` measures time and memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hshap
from benchmarks.core.folders import RESULTS
from benchmarks.core.markdown import table
from benchmarks.core.meter import Meter
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.reference import TARGET, install_reference, load_reference
from benchmarks.datasets import synthetic
from hshap.demo import bundled, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SEED = 11
IMAGES = 20  # for each number of crosses
SIZE = 8  # both packages then end at leaves of 6 to 8 pixels a side
TOLERANCES = (0.0, 1e-6)
PARTITIONS = {"Dyadic": hshap.Dyadic, "Bisection": hshap.Bisection}


def probability(outputs: NDArray[Any]) -> NDArray[Any]:
    """Return the softmax of class 1, which the reference explains by default."""
    return torch.softmax(torch.from_numpy(outputs).float(), 1)[:, 1].double().numpy()


def by_reference(model: Meter, mean: Any, image: Any, threshold: float) -> tuple[int, Any]:
    """Return the reference's evaluations and the pixels it marks."""
    explainer = load_reference().Explainer(model, torch.from_numpy(mean.copy()))
    model.watch.reset()
    given = torch.from_numpy(image.copy())
    try:
        with torch.no_grad():
            marks = explainer.explain(given, label=1, s=SIZE, threshold=threshold)[0].numpy()
    except ValueError:
        # The reference raises where nothing is relevant; that counts as an empty map.
        marks = np.zeros(image.shape[1:])
    return model.watch.evaluations, marks > 0


def by_hshap(
    model: Meter, mean: Any, image: Any, threshold: float, partition: Any
) -> tuple[int, Any]:
    """Return our evaluations and the pixels we mark."""
    explainer = hshap.Explainer(
        model,
        baseline=hshap.Fixed(mean),
        partition=partition(SIZE),
        search=hshap.DepthFirst(threshold),
    )
    model.watch.reset()
    found = explainer.explain(image, target=probability)
    return model.watch.evaluations, found.saliency() > 0


def same_leaves(model: Meter, mean: Any, image: Any) -> tuple[bool, bool]:
    """Tell whether both mark the same pixels at tolerance 0, and whether only rounding differs.

    A pixel that only one of them marks differs by rounding if one of our coefficients on the path
    to it is exactly zero: hshap sets differences within the rounding error of the scores to zero.
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
    """Return the result of a call, or its exception, as text."""
    try:
        return str(act())
    except Exception as error:  # noqa: BLE001, whatever it raises is the finding
        return f"{type(error).__name__}: {error}"


def evaluations(model: Meter, mean: Any) -> dict[str, Any]:
    """Return the mean evaluations at each tolerance, and on how many images the leaves agree."""
    rng = np.random.default_rng(SEED)
    images = [synthetic.draw(rng, crosses).image for crosses in [1] * IMAGES + [6] * IMAGES]
    spent: dict[str, dict[str, float]] = {}
    for threshold in TOLERANCES:
        ways = {"reference": lambda image, t=threshold: by_reference(model, mean, image, t)}
        for name, partition in PARTITIONS.items():
            ways[name] = lambda image, t=threshold, p=partition: by_hshap(model, mean, image, t, p)
        spent[f"{threshold:g}"] = {
            name: float(np.mean([explain(image)[0] for image in images]))
            for name, explain in ways.items()
        }
    same, but_rounding = np.array([same_leaves(model, mean, image) for image in images]).sum(axis=0)
    return {
        "images": len(images),
        "mean evaluations": spent,
        "same leaves": int(same),
        "same leaves but for rounding": int(but_rounding),
    }


def evaluation_rows(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the lines of the table about evaluations and leaves."""
    images = found["images"]
    rows = [
        (
            f"evaluations at tolerance {threshold}, mean of {images} images",
            f"{spent['reference']:.0f}",
            ", ".join(f"{spent[name]:.0f} ({name})" for name in PARTITIONS),
        )
        for threshold, spent in found["mean evaluations"].items()
    ]
    alike, but_rounding = found["same leaves"], found["same leaves but for rounding"]
    return [
        *rows,
        (
            "the same leaves at tolerance 0 (Dyadic)",
            f"on {alike} of {images} images",
            f"on {but_rounding} of {images}, but for regions whose coefficient is rounding noise",
        ),
    ]


def behaviour_rows(model: Meter, mean: Any) -> list[tuple[str, str, str]]:
    """Compare the behaviour on awkward input."""
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


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    rows = [*content["behaviour"], *evaluation_rows(content)]
    return table(["", "h-shap 0.1.6", "hshap"], rows) + "\n"


def main() -> None:
    """Measure, write both files and print the table."""
    install_reference()
    torch.set_num_threads(1)
    model, mean = Meter(load(), pixels_at_once=None).eval(), bundled()["mean"]
    content = {
        **provenance(),
        "versions": versions(),
        "behaviour": behaviour_rows(model, mean),
        **evaluations(model, mean),
    }
    (RESULTS / "compare_reference.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "compare_reference.md").write_text(page(content))
    print(page(content))


if __name__ == "__main__":
    main()
