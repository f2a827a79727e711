"""Maps of the best setting of each kind for a few images of a task (paper, figures 4 and F.1)."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

from benchmarks.core import results
from benchmarks.core.tasks import TASKS as ALL
from benchmarks.reporting.figures import choice, maps, style
from benchmarks.reporting.figures.data import NoResultsError, pooled

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Example
    from benchmarks.reporting.figures.data import Entries

TASKS = ("synthetic", "malaria", "malaria-ring", "boards")
COLUMNS = 5
IMAGES = 2  # of a figure
TITLE = 0.52  # inches above each panel, for three lines
WRAP = 24  # letters of a line of a title
MOST = 200  # pixels of a panel a side, about


def draw(task: str, part: int = 0) -> Figure:
    """Show image after image, each with its maps behind it; scores are those of this image."""
    kept = maps.read(task, f"{task}` and then `benchmarks/run figures demos_{task} --compute")
    rows = results.read_rows(task)
    entries = pooled(rows)
    stored = {image: best(heats, entries) for image, heats in kept.items()}
    concept = ALL[task]().concept
    examples = _examples(task, set(stored))[part * IMAGES : (part + 1) * IMAGES]
    if not examples:
        message = (
            f"its maps are of other images, run `benchmarks/run figures demos_{task} --compute`"
        )
        raise NoResultsError(message)
    scores = {(row["image"], row["method"]): row for row in rows}
    blocks = [-(-(len(stored[e.name]) + 1) // COLUMNS) for e in examples]
    tall = [height(e.image.shape) * block for e, block in zip(examples, blocks, strict=True)]
    figure = style.canvas(style.WIDTH, sum(tall))
    parts = figure.subfigures(len(examples), 1, squeeze=False, height_ratios=tall)[:, 0]
    for inner, example, block in zip(parts, examples, blocks, strict=True):
        panels = [axes for row in style.panels(inner, block, COLUMNS) for axes in row]
        _image(panels[0], example, concept)
        _maps(panels[1:], example, concept, stored[example.name], scores)
    return figure


def best(heats: dict[str, Any], entries: Entries) -> dict[str, Any]:
    """Keep the best setting of each kind, in the order of the tables."""
    found = choice.best_settings({method: entries[method] for method in heats if method in entries})
    return {method: heats[method] for method in style.ordered(found)}


def title(axes: Any, method: str, *more: str) -> None:
    """Write a method's name above its panel, and further lines below the name."""
    lines = [fill(style.label(method), WRAP), *more]
    axes.set_title("\n".join(lines), fontsize=style.SMALL, pad=3, linespacing=1.05)
    style.mark_ours([axes.title], [method])


def height(shape: tuple[int, ...], titled: float = 1.0) -> float:
    """Return the inches of a row of panels of such images."""
    return style.WIDTH / COLUMNS * 0.97 * shape[1] / shape[2] + titled * TITLE


def _examples(task: str, known: set[str]) -> list[Example]:
    """Return the shown images that have maps, one of each group before a second of any."""
    shown = [e for e in ALL[task]().positives("test", quick=True) if e.name in known]
    seen: dict[str, int] = {}
    turns = []
    for example in shown:
        turns.append(seen.setdefault(example.group, 0))
        seen[example.group] += 1
    return [shown[i] for i in sorted(range(len(shown)), key=lambda i: (turns[i], i))]


def _image(axes: Any, example: Example, concept: str) -> None:
    style.picture(axes, example.image)
    style.outline(axes, example.objects[concept], style.TRUTH)
    axes.set_title(f"image,\neach {concept} outlined", fontsize=style.SMALL, pad=3)


def _maps(
    panels: list[Any],
    example: Example,
    concept: str,
    heats: dict[str, NDArray[Any]],
    scores: dict[tuple[str, str], dict[str, str]],
) -> None:
    for axes, (method, values) in zip(panels, heats.items(), strict=False):
        style.heat(axes, values, step=-(-max(values.shape) // MOST))
        style.outline(axes, example.objects[concept], style.TRUTH, width=0.4)
        row = scores.get((example.name, method))
        scored = [_scored(row)] if row else []
        title(axes, method, *scored)
    for axes in panels[len(heats) :]:
        axes.set_axis_off()


def _scored(row: dict[str, str]) -> str:
    return f"F1 {float(row['f1']):.2f}, AUPRC {float(row['average_precision']):.2f}"
