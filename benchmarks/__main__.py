"""The command line of the benchmark: `benchmarks/run ...`."""

from __future__ import annotations

import importlib
import shutil
import sys
from enum import StrEnum
from typing import Annotated

import typer

from benchmarks.core.folders import MissingDataError
from benchmarks.core.protocol import UnknownNameError
from benchmarks.core.runner import Run
from benchmarks.core.tasks import TASKS
from benchmarks.methods import named

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__
)
Workers = Annotated[int, typer.Option(help="processes, of one thread each")]
Quick = Annotated[bool, typer.Option("--quick", help="a few images, to see that everything works")]
Only = Annotated[list[str] | None, typer.Option(help="only these methods; see --update")]
Update = Annotated[
    bool, typer.Option("--update", help="with --method: replace their rows in the results")
]
Validation = Annotated[int | None, typer.Option(min=1, help="only the first validation images")]
Test = Annotated[int | None, typer.Option(min=1, help="only the first test images")]
Fresh = Annotated[bool, typer.Option("--fresh", help="forget the rows of earlier runs")]

Compute = Annotated[
    bool, typer.Option("--compute", help="first compute the data that only figures need")
]


class Fuzzed(StrEnum):
    """The parts of hshap that random inputs are tried on."""

    INCREMENTAL = "incremental"
    EXPLANATIONS = "explanations"
    MODELS = "models"


TRAININGS = {
    "synthetic": "benchmarks.training.synthetic",
    "malaria": "benchmarks.training.malaria",
    "boards": "benchmarks.training.boards",
    "families": "benchmarks.training.families",
    "platelets": "benchmarks.training.platelets",
    "transfer": "benchmarks.training.transfer",
}

# Experiments without options: modules of benchmarks.experiments with a function run().
EXPERIMENTS = {
    "trees": "Compare trees with the quadtree and peers on crosses under noise and over a texture.",
    "linkage": "Compare trees linked by colour, texture and place.",
    "sizes": 'Compare the size that "auto" finds with the best one, chosen with the truth in view.',
    "families": "Judge trees on families of drawings that no constant was chosen on.",
    "constants": "What each constant of the default call earns, on the sets for choosing.",
    "gallery": "Explain photographs by a pretrained network with the default call; draw them.",
    "equal": "Compare methods that see outputs only at equal evaluations: rows that tables lack.",
    "kills": "Kill runs of archives a thousand times, and compare their tables with quiet ones.",
    "throughput": "Explain 10,000 images in one process and in two: throughput, own cost, memory.",
    "guarantees": "Try p-values, error rates, calibrations and reports where the truth is known.",
    "large": "Explain a picture of 32,768 x 32,768 pixels on a disk: memory, time, findings.",
    "floor": "Count the questions of group testing against the floor, and certify it on networks.",
    "predictions": "Compare evaluations and CPU time that `hshap cost` expects with those of runs.",
    "audit": "Damage networks on purpose, and test whether the audit detects bad explanations.",
}


def explain(settings: Run, workers: int, *, update: bool = False) -> None:
    """Explain, collate, and print the table."""
    from benchmarks.core import results
    from benchmarks.core.runner import run
    from benchmarks.reporting import ranking, report

    found = results.collate(settings.folder.name, run(settings, workers))
    if not settings.quick and (update or not settings.methods):
        results.write(results.updated(found) if update else found)
    print(report.table(found.summary))
    if settings.quick and (results.folder(settings.task) / "summary.json").exists():
        full = results.read_summary(settings.task)
        print("\n" + ranking.told(ranking.levels(found.summary), ranking.levels(full)))


