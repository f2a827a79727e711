"""Fill the marked places of README and docs with tables and numbers from the committed results.

A table stands between `<!-- table synthetic -->` and `<!-- end -->`: a name of `BLOCKS`, and its
argument if it takes one. `numbers` fills the marks of single numbers.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from benchmarks.core import markdown, results
from benchmarks.core.folders import RESULTS, ROOT
from benchmarks.experiments import equal
from benchmarks.methods import BUDGETED, METHODS
from benchmarks.reporting import budgets, numbers
from benchmarks.reporting.claims import claims

if TYPE_CHECKING:
    from collections.abc import Callable

HISTORY = ROOT / "docs" / "decisions"  # records of their day, never filled anew
PAGES = (
    ROOT / "README.md",
    ROOT / "benchmarks" / "README.md",
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if HISTORY not in page.parents and "_build" not in page.parts
    ),
)
MARK = re.compile(r"<!-- (?P<name>[a-z]+)(?P<options>[^>:]*?) -->\n.*?<!-- end -->", re.DOTALL)
NAMES = [method.name for method in (*METHODS, *BUDGETED)]
ASIDE = {method.name for method in BUDGETED if method.family != "hshap"}  # only at equal budgets

QUALITY = {
    "f1": "F1 at 1e-6",
    "f1_validated": "F1 validated",
    "iou_validated": "IoU validated",
    "f1_best": "best F1",
    "iou_best": "best IoU",
    "average_precision": "AUPRC",
    "pointing": "pointing",
    "energy": "energy",
}
FAITHFUL = {
    "object_recall": "objects found",
    "false_positives": "false finds",
    "deletion": "deletion ↓",
    "insertion": "insertion ↑",
    "road": "ROAD ↓",
}
COST = {
    "evaluations": "evaluations",
    "seconds": "seconds",
    "seconds_in_model": "in the model",
    "megabytes": "MB",
}
EVERY = QUALITY | FAITHFUL | COST
# The columns of the pages; table.md beside the results has all of them.
MAIN = {
    name: EVERY[name]
    for name in (
        "f1",
        "f1_validated",
        "iou_best",
        "average_precision",
        "pointing",
        "object_recall",
        "false_positives",
        "deletion",
        "insertion",
        "evaluations",
        "seconds",
    )
}
LOWER_IS_BETTER = {"false_positives", "deletion", "road"}
WITH_INTERVAL = {"f1", "f1_validated", "average_precision"}


RIVALS_HEAD = """# h-Shap against every rival

Differences of h-Shap to each method that asks no more evaluations, image by image, with 95 %
intervals of a paired bootstrap; **bold** where the interval leaves out 0, and above 0 where h-Shap
is better. A rival must have explained all images of the line. Written by `benchmarks/run report`.
All methods see the model's outputs only."""


def table(summary: dict[str, Any], columns: dict[str, str] = EVERY) -> str:
    """Return the measures of a task, one table a group; the best of a column is bold."""
    parts = []
    for group, methods in summary["groups"].items():
        images = max(entry["images"] for entry in methods.values())
        parts.append(f"**{group}** ({images} images)\n\n{_measures(methods, columns)}")
    parts += [f"{m} cannot run: {why}" for m, why in summary["cannot"].items()]
    parts += [
        f"{m} failed on {failed['images']} images, which count as empty maps: {failed['first']}"
        for m, failed in summary["failed"].items()
    ]
    return "\n\n".join(parts)


def source(summary: dict[str, Any]) -> str:
    """Return one line that says where a table comes from."""
    return (
        f"Commit {', '.join(summary['commits'])}, {', '.join(summary['dates'])}, seed "
        f"{summary['seed']}, thresholds from {summary['validation_images']} validation images. "
        f"Quality: mean over images [95 % bootstrap interval]; cost: median{_costs(summary)}."
    )


def _costs(summary: dict[str, Any]) -> str:
    if "costs" not in summary:
        return ", times not measured"
    costs = summary["costs"]
    return f", times and memory of {costs['images']} images alone ({costs['commit']})"


def write() -> None:
    """Fill the marks of every page, and write the full tables beside the results."""
    for path in sorted(RESULTS.glob("*/rows.csv.gz")):
        summary = results.read_summary(path.parent.name)
        whole = f"# {path.parent.name}\n\n{table(summary)}\n\n{source(summary)}\n"
        (path.parent / "table.md").write_text(whole)
    (RESULTS / "equal" / "rivals.md").write_text(rivals())
    for page in PAGES:
        text = page.read_text()
        if (new := filled(text)) != text:
            page.write_text(new)


def filled(text: str) -> str:
    """Return a page with every marked table and number as the results have it."""
    return numbers.filled(MARK.sub(_block, text))


def _block(match: re.Match[str]) -> str:
    name, options = match["name"], match["options"].split()
    content = BLOCKS[name](*options)
    return f"<!-- {' '.join([name, *options])} -->\n{content}\n<!-- end -->"


