"""The command line of the benchmark: `benchmarks/run ...`."""

from __future__ import annotations

import importlib
import shutil
import sys
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
Quick = Annotated[bool, typer.Option("--quick", help="a few images, to see that all is well")]
Only = Annotated[list[str] | None, typer.Option(help="only these; nothing is written then")]
Fresh = Annotated[bool, typer.Option("--fresh", help="forget what an earlier run had done")]

TRAININGS = {
    "synthetic": "benchmarks.training.synthetic",
    "malaria": "benchmarks.training.malaria",
    "boards": "benchmarks.training.boards",
    "transfer": "benchmarks.training.transfer",
}


def explain(name: str, quick: bool, workers: int, methods: tuple[str, ...]) -> None:  # noqa: FBT001
    """Explain, collate, and print the table."""
    from benchmarks.core import results
    from benchmarks.core.runner import run
    from benchmarks.reporting import ranking, report

    settings = Run(name, quick, tuple(method.name for method in named(methods)))
    found = results.collate(settings.folder.name, run(settings, workers))
    if not quick and not methods:
        results.write(found)
    print(report.table(found.summary))
    if quick and (results.folder(name) / "summary.json").exists():
        full = results.read_summary(name)
        print("\n" + ranking.told(ranking.levels(found.summary), ranking.levels(full)))


def _add(name: str) -> None:
    @app.command(name, help=f"Explain {name}: every method on every image found positive.")
    def command(
        workers: Workers = 2,
        quick: Quick = False,  # noqa: FBT002
        fresh: Fresh = False,  # noqa: FBT002
        method: Only = None,
    ) -> None:
        if fresh:
            shutil.rmtree(Run(name, quick).folder, ignore_errors=True)
        explain(name, quick, workers, tuple(method or ()))


for task in TASKS:
    _add(task)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def train(context: typer.Context, name: str) -> None:
    """Train a network: synthetic, malaria, boards or transfer. Further words are passed on."""
    if name not in TRAININGS:
        raise typer.BadParameter(f"no training {name!r}; there are {', '.join(TRAININGS)}")
    sys.argv = [name, *context.args]
    importlib.import_module(TRAININGS[name]).main()


@app.command()
def costs(name: str, images: Annotated[int, typer.Option(help="of each group")] = 5) -> None:
    """Measure time and memory of every method by itself; let nothing else run meanwhile."""
    from benchmarks.experiments import costs as alone

    alone.run(name, images)


@app.command()
def sanity(workers: Workers = 2) -> None:
    """Explain networks whose weights are made random, layer by layer, and compare the maps."""
    from benchmarks.experiments import sanity as checks

    checks.run(workers)


@app.command()
def trees() -> None:
    """Compare trees with the quadtree and peers on crosses under noise and over a texture."""
    from benchmarks.experiments import trees as comparison

    comparison.run()


@app.command()
def linkage() -> None:
    """Compare trees linked by colour, texture and place."""
    from benchmarks.experiments import linkage as comparison

    comparison.run()


@app.command()
def sizes() -> None:
    """Compare the size that "auto" finds with the best that the truth would choose."""
    from benchmarks.experiments import sizes as comparison

    comparison.run()


@app.command()
def audit() -> None:
    """Damage networks on purpose, and see whether the audit tells their explanations."""
    from benchmarks.experiments import audit as damage

    damage.run()


@app.command()
def speed(fresh: Fresh = False) -> None:  # noqa: FBT002
    """Measure times, memory and evaluations against the authors' package and peers, by itself."""
    from benchmarks.speed import speed_table

    speed_table.run(fresh=fresh)


@app.command()
def figures(
    names: Annotated[list[str] | None, typer.Argument(help="all, if none")] = None,
    compute: Annotated[bool, typer.Option("--compute", help="make their own data first")] = False,  # noqa: FBT002
) -> None:
    """Draw the figures from the committed results."""
    from benchmarks.reporting import figures as drawings

    if compute:
        drawings.compute(names or [])
    drawings.draw(names or [])


@app.command()
def report() -> None:
    """Write the tables into README and docs from the committed results."""
    from benchmarks.reporting import report as tables

    tables.write()


def main() -> None:
    """Run, and end with a sentence where data is missing or a name is unknown."""
    try:
        app()
    except (MissingDataError, UnknownNameError) as wrong:
        sys.exit(f"benchmarks/run: {wrong}")


if __name__ == "__main__":
    main()
