"""A pretrained network on photographs, explained by the default call, right or wrong.

Run `benchmarks/run gallery`. The network is EfficientNet-lite0, the photographs are those of
scikit-image, and the call is `hshap.Explainer(model).explain(image, target)` with a class as the
target. No constant of hshap was chosen on them. A map is judged by boxes drawn by hand around the
thing that it should show. The four images of crosses of the demo are explained by the same call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.core import results
from benchmarks.core.folders import MissingDataError
from benchmarks.core.markdown import table
from benchmarks.core.provenance import provenance, versions
from benchmarks.datasets.photographs import PHOTOGRAPHS
from benchmarks.models import efficientnet
from benchmarks.reporting import figures, report
from benchmarks.reporting.figures.data import as_bytes, write_arrays
from benchmarks.reporting.figures.gallery import FIGURES, FOUND, MAPS, NAME
from hshap import Explainer, demo, metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import nn

    from benchmarks.datasets.photographs import Photograph, Question
    from hshap import Explanation

HALF = 0.5  # of a map must lie on the object
FILLED = 0.8  # of the photograph: a larger object is hit by any map
CROSS = 1  # the class of the demo's network
EVERYTHING, NOTHING, PARTLY, MISSED = "right", "nothing found", "partly right", "wrong"
UNTESTED, UNEXPLAINED = "not tested", "nothing to explain"


def run() -> None:
    """Explain all photographs and the crosses, and write table, maps and figures."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    maps: dict[str, NDArray[Any]] = {}
    for row, found in (*_photographs(efficientnet.load()), *_crosses()):
        key = f"{row['image']}|{row['class']}"
        rows.append(row)
        maps[key] = as_bytes(found.attribution())
        maps[key + FOUND] = np.packbits(found.saliency() > 0)
        print(f"{key}: {row['verdict']}, {row['evaluations']} evaluations", flush=True)
    content = {"task": NAME, **provenance(), "versions": versions(), "rows": rows}
    results.write_experiment(content, page(content))
    write_arrays(results.folder(NAME) / MAPS, maps, 0)
    figures.draw(list(FIGURES))
    report.write()


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    shown = [row for row in content["rows"] if row["kind"] == "photograph"]
    lines = [
        (
            row["image"],
            row["class"],
            f"{row['probability']:.2f}",
            f"{row['evaluations']} in {row['seconds']:.1f} s",
            f"{row['doubt']:.2f}",
            row["baseline"],
            f"**{row['verdict']}**",
            row["why"],
        )
        for row in shown
    ]
    head = ("photograph", "class", "probability", "evaluations", "doubt", "hidden pixels", "map")
    counts = {v: sum(row["verdict"] == v for row in shown) for v in (EVERYTHING, PARTLY)}
    others = len(shown) - sum(counts.values())
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    source = (
        f"{len(shown)} maps: {told}, {others} neither. Times are those of one thread, while other "
        f"work may run. Commit {content['commit']}, {content['date']}."
    )
    return f"{table([*head, 'reason'], lines)}\n\n{source}\n"


def judged(heat: NDArray[Any], question: Question, *, adds: bool) -> tuple[str, str]:
    """Return the verdict on a map, and the reason in a sentence.

    A map is right if its highest pixel and half of its total lie on the object, and partly right
    with one of the two. `adds` says whether the photograph scores above its baseline.
    """
    truth = question.truth()
    covers = float(truth.mean())
    if not adds:
        return UNEXPLAINED, "the photograph scores no higher than the baseline"
    if not heat.any():
        return NOTHING, "no part is above the tolerance"
    share = float(heat[truth].sum() / heat.sum())
    highest = bool(truth.ravel()[heat.argmax()])
    where = f"{share:.0%} of the map on the {question.thing} ({covers:.0%} of the pixels)"
    if covers > FILLED:
        return UNTESTED, where
    half = share >= HALF
    verdict = (MISSED, PARTLY, EVERYTHING)[highest + half]
    return verdict, f"{where}, highest pixel {'on' if highest else 'beside'} it"


def _photographs(model: nn.Module) -> Iterator[tuple[dict[str, Any], Explanation]]:
    explainer = Explainer(model)
    for photograph in PHOTOGRAPHS:
        image = photograph.image()
        shares = efficientnet.probabilities(model, image)
        _check(photograph, int(shares.argmax()))
        for question in photograph.questions:
            found = explainer.explain(image, question.index)
            adds = found.score > found.baseline_score
            verdict, why = judged(found.attribution(), question, adds=adds)
            if not question.is_there:
                why = f"the network takes the {question.thing} for a {question.name}; {why}"
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
        score = float(metrics.f1(found.attribution(), truth))
        row = {"kind": "crosses", "image": f"crosses {number}", "class": "cross", "f1": score}
        yield row | _told(found) | {"verdict": f"F1 {score:.2f}"}, found


def _told(found: Explanation) -> dict[str, Any]:
    """Return the cost of an explanation, the choices behind it, and its own words about itself."""
    return {
        "score": found.score,
        "baseline_score": found.baseline_score,
        "baseline": _named(found.settings["baseline"]),
        "chosen": found.settings.get("chosen"),
        "evidence": found.settings.get("evidence"),
        "evaluations": found.evaluations,
        "seconds": found.seconds,
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
