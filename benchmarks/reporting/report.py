"""Fill the marked tables of the pages from the committed results: `benchmarks/run report`.

A table stands between `<!-- table NAME -->` and `<!-- end -->`. NAME is one of `BLOCKS`, or an
experiment, whose `results/NAME/table.md` is shown.
"""

from __future__ import annotations

import json
import re
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.core import markdown, results
from benchmarks.core.comparison import by_method, compared, of_common_images
from benchmarks.core.folders import RESULTS, ROOT
from benchmarks.methods import METHODS
from benchmarks.reporting.claims import claims

if TYPE_CHECKING:
    from collections.abc import Callable

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PAGES += tuple(sorted((ROOT / "docs" / "how-to").glob("*.md")))
MARK = re.compile(r"<!-- table (?P<name>[a-z]+) -->\n.*?<!-- end -->", re.DOTALL)
NAMES = [method.name for method in METHODS]
COLUMNS = {
    "f1": "F1 at 1e-6",
    "f1_validated": "F1 validated",
    "iou_validated": "IoU validated",
    "f1_best": "best F1",
    "iou_best": "best IoU",
    "average_precision": "AUPRC",
    "pointing": "pointing",
    "energy": "energy",
    "object_recall": "objects found",
    "false_positives": "false finds",
    "deletion": "deletion ↓",
    "insertion": "insertion ↑",
    "evaluations": "evaluations",
}
LOWER_IS_BETTER = {"false_positives", "deletion"}
WITH_INTERVAL = {"f1", "f1_validated", "average_precision"}
JUDGED = ("coco-judging", "pets", "malaria", "platelets", "boards")
FRONTS = ("h-shap, torch", "h-shap, function")
SHOWN = ("RISE 500", "PartitionExplainer 500", "shap-bpt 500", "Grad-CAM", "Grad-CAM and gradient")


def table(summary: dict[str, Any]) -> str:
    """Return the measures of a task, one table a group; the best of a column is bold."""
    parts = []
    for group, methods in summary["groups"].items():
        images = max(entry["images"] for entry in methods.values())
        parts.append(f"**{group}** ({images} images)\n\n{_measures(methods)}")
    parts += [f"{m} cannot run: {why}" for m, why in summary["cannot"].items()]
    parts += [
        f"{m} failed on {failed['images']} images, which count as empty maps: {failed['first']}"
        for m, failed in summary["failed"].items()
    ]
    return "\n\n".join(parts)


def source(summary: dict[str, Any]) -> str:
    """Return one line that says where a table comes from."""
    return (
        f"Commits {', '.join(summary['commits'])}, {', '.join(summary['dates'])}, seed "
        f"{summary['seed']}, thresholds from {summary['validation_images']} validation images. "
        "Quality: mean over images [95 % bootstrap interval]; evaluations: median."
    )


def write() -> None:
    """Write the tables beside the results, and fill the marks of every page."""
    for path in sorted(RESULTS.glob("*/rows.csv.gz")):
        summary = results.read_summary(path.parent.name)
        whole = f"# {path.parent.name}\n\n{table(summary)}\n\n{source(summary)}\n"
        (path.parent / "table.md").write_text(whole)
    rows = [(claim.text, f"**{claim.verdict}**", claim.evidence) for claim in claims()]
    told = markdown.table(["the paper says", "here", "evidence"], rows)
    (RESULTS / "claims.md").write_text(f"# The paper's claims\n\n{told}\n")
    for page in PAGES:
        text = page.read_text()
        if (new := filled(text)) != text:
            page.write_text(new)


def filled(text: str) -> str:
    """Return a page with every marked table as the results have it."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        content = BLOCKS[name]() if name in BLOCKS else _file(name)
        return f"<!-- table {name} -->\n{content}\n<!-- end -->"

    return MARK.sub(block, text)


def _file(name: str) -> str:
    path = RESULTS / name / "table.md"
    return path.read_text().strip() if path.exists() else f"Not made yet: `benchmarks/run {name}`."


def _measures(methods: dict[str, Any]) -> str:
    best = {name: _best(methods, name) for name in COLUMNS if name != "evaluations"}
    images = max(entry["images"] for entry in methods.values())
    rows: list[tuple[str, ...]] = []
    for method in sorted(methods, key=_order):
        entry = methods[method]
        fewer = f" ({entry['images']} images)" if entry["images"] < images else ""
        bold = {} if fewer else best
        cells = (_cell(entry[name], name, bold.get(name)) for name in COLUMNS)
        rows.append((method + fewer, *cells))
    return markdown.table(["method", *COLUMNS.values()], rows)


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
    if name == "evaluations":
        return f"{value[0]:.3g}" if value[0] < 100 else f"{value[0]:.0f}"
    shown = f"{value[0]:.2f}" if value[0] < 10 else f"{value[0]:.1f}"
    if name in WITH_INTERVAL:
        shown += f" [{value[1]:.2f}, {value[2]:.2f}]"
    return f"**{shown}**" if value[0] == best else shown


def _order(method: str) -> int:
    return NAMES.index(method) if method in NAMES else len(NAMES)


def _claims() -> str:
    return markdown.table(["the paper says", "here"], [(one.text, one.verdict) for one in claims()])


def _default() -> str:
    """Return the AUPRC of the default call and of peers on the sets for judging."""
    stored = results.read_summary("default")["rows"]
    rows = []
    for name in JUDGED:
        by = of_common_images(by_method(stored[name]))
        ours = next(front for front in FRONTS if front in by)
        mean = fmean(row["average_precision"] for row in by[ours].values())
        cells = [_against(by, ours, peer) for peer in SHOWN]
        rows.append((f"{name} ({len(by[ours])} images)", f"{mean:.2f}", *cells))
    return markdown.table(["set", "h-shap", *SHOWN], rows)


def _against(by: dict[str, Any], ours: str, peer: str) -> str:
    """Return the mean of a peer and how far ours is above it; bold where ours loses."""
    both = by[ours].keys() & by.get(peer, {}).keys()
    if not both:
        return "-"
    same = {name: {image: by[name][image] for image in both} for name in (ours, peer)}
    _, _, difference, verdict = compared(same, ours, [peer], "average_precision")
    shown = f"{fmean(row['average_precision'] for row in same[peer].values()):.2f}, {difference}"
    return f"**{shown}**" if verdict == "behind" else shown


def _networks() -> str:
    rows: list[tuple[object, ...]] = []
    for path in sorted(RESULTS.glob("train_*.json")):
        stored = json.loads(path.read_text())
        judged = stored["test"] if "test" in stored else stored["splits"]["test"]
        judged = judged.get("trophozoite", judged)
        accuracy = f"{100 * judged['accuracy']:.1f} % {_limits(judged['wilson_95'], 100)}"
        auc = f"{judged['auc']:.3f} {_limits(judged.get('auc_95'), 1)}".strip()
        rows.append((path.stem.removeprefix("train_"), judged["images"], accuracy, auc))
    return markdown.table(["network", "test images", "accuracy", "AUC"], rows)


def _limits(interval: list[float] | None, scale: float) -> str:
    if interval is None:
        return ""
    low, high = (f"{scale * limit:.3g}" for limit in interval)
    return f"[{low}, {high}]"


BLOCKS: dict[str, Callable[[], str]] = {
    "claims": _claims,
    "default": _default,
    "networks": _networks,
}
