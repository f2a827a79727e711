"""What a run shows: a bar while it lasts, and a table at its end."""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from hshap.cli.output import plain
from hshap.errors import require

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from hshap.games.engine import Progress


class Counter:
    """Hears how far a run is, and tells a bar of rich."""

    def __init__(self, shown: Any, total: int, budget: int | None) -> None:
        self.evaluations = 0
        self._shown, self._total, self._budget = shown, total, budget
        self._started = monotonic()
        self._task = shown.add_task("explaining", total=1.0, said="")

    def __call__(self, progress: Progress) -> None:
        """Hear how far the run is."""
        self.evaluations = progress.evaluations
        done = progress.explanations / self._total
        if self._budget is not None:
            # No explanation takes more than its budget, so this much is done at least.
            done = max(done, progress.evaluations / (self._budget * self._total))
        rate = self.evaluations / max(monotonic() - self._started, 1e-9)
        said = (
            f"{progress.explanations}/{self._total}, {self.evaluations} evaluations, {rate:.0f}/s"
        )
        self._shown.update(self._task, completed=min(done, 1.0), said=said)


@contextmanager
def bar(total: int, budget: int | None = None) -> Generator[Counter, None, None]:
    """Show a bar on a terminal's standard error, with evaluations per second and time left."""
    rich = require("rich.progress", extra="cli", needed_by="the hshap command")
    console = require("rich.console", extra="cli", needed_by="the hshap command").Console(
        stderr=True
    )
    shown = rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TextColumn("{task.fields[said]}", markup=False),
        rich.TextColumn("left:"),
        rich.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with shown:
        yield Counter(shown, total, budget)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a table: numbers to the right, and words as they are, never as markup."""
    rich = require("rich.table", extra="cli", needed_by="the hshap command")
    text = require("rich.text", extra="cli", needed_by="the hshap command").Text
    console = require("rich.console", extra="cli", needed_by="the hshap command").Console()
    simple = require("rich.box", extra="cli", needed_by="the hshap command").SIMPLE_HEAD
    made = rich.Table(title=title, box=simple, title_justify="left")
    for number, heading in enumerate(headings):
        made.add_column(heading, justify="right" if number > 1 else "left", overflow="fold")
    for row in rows:
        made.add_row(*(text(plain(cell)) for cell in row))
    console.print(made)