def _task_table(task: str) -> str:
    if not (results.folder(task) / "summary.json").exists():
        return f"Not run yet: `benchmarks/run {task}`."
    summary = results.read_summary(task)
    groups = {
        group: {name: entry for name, entry in methods.items() if name not in ASIDE}
        for group, methods in summary["groups"].items()
    }
    return f"{table(summary | {'groups': groups}, MAIN)}\n\n{source(summary)}"


def _budgets(task: str) -> str:
    rows = _rows_at_budgets(task)
    return budgets.table(rows) if rows else f"Not run yet: `benchmarks/run {task}`."


def _rows_at_budgets(task: str) -> list[dict[str, Any]]:
    """Return the rows of all methods on a set."""
    # Rows of `equal` are of methods that the main run lacks or has in an earlier state.
    further = equal.stored()["rows"].get(task, [])
    again = {row["method"] for row in further}
    there = (results.folder(task) / "rows.csv.gz").exists()
    kept = [row for row in results.read_rows(task) if row["method"] not in again] if there else []
    return [*kept, *further]


def rivals() -> str:
    """Return a page of ours against every rival at each budget, on every set of photographs."""
    parts = [f"## {task}\n\n{budgets.every(_rows_at_budgets(task))}" for task in equal.ASKED]
    return "\n\n".join([RIVALS_HEAD, *parts]) + "\n"


def _file(name: str) -> str:
    """Return the table that an experiment has written."""
    path = RESULTS / name / "table.md"
    return path.read_text().strip() if path.exists() else f"Not run yet: `benchmarks/run {name}`."


def _measures(methods: dict[str, Any], columns: dict[str, str]) -> str:
    best = {name: _best(methods, name) for name in QUALITY | FAITHFUL}
    images = max(entry["images"] for entry in methods.values())
    rows: list[tuple[str, ...]] = []
    for method in sorted(methods, key=_order):
        entry = methods[method]
        fewer = f" ({entry['images']} images)" if entry["images"] < images else ""
        bold = {} if fewer else best
        cells = (_cell(entry[name], name, bold.get(name)) for name in columns)
        rows.append((method + fewer, *cells))
    return markdown.table(["method", *columns.values()], rows)


def _best(methods: dict[str, Any], name: str) -> float:
    # Means over fewer images are not compared. A method that finds nothing has no false finds.
    images = max(entry["images"] for entry in methods.values())
    full = [entry for entry in methods.values() if entry["images"] == images]
    able = [e for e in full if name != "false_positives" or e["object_recall"][0] > 0.1]
    values = [entry[name][0] for entry in able]
    return min(values) if name in LOWER_IS_BETTER else max(values)


def _cell(value: list[float] | None, name: str, best: float | None) -> str:
    if value is None:
        return "-"
    if name in COST:
        return f"{value[0]:.3g}" if value[0] < 100 else f"{value[0]:.0f}"
    shown = f"{value[0]:.2f}" if value[0] < 10 else f"{value[0]:.1f}"
    if name in WITH_INTERVAL:
        shown += f" [{value[1]:.2f}, {value[2]:.2f}]"
    return f"**{shown}**" if value[0] == best else shown


def _order(method: str) -> int:
    return NAMES.index(method) if method in NAMES else len(NAMES)


def _claims() -> str:
    rows = [(claim.text, f"**{claim.verdict}**", claim.evidence) for claim in claims()]
    return markdown.table(["the paper says", "here", "evidence"], rows)


def _models() -> str:
    rows: list[tuple[object, ...]] = []
    for path in sorted(RESULTS.glob("train_*.json")):
        stored = json.loads(path.read_text())
        judged = stored["test"] if "test" in stored else stored["splits"]["test"]
        concepts = {"": judged} if "accuracy" in judged else _concepts(judged)
        name = path.stem.removeprefix("train_").replace("_", " ")
        rows += [_model(f"{name} {concept}".strip(), entry) for concept, entry in concepts.items()]
    return markdown.table(["network", "test images", "accuracy", "AUC"], rows)


def _model(name: str, judged: dict[str, Any]) -> tuple[object, ...]:
    accuracy = f"{100 * judged['accuracy']:.1f} % {_limits(judged['wilson_95'], 100)}"
    auc = f"{judged['auc']:.3f} {_limits(judged.get('auc_95'), 1)}".strip()
    return name, judged["images"], accuracy, auc


def _limits(interval: list[float] | None, scale: float) -> str:
    if interval is None:
        return ""
    low, high = (f"{scale * limit:.3g}" for limit in interval)
    return f"[{low}, {high}]"


def _concepts(judged: dict[str, Any]) -> dict[str, Any]:
    return {name: entry for name, entry in judged.items() if "accuracy" in entry}


BLOCKS: dict[str, Callable[..., str]] = {
    "table": _task_table,
    "claims": _claims,
    "models": _models,
    "budgets": _budgets,
    "file": _file,
}
