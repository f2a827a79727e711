"""The command line of the benchmark: `benchmarks/run NAME`, or `benchmarks/run all`."""

from __future__ import annotations

import importlib
import shutil
import sys
import time
from dataclasses import dataclass
from typing import Annotated

import typer

from benchmarks.core.folders import MissingDataError
from benchmarks.core.protocol import UnknownNameError
from benchmarks.core.provenance import provenance
from benchmarks.core.runner import Run
from benchmarks.methods import named

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__
)
Workers = Annotated[int, typer.Option(help="processes, of one thread each")]
Quick = Annotated[bool, typer.Option("--quick", help="a few images, to see that everything works")]
Fresh = Annotated[bool, typer.Option("--fresh", help="forget the rows of earlier runs")]
Only = Annotated[list[str] | None, typer.Option(help="make only the rows of these methods anew")]

TRAININGS = ("synthetic", "malaria", "platelets", "boards")


@dataclass(frozen=True)
class Experiment:
    """What an experiment shows, and the minutes that it takes on two cores."""

    shows: str
    minutes: int


EXPERIMENTS = {
    "default": Experiment("The default call against peers as their documentation calls them.", 300),
    "constants": Experiment("What each constant of the default call earns.", 60),
    "gallery": Experiment("Photographs explained by a pretrained network, failures included.", 5),
    "synthetic": Experiment("The paper's synthetic images: every method on 600 of them.", 240),
    "malaria": Experiment("The paper's malaria smears: every method on those found positive.", 90),
    "sanity": Experiment("Maps of networks whose weights are made random, layer by layer.", 15),
    "speed": Experiment("Evaluations and time against the authors' package and full passes.", 10),
    "throughput": Experiment("Own cost, memory and reading of a run over an archive.", 3),
    "large": Experiment("A picture of 32,768 x 32,768 pixels on a disk: memory, findings.", 5),
    "guarantees": Experiment("Error rates, calibrations and reports where the truth is known.", 5),
}
PLAIN = ("constants", "gallery", "speed", "throughput", "large", "guarantees")


def _module(name: str) -> object:
    return importlib.import_module(f"benchmarks.experiments.{name}")


def _explain(settings: Run, workers: int) -> None:
    """Explain with every method, or with some whose rows then replace those of the results."""
    from benchmarks.core import results
    from benchmarks.core.runner import run
    from benchmarks.reporting import report

    found = results.collate(settings.folder.name, run(settings, workers))
    if not settings.quick:
        results.write(results.updated(found) if settings.methods else found)
    print(report.table(found.summary))


def _add_task(name: str) -> None:
    @app.command(name, help=EXPERIMENTS[name].shows)
    def command(
        workers: Workers = 2,
        quick: Quick = False,  # noqa: FBT002
        fresh: Fresh = False,  # noqa: FBT002
        method: Only = None,
    ) -> None:
        settings = Run(name, quick, tuple(each.name for each in named(method or ())))
        if fresh:
            shutil.rmtree(settings.folder, ignore_errors=True)
        _explain(settings, workers)


for task in ("synthetic", "malaria"):
    _add_task(task)


@app.command(help=EXPERIMENTS["default"].shows)
def default(
    sets: Annotated[list[str] | None, typer.Option(help="only this set; may be repeated")] = None,
    most: Annotated[int | None, typer.Option(min=1, help="only the first images of a set")] = None,
    rex: Annotated[bool, typer.Option("--rex", help="ReX, too: over 2000 evaluations")] = False,  # noqa: FBT002
) -> None:
    from benchmarks.experiments import default_call

    default_call.run(sets or (), most, rex=rex)


@app.command(help=EXPERIMENTS["sanity"].shows)
def sanity(workers: Workers = 2, method: Only = None) -> None:
    from benchmarks.experiments import sanity as checks

    checks.run(workers, tuple(method or ()))


def _add_plain(name: str) -> None:
    @app.command(name, help=EXPERIMENTS[name].shows)
    def command() -> None:
        _module(name).run()  # type: ignore[attr-defined]


for plain in PLAIN:
    _add_plain(plain)


@app.command("all")
def every(yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False) -> None:  # noqa: FBT002
    """Make every result, figure and table anew; say first how long it takes."""
    for name, one in EXPERIMENTS.items():
        print(f"{name:12}{one.minutes:4} min  {one.shows}")
    hours = sum(one.minutes for one in EXPERIMENTS.values()) / 60
    print(f"about {hours:.0f} hours on two cores, at commit {provenance()['commit']}")
    if not yes:
        typer.confirm("start?", abort=True)
    for name in EXPERIMENTS:
        begun = time.monotonic()
        _run(name)
        print(f"{name}: {(time.monotonic() - begun) / 60:.0f} minutes", flush=True)
    figures()
    report()


def _run(name: str) -> None:
    """Make an experiment's results anew."""
    if name in PLAIN:
        _module(name).run()  # type: ignore[attr-defined]
    elif name == "default":
        from benchmarks.core import results

        shutil.rmtree(results.folder("default"), ignore_errors=True)  # it keeps rows that are there
        default()
    elif name == "sanity":
        sanity()
    else:
        shutil.rmtree(Run(name).folder, ignore_errors=True)
        _explain(Run(name), workers=2)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    help=f"Train a network: {', '.join(TRAININGS)}.",
)
def train(context: typer.Context, name: str) -> None:
    if name not in TRAININGS:
        raise typer.BadParameter(f"no training {name!r}; there are {', '.join(TRAININGS)}")
    sys.argv = [name, *context.args]
    importlib.import_module(f"benchmarks.training.{name}").main()


@app.command()
def figures(names: Annotated[list[str] | None, typer.Argument(help="all, if none")] = None) -> None:
    """Draw the figures from the committed results."""
    from benchmarks.reporting import figures as drawings

    drawings.draw(names or [])


@app.command()
def report() -> None:
    """Write tables into the pages from the committed results."""
    from benchmarks.reporting import report as tables

    tables.write()


def main() -> None:
    """Run a command; missing data or an unknown name ends with one line, not a traceback."""
    try:
        app()
    except (MissingDataError, UnknownNameError) as wrong:
        sys.exit(f"benchmarks/run: {wrong}")


if __name__ == "__main__":
    main()
