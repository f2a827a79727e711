"""The commands of `hshap`. Imports typer; `__main__` says what to install where it is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hshap.demo.run import run_demo
from hshap.version import __version__

app = typer.Typer(
    help="Find where in an image a classifier saw what it says.", no_args_is_help=True
)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures; made if it is not there.")
    ] = Path("demo-output"),
) -> None:
    """Explain a few images of the paper's synthetic task with the bundled network."""
    run_demo(out)