def _add_task(name: str) -> None:
    @app.command(name, help=f"Explain {name}: every method on every image found positive.")
    def command(  # noqa: PLR0913, PLR0917, one parameter for each option
        workers: Workers = 2,
        quick: Quick = False,  # noqa: FBT002
        fresh: Fresh = False,  # noqa: FBT002
        method: Only = None,
        validation: Validation = None,
        test: Test = None,
        update: Update = False,  # noqa: FBT002
    ) -> None:
        methods = tuple(each.name for each in named(method or ()))
        settings = Run(name, quick, methods, validation, test)
        if fresh:
            shutil.rmtree(settings.folder, ignore_errors=True)
        explain(settings, workers, update=update)


for task in TASKS:
    _add_task(task)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def train(context: typer.Context, name: str) -> None:
    """Train a network: synthetic, malaria, boards, families, platelets, transfer."""
    if name not in TRAININGS:
        raise typer.BadParameter(f"no training {name!r}; there are {', '.join(TRAININGS)}")
    sys.argv = [name, *context.args]
    importlib.import_module(TRAININGS[name]).main()


@app.command()
def costs(name: str, images: Annotated[int, typer.Option(help="of each group")] = 5) -> None:
    """Measure time and memory of every method alone; let nothing else run meanwhile."""
    from benchmarks.experiments import costs as alone

    alone.run(name, images)


@app.command()
def sanity(workers: Workers = 2) -> None:
    """Explain networks whose weights are made random, layer by layer, and compare the maps."""
    from benchmarks.experiments import sanity as checks

    checks.run(workers)


@app.command()
def fuzz(
    kind: Annotated[Fuzzed, typer.Argument()],
    count: Annotated[int | None, typer.Option(min=1, help="networks or files")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Try random networks, damaged explanations or hostile model files; exit 1 on a failure."""
    if kind is Fuzzed.INCREMENTAL:
        from benchmarks.experiments import fuzz_incremental

        networks = count or fuzz_incremental.NETWORKS
        fuzz_incremental.run(networks, 0 if count else fuzz_incremental.CASES, seed)
        return
    if kind is Fuzzed.EXPLANATIONS:
        from benchmarks.experiments.fuzz_files import FILES, fuzz_explanations

        outcome = fuzz_explanations(count or FILES, seed=seed)
    else:
        from benchmarks.experiments import fuzz_models

        outcome = fuzz_models.fuzz_models(count or fuzz_models.FILES, seed=seed)
    print(outcome)
    if outcome.failures:
        raise typer.Exit(1)


def _add_experiment(name: str, summary: str) -> None:
    @app.command(name, help=summary)
    def command() -> None:
        importlib.import_module(f"benchmarks.experiments.{name}").run()


for experiment, summary in EXPERIMENTS.items():
    _add_experiment(experiment, summary)


@app.command()
def default(
    sets: Annotated[list[str] | None, typer.Option(help="only this set; may be repeated")] = None,
    most: Annotated[int | None, typer.Option(min=1, help="only the first images of a set")] = None,
    rex: Annotated[bool, typer.Option("--rex", help="ReX, too: over 2000 evaluations")] = False,  # noqa: FBT002
) -> None:
    """Compare the default call with peers as their documentation calls them."""
    from benchmarks.experiments import default_call

    default_call.run(sets or (), most, rex=rex)


@app.command()
def speed(
    fresh: Fresh = False,  # noqa: FBT002
    only: Annotated[
        list[str] | None, typer.Option(help="repeat measurements that begin so: share")
    ] = None,
) -> None:
    """Measure time, memory and evaluations against the authors' package and peers."""
    from benchmarks.speed import speed_table

    speed_table.run(fresh=fresh, only=only or ())


@app.command()
def figures(
    names: Annotated[list[str] | None, typer.Argument(help="all, if none")] = None,
    compute: Compute = False,  # noqa: FBT002
) -> None:
    """Draw the figures from the committed results."""
    from benchmarks.reporting import figures as drawings

    if compute:
        drawings.compute(names or [])
    drawings.draw(names or [])


@app.command()
def report() -> None:
    """Write tables and numbers into README and docs from the committed results."""
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
