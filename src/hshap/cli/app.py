"""All commands of `hshap` in one typer application.

`hshap.__main__` imports this module, and names the extra to install if typer is missing.
"""

from __future__ import annotations

from contextlib import suppress
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
from hshap.cli.faults import Code, code_of, lines_of
from hshap.cli.output import say
from hshap.cli.progress import tell
from hshap.cli.runs.folders import folder
from hshap.cli.runs.record import SUMMARY, write_summary
from hshap.cli.runs.signals import Stop, stoppable
from hshap.demo.run import OVERVIEW, file_names, run_demo

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
            with stoppable():
                return super().invoke(ctx)
        except Stop as stop:
            with suppress(OSError):  # the terminal may be closed
                say(str(stop))
            raise typer.Exit(stop.code) from None
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
            for line in lines_of(error):
                say(line)
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
    # Files of an earlier demo are replaced without a question, files of others never.
    with folder(out, fill=True, fixed=(SUMMARY, *file_names())) as place:
        run_demo(place.path)
        write_summary(place.path, {"hshap": __version__, "command": "demo"}, {})
    tell(f"pictures and explanations are in {out}; the overview is {out / OVERVIEW}")


@app.command()
def version() -> None:
    """Print the version."""
    tell(__version__)
