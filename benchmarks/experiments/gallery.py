"""A pretrained network on photographs, explained by the default call, right or wrong.

Run `benchmarks/run gallery`. The network is EfficientNet-lite0, the photographs are those of
scikit-image, and the call is `hshap.Explainer(model).explain(image, target)` with a class as the
target. No constant of hshap was chosen on them. A map is judged by boxes drawn by hand around the
thing that it should show. The four images of crosses of the demo are explained by the same call.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.core import results
from benchmarks.core.folders import MissingDataError
from benchmarks.core.markdown import table
from benchmarks.core.provenance import provenance, versions
from benchmarks.datasets.photographs import PHOTOGRAPHS
from benchmarks.models import efficientnet
from benchmarks.reporting.figures import FOUND
from hshap import Explainer, demo, metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import nn

    from benchmarks.datasets.photographs import Photograph, Question
    from hshap import Explanation

HALF_WAY = 0.5
BRIGHT = 0.95  # of a map's visible pixels are shown below full red
FAINT = 0.01  # of the strongest pixel: what is below is not visible
FILLED = 0.8  # of the photograph: a larger object is hit by any map
CROSS = 1  # the class of the demo's network
RIGHT, PARTLY, WRONG = "right", "partly right", "wrong"
NOTHING, UNTESTED = "nothing found", "not tested"


def run() -> None:
    """Explain all photographs and the crosses, and write their table and maps."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    maps: dict[str, NDArray[Any]] = {}
    for row, found in chain(_photographs(efficientnet.load()), _crosses()):
        key = f"{row['image']}|{row['class']}"
        rows.append(row)
        maps[key] = as_shown(np.maximum(found.attribution(), 0.0))
        maps[key + FOUND] = np.packbits(found.saliency() > 0)
        print(f"{key}: {row['verdict']}, {row['evaluations']} evaluations", flush=True)
    content = {"task": "gallery", **provenance(), "versions": versions(), "rows": rows}
    results.write_experiment(content, page(content))
    np.savez_compressed(results.folder("gallery") / "maps.npz", **maps)


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    shown = [row for row in content["rows"] if row["kind"] == "photograph"]
    lines = [
        (
            row["image"],
            row["class"],
            f"{row['probability']:.2f}",
            row["evaluations"],
            f"{row['doubt']:.2f}",
            row["baseline"],
            f"**{row['verdict']}**",
            row["why"],
        )
        for row in shown
    ]
    head = ("photograph", "class", "probability", "evaluations", "doubt", "hidden pixels", "map")
    verdicts = [row["verdict"] for row in shown]
    told = ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(sorted(verdicts)))
    source = f"{len(shown)} maps: {told}. Commit {content['commit']}, {content['date']}."
    return f"{table([*head, 'reason'], lines)}\n\n{source}\n"


def judged(heat: NDArray[Any], question: Question) -> tuple[str, str]:
    """Return the verdict on a map, and the reason in words.

    A random map has as much of its total on the object as the object has of the pixels. A map is
    right if its highest pixel is on the object and its share there is at least half way from that
    of a random map to 1. With one of the two it is partly right.
    """
    truth = question.truth()
    covers = float(truth.mean())
    if not heat.any():
        return NOTHING, "no part is above the tolerance"
    share = float(heat[truth].sum() / heat.sum())
    where = f"{share:.0%} of the map on the {question.thing} ({covers:.0%} of the pixels)"
    if covers > FILLED:
        return UNTESTED, f"{where}: any map would be"
    highest = bool(truth.ravel()[heat.argmax()])
    dense = share - covers >= HALF_WAY * (1 - covers)
    return (WRONG, PARTLY, RIGHT)[highest + dense], (
        f"{where}, highest pixel {'on' if highest else 'beside'} it"
    )


def as_shown(heat: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a map in 255 levels, from 0 to the value that few of its visible pixels are above."""
    if not heat.any():
        return np.zeros(heat.shape, np.uint8)
    most = float(np.quantile(heat[heat > FAINT * heat.max()], BRIGHT))
    return np.floor(255 * np.clip(heat / most, 0, 1)).astype(np.uint8)


def _photographs(model: nn.Module) -> Iterator[tuple[dict[str, Any], Explanation]]:
    explainer = Explainer(model)
    for photograph in PHOTOGRAPHS:
        image = photograph.image()
        shares = efficientnet.probabilities(model, image)
        _check(photograph, int(shares.argmax()))
        for question in photograph.questions:
            found = explainer.explain(image, question.index)
            verdict, why = judged(np.maximum(found.attribution(), 0.0), question)
            if not question.is_there:
                why = f"the network takes the {question.thing} for a {question.name}; {why}"
            if found.score <= found.baseline_score:
                why += "; the score is below that of the baseline"
            yield (
                {
                    "kind": "photograph",
                    "image": photograph.name,
                    "class": question.name,
                    "probability": float(shares[question.index]),
                    **_told(found),
                    "verdict": verdict,
                    "why": why,
                },
                found,
            )


def _check(photograph: Photograph, top: int) -> None:
    """Refuse another network than the one that the questions were written for."""
    first = photograph.questions[0]
    if top != first.index:
        message = (
            f"the network says class {top} of {photograph.name!r}, and datasets/photographs.py "
            f"names {first.index} ({first.name}); install the versions of requirements.txt"
        )
        raise MissingDataError(message)


def _crosses() -> Iterator[tuple[dict[str, Any], Explanation]]:
    samples = demo.bundled()
    explainer = Explainer(demo.load())
    for number, (image, truth) in enumerate(zip(samples["images"], samples["truths"], strict=True)):
        found = explainer.explain(image.astype(np.float32) / 255, CROSS)
        score = float(metrics.f1(found.saliency(), truth))
        row = {"kind": "crosses", "image": f"crosses {number}", "class": "cross", "f1": score}
        yield row | _told(found) | {"verdict": f"F1 {score:.2f}"}, found


def _told(found: Explanation) -> dict[str, Any]:
    """Return the cost of an explanation, the choices behind it, and its own words about itself."""
    return {
        "score": found.score,
        "baseline_score": found.baseline_score,
        "baseline": _named(found.settings["baseline"]),
        "chosen": found.settings.get("chosen"),
        "evaluations": found.evaluations,
        "findings": len(found.boxes()),
        "leaves": len(found.leaves),
        "area": float((found.saliency() > 0).mean()),
        "doubt": found.audit.doubt,
        "gap": found.audit.gap,
        "carried": found.audit.carried,
        "text": repr(found),
    }


def _named(recipe: Any) -> str:
    """Return a recipe as it is written in Python: its numbers, and no arrays."""
    if not isinstance(recipe, dict):
        return str(recipe)
    options = [f"{v:.3g}" for v in recipe.values() if isinstance(v, int | float)]
    return f"`{recipe.get('type')}({', '.join(options)})`"
