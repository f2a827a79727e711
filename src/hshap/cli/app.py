"""The commands of `hshap` put together. Needs typer; `__main__` says so where it is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hshap._util.version import __version__
from hshap.cli import options as opt
from hshap.cli.commands.compare import compare
from hshap.cli.commands.cost import cost
from hshap.cli.commands.doctor import doctor
from hshap.cli.commands.explain import explain
from hshap.cli.commands.files import export, view
from hshap.cli.faults import Code, Refusal, code_of, one_line
from hshap.cli.output import say
from hshap.demo.run import run_demo

# typer carries a click of its own, or not, depending on its version.
UsageError: Any = typer.BadParameter.__mro__[1]


class Commands(TyperGroup):
    """Runs a command, and tells what goes wrong in one line on standard error."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is asked for."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, KeyboardInterrupt, BrokenPipeError):
            raise
        except UsageError as error:
            said = " ".join(error.format_message().split())
            path = error.ctx.command_path if error.ctx else "hshap"
            say(f"{said}; see {path} --help")
            raise typer.Exit(Code.USAGE) from None
        except Exception as error:
            if ctx.find_root().meta.get("hshap.debug"):
                raise
            say(one_line(error))
            raise typer.Exit(code_of(error)) from None


app = typer.Typer(
    cls=Commands,
    help="Find where in an image a classifier saw what it says.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (explain, view, export, compare, cost, doctor):
    app.command()(command)


@app.callback()
def root(*, debug: opt.Debug = False) -> None:
    """Find where in an image a classifier saw what it says."""
    del debug


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures; made if it is not there.")
    ] = Path("demo-output"),
) -> None:
    """Explain a few images of the paper's synthetic task with the bundled network."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{out} cannot be made a folder ({error.strerror}); pass another --out"
        raise Refusal(Code.OUTPUT, message) from error
    run_demo(out)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)
