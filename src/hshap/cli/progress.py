"""The terminal: a progress bar, tables and lines. Names in them are shown, never obeyed."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

import typer

from hshap._util.visible import visible
from hshap.errors import require

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from rich.progress import Progress as Bar

    from hshap.games.engine import Progress

NEEDED_BY = "the hshap command"


class Counter:
    """Receives the progress of a run, and moves a bar of rich."""

    def __init__(self, shown: Bar, total: int, budget: int | None) -> None:
        self.evaluations = 0
        self._shown, self._total, self._budget = shown, total, budget
        self._started = monotonic()
        self._task = shown.add_task("explaining", total=1.0, text="")

    def __call__(self, progress: Progress) -> None:
        """Move the bar."""
        self.evaluations = progress.evaluations
        done = progress.explanations / self._total
        if self._budget is not None:
            # No explanation takes more than its budget, so this share is a lower bound.
            done = max(done, progress.evaluations / (self._budget * self._total))
        rate = self.evaluations / max(monotonic() - self._started, 1e-9)
        text = (
            f"{progress.explanations}/{self._total}, {self.evaluations} evaluations, {rate:.0f}/s"
        )
        self._shown.update(self._task, completed=min(done, 1.0), text=text)


@contextmanager
def bar(total: int, budget: int | None = None) -> Generator[Counter, None, None]:
    """Show a bar on a terminal's standard error, with evaluations per second and time left."""
    rich = require("rich.progress", extra="cli", needed_by=NEEDED_BY)
    console = require("rich.console", extra="cli", needed_by=NEEDED_BY).Console(stderr=True)
    shown = rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TextColumn("{task.fields[text]}", markup=False),
        rich.TextColumn("left:"),
        rich.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    shown.start()
    try:
        yield Counter(shown, total, budget)
    finally:
        with suppress(OSError):  # the terminal may be closed
            shown.stop()


def tell(text: str) -> None:
    """Write a line to standard output."""
    typer.echo(visible(text))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a table: the first two columns left, the others right; cells are never markup."""
    rich = require("rich.table", extra="cli", needed_by=NEEDED_BY)
    text = require("rich.text", extra="cli", needed_by=NEEDED_BY).Text
    console = require("rich.console", extra="cli", needed_by=NEEDED_BY).Console()
    simple = require("rich.box", extra="cli", needed_by=NEEDED_BY).SIMPLE_HEAD
    heading = None if title is None else text(visible(title), style="table.title")
    made = rich.Table(title=heading, box=simple, title_justify="left", padding=(0, 1, 0, 0))
    shown = [[visible(cell) for cell in row] for row in rows]
    for number, name in enumerate(headings):
        side = "right" if number > 1 else "left"
        # On a narrow terminal, names are folded, and never words and numbers of other columns.
        words = [word for cell in (name, *(row[number] for row in shown)) for word in cell.split()]
        longest = max(map(len, words), default=0) if number > 1 else None
        made.add_column(name, justify=side, overflow="fold", min_width=longest)
    for row in shown:
        made.add_row(*map(text, row))
    console.print(made)
