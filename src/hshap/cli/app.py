"""All commands of `hshap` in one typer application.

`hshap.__main__` imports this module, and names the extra to install if typer is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from hshap._util.version import __version__
from hshap.cli import options as opt
from hshap.cli.commands.compare import compare
from hshap.cli.commands.cost import cost
from hshap.cli.commands.doctor import doctor
from hshap.cli.commands.explain import explain
from hshap.cli.commands.export import export
from hshap.cli.commands.view import view
from hshap.cli.faults import Code, Refusal, code_of, one_line
from hshap.cli.output import say
from hshap.demo.run import run_demo

if TYPE_CHECKING:
    from hshap._util.types import Untyped

# Some versions of typer carry a click of their own, so its exception is found by inheritance.
UsageError: Untyped = typer.BadParameter.__mro__[1]
HELP = "Find the regions of images that drive a classifier's score."


class Commands(TyperGroup):
    """Runs a command, and writes any error in one line to standard error."""

    def invoke(self, ctx: Untyped) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, KeyboardInterrupt, BrokenPipeError):
            raise
        except UsageError as error:
            text = " ".join(error.format_message().split())
            path = error.ctx.command_path if error.ctx else "hshap"
            say(f"{text}; see {path} --help")
            raise typer.Exit(Code.USAGE) from None
        except Exception as error:
            if ctx.find_root().meta.get("hshap.debug"):
                raise
            say(one_line(error))
            raise typer.Exit(code_of(error)) from None


app = typer.Typer(
    cls=Commands,
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (explain, view, export, compare, cost, doctor):
    app.command()(command)


@app.callback(help=HELP)
def root(*, debug: opt.Debug = False) -> None:
    """Take the options that stand before a command."""
    del debug


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures; created if missing.")] = Path(
        "demo-output"
    ),
) -> None:
    """Explain a few images of the paper's synthetic task with the bundled network."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{out} cannot be created as a folder ({error.strerror}); pass another --out"
        raise Refusal(Code.OUTPUT, message) from error
    run_demo(out)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)
