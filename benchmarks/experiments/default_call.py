"""The default call as a user writes it, against peers as their own documentation calls them.

Run `benchmarks/run default`. Ours is `hshap.Explainer(model).explain(image, target).attribution()`
without any option, for the same network as a torch module, as a function of arrays that returns
probabilities, and as an ONNX session. Boards give their template as `Fixed(template)`. The torch
module and the session give logits. COCO's detector is a function only: its file takes one image at
a time and gives cells. Peers that see outputs only explain the scores of the function
(methods/blackbox.py). Grad-CAM, and its mean with the gradient times the difference from the
baseline, explain the logit.

For choosing, that is for every constant of the default call: coco-choosing, photographs,
platelets-validation and boards-validation. For judging: coco-judging, pets, malaria, platelets and
boards (test images). Of pets every second photograph is asked, of boards the first 40.

The last calls limit the evaluations, to see whether more of them ever make a map worse.

The results keep a row for each set, call and image, and a row that is there is not made again;
delete it to make it anew. A run that was stopped continues where it was.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hshap
from benchmarks.core import markdown, results
from benchmarks.core.comparison import by_method, compared, evaluations
from benchmarks.core.meter import Meter, timed
from benchmarks.core.protocol import Cannot, Method
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.runner import checked
from benchmarks.core.tasks import SEED
from benchmarks.experiments.default_questions import MOST, SETS, Array, Question, questions
from benchmarks.methods import blackbox
from benchmarks.methods.gradients import METHODS as GRADIENTS
from benchmarks.methods.guided import BOTH
from hshap import metrics
from hshap._util.smoothing import gaussian

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Row = dict[str, Any]
Rows = dict[str, Any]  # by method and image, or by image

FRONTS = ("torch", "function", "ONNX")
BUDGETS = (20, 50, 100, 400, 1000)
MEASURES = {
    "average_precision": "AUPRC",
    "pointing": "pointing",
    "energy": "mass",
    "insertion_less_deletion": "insertion - deletion",
}
WORDS = {"behind": "**loses**", "not told apart": "", "too few images": "(few images)"}
NOTE = (
    "Means over images; medians of evaluations and seconds, on one core with other work beside. "
    "Differences have paired bootstrap intervals of 95 %."
)
WITH_CURVES = ("coco-choosing", "coco-judging", "pets")
STEPS = 24  # of each curve
BLURRED = 20  # the standard deviation of the curves' baseline is the shorter side over this


@dataclass(frozen=True)
class Call:
    """A way to explain a question: `explain(question)` gives a map and its evaluations."""

    name: str
    explain: Callable[[Question], tuple[Array, int]]
    front: str | None = None  # the form of the network that it needs; None for peers
    gradients: bool = False


def ours(question: Question, front: str, search: Any = None) -> tuple[Array, int]:
    """Explain as users do; only the experiment with budgets gives a search."""
    example, given = question.example, {} if search is None else {"search": search}
    if question.subject.template:
        given["baseline"] = hshap.Fixed(example.counterfactual)
    explainer = hshap.Explainer(question.fronts[front], **given)
    found = explainer.explain(example.image, question.target)
    return found.attribution(), found.evaluations


def at_budget(budget: int) -> Any:
    """Return the search that stops after so many evaluations."""
    return hshap.BestFirst(max_evaluations=budget)


def limited(question: Question, budget: int) -> tuple[Array, int]:
    """Explain the function as users do, with at most so many evaluations."""
    return ours(question, "function", at_budget(budget))


def peer(question: Question, method: Method) -> tuple[Array, int]:
    """Explain by a method of others, and count the inputs that it shows to the model."""
    meter = Meter(question.subject.model).eval()
    heat = method.explain(replace(question.subject, model=meter), question.example.image.copy())
    return heat, meter.watch.evaluations


OURS = tuple(Call(f"h-shap, {f}", partial(ours, front=f), f) for f in FRONTS)
LIMITED = tuple(
    Call(f"h-shap, function, at {n}", partial(limited, budget=n), "function") for n in BUDGETS
)
GRAD_CAM = next(method for method in GRADIENTS if method.name == "Grad-CAM")
PEERS = tuple(
    Call(method.name, partial(peer, method=method), gradients=method.gradients)
    for method in (
        *blackbox.METHODS,
        GRAD_CAM,
        replace(BOTH, name="Grad-CAM and gradient"),
        *blackbox.REX,
    )
)
CALLS = (*OURS, *PEERS, *LIMITED)


def run(sets: Sequence[str] = (), most: int | None = None, *, rex: bool = False) -> None:
    """Make the rows that the results lack, set after set, and write the tables.

    ReX has no budget and takes more than 2000 evaluations, so it is left out unless asked for.
    """
    torch.set_num_threads(1)
    content = stored()
    for name in sets or SETS:
        rows = content["rows"].setdefault(name, [])
        done = {(row["method"], row["image"]) for row in rows}
        asked = list(islice(questions(name), most or MOST.get(name)))
        for call in CALLS if rex else [c for c in CALLS if not c.name.startswith("ReX")]:
            lacking = [q for q in asked if (call.name, q.example.name) not in done]
            able = [q for q in lacking if can(call, q)]
            for number, question in enumerate(able, 1):
                print(f"{name}, {call.name}, {number} of {len(able)}", flush=True)
                rows.append(judged(name, call, question))
            if able:
                _keep(content | {"versions": versions()})
        results.write_experiment(content | {"versions": versions()}, page(content))


def can(call: Call, question: Question) -> bool:
    """Tell whether the network comes in the form that a call needs."""
    if call.front is not None:
        return call.front in question.fronts
    return not call.gradients or "torch" in question.fronts


def judged(name: str, call: Call, question: Question) -> Row:
    """Explain one image by one call, and measure map and cost; a failure is an empty map."""
    image, truth = question.example.image, question.truth
    row: Row = {"method": call.name, "image": question.example.name}
    try:
        (heat, spent), seconds = timed(partial(call.explain, question))
        heat = checked(heat, image)
    except (Exception, Cannot) as error:  # noqa: BLE001, a failure is a result
        heat, spent, seconds = np.zeros(image.shape[1:]), 0, 0.0
        row["failed"] = f"{type(error).__name__}: {error}"[:300]
    row |= {
        "evaluations": spent,
        "seconds": round(seconds, 3),
        "average_precision": metrics.average_precision(heat, truth),
        "pointing": metrics.pointing_game(heat, truth),
        "energy": metrics.energy_pointing_game(heat, truth),
    }
    if name in WITH_CURVES:
        bare = gaussian(image.astype(np.float64), min(image.shape[1:]) / BLURRED, (1, 2))
        areas = [
            metrics.area_under(curve(question.score, image, heat, bare, steps=STEPS, seed=SEED))
            for curve in (metrics.insertion, metrics.deletion)
        ]
        row["insertion_less_deletion"] = areas[0] - areas[1]
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()} | provenance()


def stored() -> Row:
    """Return the results so far, or empty ones."""
    path = results.folder("default") / "summary.json"
    return json.loads(path.read_text()) if path.exists() else {"task": "default", "rows": {}}


def _keep(content: Row) -> None:
    folder = results.folder("default")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(content, indent=1) + "\n")


def page(content: Row) -> str:
    """Return the results as Markdown: every call, ours against each peer, and budgets."""
    there = {name: by_method(content["rows"][name]) for name in SETS if content["rows"].get(name)}
    parts = [part for name, by in there.items() for part in _tables(name, by)]
    rows = [row for name in there for row in content["rows"][name]]
    commits, dates = (", ".join(sorted({row[key] for row in rows})) for key in ("commit", "date"))
    return "\n\n".join([*parts, f"Commit {commits}, {dates}. {NOTE}"]) + "\n"


def _tables(name: str, by: Rows) -> list[str]:
    measures = {key: title for key, title in MEASURES.items() if key in _first(by)}
    every = [call.name for call in CALLS if call.name in by]
    of_all = frozenset.intersection(*(frozenset(by[one]) for one in every))
    title = f"{name} (for {SETS[name]}), {len(of_all)} images"
    parts = [_means_table(title, by, measures, of_all)] if of_all else []
    ours_alone = {one.name: by[one.name] for one in OURS if one.name in by}
    further = frozenset.intersection(*map(frozenset, ours_alone.values())) - of_all
    if further:
        title = f"{name}, {len(further)} images that no other method was asked about"
        parts.append(_means_table(title, ours_alone, measures, further))
    peers = [call.name for call in PEERS if call.name in by]
    for call in OURS:
        if call.name in by and peers:
            against = [(p, *(_difference(by, call.name, p, m) for m in measures)) for p in peers]
            parts.append(markdown.table([f"{call.name} less", *measures.values()], against))
    steps = [pair for pair in pairwise(c.name for c in LIMITED) if all(one in by for one in pair)]
    if steps:
        more = [(m, f, *(_difference(by, m, f, key) for key in measures)) for f, m in steps]
        head = [f"{name}, larger budget", "less smaller budget", *measures.values()]
        parts.append(markdown.table(head, more))
    return parts


def _means_table(title: str, by: Rows, measures: Row, images: frozenset[str]) -> str:
    """Return the means over some images, a line for each call."""
    chosen = {
        call.name: {image: by[call.name][image] for image in images}
        for call in CALLS
        if call.name in by
    }
    lines = [(one, *_means(rows, measures), *_costs(rows)) for one, rows in chosen.items()]
    head = [title, *measures.values(), "evaluations", "seconds", "failed"]
    return markdown.table(head, lines)


def _means(rows: Rows, measures: Row) -> list[str]:
    return [f"{fmean(row[key] for row in rows.values()):.2f}" for key in measures]


def _costs(rows: Rows) -> tuple[str, ...]:
    failed = sum("failed" in row for row in rows.values())
    seconds = median(row["seconds"] for row in rows.values())
    return f"{evaluations(rows):.0f}", f"{seconds:.2f}", str(failed or "")


def _difference(by: Rows, one: str, other: str, measure: str) -> str:
    """Return the mean difference on the images of both, and whether it is a loss."""
    both = by[one].keys() & by[other].keys()
    if not both:
        return "no image of both"
    same = {name: {image: by[name][image] for image in both} for name in (one, other)}
    *_, difference, verdict = compared(same, one, [other], measure)
    return f"{difference} {WORDS.get(verdict, verdict)}".rstrip()


def _first(by: Rows) -> Row:
    return next(iter(next(iter(by.values())).values()))
