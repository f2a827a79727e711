"""`hshap compare`: the agreement of two explanations of one image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from hshap._util.visible import as_text, visible
from hshap.cli import options as opt
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.explanations import load_picture, source
from hshap.cli.output import print_json
from hshap.cli.progress import table, tell
from hshap.cli.runs.output_files import single
from hshap.errors import require
from hshap.explanation.display import unit_of
from hshap.plot.fonts import drawable
from hshap.plot.overlay import Look, draw_bar, draw_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hshap._util.types import Array, Heat, Json
    from hshap.explanation.explanation import Explanation

COLOURS = ("#4477aa", "#ccbb44", "#ee6677")  # distinct for colour-blind readers too


def compare(  # noqa: PLR0913, one for each option
    a: Annotated[Path, typer.Argument(metavar="A.npz", help="One explanation.")],
    b: Annotated[Path, typer.Argument(metavar="B.npz", help="Another of the same image.")],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The picture of both.")] = Path(
        "compare.png"
    ),
    force: opt.Force = False,
    json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Measure how far two explanations agree, and draw both."""
    del debug
    one, other = load_picture(a), load_picture(b)
    if one.grid != other.grid:
        message = (
            f"{a} explains {one.grid[0]} x {one.grid[1]} pixels, but {b} explains "
            f"{other.grid[0]} x {other.grid[1]}; pass two of the same image and size"
        )
        raise Refusal(Code.INPUT, message)
    agreed = agreement(one, other)
    with single(out, force=force, inputs=(a, b)) as path:
        _picture(one, other, tuple(visible(f"{p.parent.name}/{p.name}") for p in (a, b))).savefig(
            path, dpi=120, bbox_inches="tight", format="png"
        )
    if json:
        sides = {"a": _document(one, a), "b": _document(other, b)}
        print_json({**sides, "agreement": agreed, "picture": as_text(str(out))})
        return
    rows = [
        (name.replace("_", " "), str(_document(one, a)[name]), str(_document(other, b)[name]))
        for name in ("class", "score", "leaves", "area", "evaluations", "how_sure")
    ]
    table(("", "A", "B"), [("file", a.name, b.name), *rows])
    table(("agreement", ""), [(k.replace("_", " "), _number(v)) for k, v in agreed.items()])
    tell(f"the picture is {out}")


def agreement(one: Explanation, other: Explanation) -> dict[str, float | int | None]:
    """Return measures of the agreement of two explanations of one grid.

    `iou` is that of the two areas found; it is 1 if both are empty. `rank_correlation` is
    Spearman's for the maps of coefficients; it is None if one map is constant.
    """
    mine, theirs = set(one.leaves), set(other.leaves)
    found = [explanation.saliency() > 0 for explanation in (one, other)]
    union = np.logical_or(*found).sum()
    overlap = np.logical_and(*found).sum()
    return {
        "same_leaves": len(mine & theirs),
        "leaves_of_a_only": len(mine - theirs),
        "leaves_of_b_only": len(theirs - mine),
        "iou": float(overlap / union) if union else 1.0,
        "rank_correlation": rank_correlation(one.coefficients(), other.coefficients()),
    }


def rank_correlation(one: Array, other: Array) -> float | None:
    """Return Spearman's rank correlation of two maps; equal values share their mean rank.

    >>> rank_correlation(np.array([1, 2, 2]), np.array([0, 5, 5]))
    1.0
    """
    ranks = [_ranks(values.ravel()) for values in (one, other)]
    centred = [values - values.mean() for values in ranks]
    norm = float(np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum()))
    return round(float((centred[0] * centred[1]).sum()) / norm, 12) if norm else None


def _ranks(values: Array) -> Heat:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _document(explanation: Explanation, path: Path) -> dict[str, Json]:
    return {
        "file": as_text(str(path)),
        "class": source(explanation, "class", str(explanation.target)),
        "score": float(f"{explanation.score:.6g}"),
        "leaves": len(explanation.leaves),
        "area": round(float((explanation.saliency() > 0).mean()), 6),
        "evaluations": explanation.evaluations,
        "how_sure": explanation.how_sure.word,
    }


def _number(value: float | None) -> str:
    return "undefined: one map is constant" if value is None else f"{value:.4g}"


def _picture(one: Explanation, other: Explanation, names: tuple[str, ...]) -> Figure:
    require("matplotlib", extra="plot", needed_by="hshap compare")
    from matplotlib.colors import ListedColormap  # noqa: PLC0415, an optional dependency
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    figure = Figure(figsize=(12, 4.4), layout="constrained")
    axes = figure.subplots(1, 3)
    titles = [f"{letter}: {name[-40:]}" for letter, name in zip("AB", names, strict=True)]
    for place, explanation, title in zip(axes, (one, other), titles, strict=False):
        heat = explanation.attribution()
        draw_bar(place, draw_picture(place, None, heat, Look.of([heat])), unit=unit_of(heat))
        text, fonts = drawable(title)
        place.set_title(text, fontsize="small", fontfamily=fonts, parse_math=False)
    found = [(explanation.saliency() > 0).astype(int) for explanation in (one, other)]
    colours = ListedColormap(["0.93", *COLOURS])
    axes[2].imshow(found[0] + 2 * found[1], cmap=colours, vmin=0, vmax=3, interpolation="nearest")
    axes[2].set_title("found by", fontsize="small")
    words = ("A only", "B only", "both")
    patches = [Patch(color=colour, label=word) for colour, word in zip(COLOURS, words, strict=True)]
    axes[2].legend(
        handles=patches, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3
    )
    for place in axes:
        place.set_xticks([])
        place.set_yticks([])
    return figure
