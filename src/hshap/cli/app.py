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
from hshap.cli.commands.calibrate import calibrate
from hshap.cli.commands.compare import compare
from hshap.cli.commands.cost import cost
from hshap.cli.commands.doctor import doctor
from hshap.cli.commands.exam import exam
from hshap.cli.commands.explain import explain
from hshap.cli.commands.export import export
from hshap.cli.commands.query import query
from hshap.cli.commands.report import report
from hshap.cli.commands.run import run
from hshap.cli.commands.serve import serve
from hshap.cli.commands.tiles import tiles
from hshap.cli.commands.verify import verify
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

    def make_context(self, *args: Untyped, **options: Untyped) -> Untyped:
        """Read the words before a command."""
        try:
            return super().make_context(*args, **options)
        except UsageError as error:
            raise _told(error) from None

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
            raise _told(error) from None
        except Exception as error:
            if ctx.find_root().meta.get("hshap.debug"):
                raise
            for line in lines_of(error):
                say(line)
            raise typer.Exit(code_of(error)) from None


def _told(error: Untyped) -> typer.Exit:
    """Say in one line how a command is to be called; return the end of the command."""
    param, path = getattr(error, "param", None), error.ctx.command_path if error.ctx else "hshap"
    text = " ".join(error.format_message().split()).rstrip(".")
    if type(error).__name__ == "MissingParameter" and param is not None:
        is_option = param.param_type_name == "option"
        name = param.opts[0] if is_option else param.metavar or param.name.upper()
        meaning = (getattr(param, "help", None) or "").rstrip(".")
        text = f"{name} is missing" + (f" ({meaning})" if meaning else "")
    say(f"{text}; see {path} --help")
    return typer.Exit(Code.USAGE)


app = typer.Typer(
    cls=Commands,
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (
    explain,
    exam,
    tiles,
    run,
    query,
    verify,
    view,
    serve,
    export,
    compare,
    report,
    calibrate,
    cost,
    doctor,
):
    app.command()(command)


def _tell_version(value: bool) -> None:
    if value:
        tell(__version__)
        raise typer.Exit


@app.callback(help=HELP)
def root(
    *,
    debug: opt.Debug = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""
    del debug, version


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
