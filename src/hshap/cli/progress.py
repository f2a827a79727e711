"""The terminal: a progress bar, tables and lines. Names in them are shown, never obeyed."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import typer

from hshap._util.visible import visible
from hshap.cli.output import say
from hshap.errors import require

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from typing import Self

    from rich.progress import Progress as Bar

    from hshap.games.engine import Progress

T = TypeVar("T")

NEEDED_BY = "the hshap command"
EVERY = 5.0
"""Seconds between two lines, where there is no terminal to draw a bar on."""


class Shown:
    """How far a long work is: a bar of rich on a terminal, elsewhere a line every few seconds.

    The lines come from a thread, so that also a single slow step is seen to be under way.
    """

    def __init__(self, name: str, every: float | None = None) -> None:
        self._every = EVERY if every is None else every
        self._name, self._text, self._share = name, "", 0.0
        self._started, self._done, self._is_bound = monotonic(), Event(), False
        self._bar = _bar()
        self._task = self._bar.add_task(name, total=1.0, text="")
        self._thread = Thread(target=self._write_lines, daemon=True)

    def __enter__(self) -> Self:
        if self._bar.disable:
            self._thread.start()
        else:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        with suppress(OSError):  # the terminal may be closed
            if self._bar.disable:
                self._thread.join()
            else:
                self._bar.stop()

    @property
    def seconds(self) -> float:
        """Seconds since the work began."""
        return monotonic() - self._started

    def update(self, share: float, text: str, *, is_bound: bool = False) -> None:
        """Tell that a share of the work is done, from 0 to 1; `is_bound` if it may be far more."""
        self._share, self._text, self._is_bound = min(share, 1.0), text, is_bound
        self._bar.update(self._task, completed=self._share, text=text)

    def _write_lines(self) -> None:
        while not self._done.wait(self._every):
            past, share = self.seconds, self._share
            known = share > 0.01 and not self._is_bound
            left = f", about {duration(past * (1 - share) / share)} left" if known else ""
            text = f"{self._text}, " if self._text else ""
            with suppress(OSError, ValueError):  # closed
                say(f"{self._name}: {text}{duration(past)}{left}")


class Counter:
    """Receives the progress of a run, and shows it."""

    def __init__(self, shown: Shown, total: int, budget: int | None) -> None:
        self.evaluations = 0
        self._shown, self._total, self._budget = shown, total, budget

    def __call__(self, progress: Progress) -> None:
        """Show the progress."""
        self.evaluations = progress.evaluations
        done = progress.explanations / self._total
        if self._budget is not None:
            # No explanation takes more than its budget, so this share is a lower bound.
            done = max(done, progress.evaluations / (self._budget * self._total))
        rate = self.evaluations / max(self._shown.seconds, 1e-9)
        counts = f"{progress.explanations}/{self._total}, {self.evaluations} evaluations"
        is_bound = not progress.explanations
        self._shown.update(done, f"{counts}, {rate:.0f}/s", is_bound=is_bound)


@contextmanager
def bar(
    total: int, budget: int | None = None, every: float | None = None
) -> Generator[Counter, None, None]:
    """Show the progress of a run: explanations, evaluations per second and the time left."""
    with Shown("explaining", every) as shown:
        yield Counter(shown, total, budget)


@contextmanager
def each(
    name: str, items: Sequence[T], every: float | None = None
) -> Generator[Iterator[T], None, None]:
    """Give the items one by one, and show how many are done."""

    def counted() -> Iterator[T]:
        for number, item in enumerate(items):
            shown.update(number / len(items), f"{number}/{len(items)}")
            yield item

    with Shown(name, every) as shown:
        yield counted()


def _bar() -> Bar:
    rich = require("rich.progress", extra="cli", needed_by=NEEDED_BY)
    console = require("rich.console", extra="cli", needed_by=NEEDED_BY).Console(stderr=True)
    return rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TextColumn("{task.fields[text]}", markup=False),
        rich.TextColumn("left:"),
        rich.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(5.4), duration(200), duration(8000)
    ('5.4 s', '3 min', '2.2 h')
    """
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def status(text: str, *, last: bool) -> bool:
    """Show a line in place of the one before it; False if standard error is no terminal."""
    if not sys.stderr.isatty():
        return False
    end = "\n" if last else ""
    sys.stderr.write(f"\r\x1b[K{visible(text)}{end}")
    sys.stderr.flush()
    return True


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


def left_out(negative: int, total: int, rule: str) -> str:
    """Return the line on negative images, with the rule by which the others were explained.

    >>> left_out(3, 10, "the model's decision")
    "3 of 10 images are negative, not explained: that takes the model's decision, and a score above
    the baseline's; --all explains them, too"
    """
    are = f"{'image' if total == 1 else 'images'} {'is' if negative == 1 else 'are'}"
    needed = f"that takes {rule}, and a score above the baseline's"
    return (
        f"{negative} of {total} {are} negative, not explained: {needed}; --all explains them, too"
    )
