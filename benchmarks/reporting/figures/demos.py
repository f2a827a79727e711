"""Maps of every method for a few images of a task (paper, figures 4 and F.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.core import results
from benchmarks.core.tasks import TASKS as ALL
from benchmarks.reporting.figures import maps, style
from benchmarks.reporting.figures.data import NoResultsError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Example

TASKS = ("synthetic", "malaria", "malaria-ring", "boards")
COLUMNS = 7
IMAGES = 2  # of a figure
WIDTH = 11.0
TITLE = 0.36  # inches above each panel
MOST = 200  # pixels of a panel a side, about
TRUTH = "#00A000"


def draw(task: str, part: int = 0) -> Figure:
    """Show image after image, each with its maps behind it; scores are those of this image."""
    stored = maps.read(task, f"{task}` and then `benchmarks/run figures demos_{task} --compute")
    concept = ALL[task]().concept
    examples = _examples(task, set(stored))[part * IMAGES : (part + 1) * IMAGES]
    if not examples:
        message = (
            f"its maps are of other images, run `benchmarks/run figures demos_{task} --compute`"
        )
        raise NoResultsError(message)
    scores = {(row["image"], row["method"]): row for row in results.read_rows(task)}
    blocks = [-(-(len(stored[e.name]) + 1) // COLUMNS) for e in examples]
    tall = [height(e.image.shape) * rows for e, rows in zip(examples, blocks, strict=True)]
    figure = style.canvas(WIDTH, sum(tall))
    parts = figure.subfigures(len(examples), 1, squeeze=False, height_ratios=tall)[:, 0]
    for inner, example, rows in zip(parts, examples, blocks, strict=True):
        panels = [axes for row in style.panels(inner, rows, COLUMNS) for axes in row]
        _image(panels[0], example, concept)
        _maps(panels[1:], example, concept, stored[example.name], scores)
    return figure


def height(shape: tuple[int, ...], titled: float = 1.0) -> float:
    """Return the inches of a row of panels of such images."""
    return WIDTH / COLUMNS * 0.97 * shape[1] / shape[2] + titled * TITLE


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
    style.outline(axes, example.objects[concept], TRUTH)
    axes.set_title(f"image,\neach {concept} outlined", fontsize=8, pad=3)


def _maps(
    panels: list[Any],
    example: Example,
    concept: str,
    heats: dict[str, NDArray[Any]],
    scores: dict[tuple[str, str], dict[str, str]],
) -> None:
    for axes, (method, values) in zip(panels, heats.items(), strict=False):
        style.heat(axes, values, step=-(-max(values.shape) // MOST))
        style.outline(axes, example.objects[concept], TRUTH, width=0.4)
        row = scores.get((example.name, method))
        told = (
            f"\nF1 {float(row['f1']):.2f}, AUPRC {float(row['average_precision']):.2f}"
            if row
            else ""
        )
        look = style.look(method)
        axes.set_title(
            style.label(method) + told,
            fontsize=8,
            pad=3,
            color=look.colour if look.ours else "0.15",
        )
    for axes in panels[len(heats) :]:
        axes.set_axis_off()
