"""All commands of `hshap`, each loaded when it is called: help is printed without them.

`hshap.__main__` imports this module, and names the extra to install if typer is missing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, NamedTuple, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from hshap._util.version import __version__
from hshap.cli.faults import Code, code_of, lines_of
from hshap.cli.output import say, tell
from hshap.cli.runs.signals import Stop, stoppable
from hshap.errors import require_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Untyped

# Some versions of typer carry a click of their own, so its exception is found by inheritance.
UsageError: Untyped = typer.BadParameter.__mro__[1]
HELP = "Find the regions of images that drive a classifier's score."


class About(NamedTuple):
    """The line of a command in the help, and the extras without which it cannot do its work.

    Hidden commands are listed nowhere, and work.
    """

    text: str
    extras: tuple[str, ...] = ()
    hidden: bool = False


COMMANDS = {
    "explain": About("Find the regions of images that drive a model's score.", ("plot",)),
    "view": About("Make a page of stored results; no model runs."),
    "serve": About("Show the page of a folder, and explain images as they come.", ("serve",)),
    "export": About("Write findings or maps in a format that other programs read."),
    "verify": About("Check that a run is as it was written; recompute some of it.", ("runs",)),
    "calibrate": About("Choose how far around findings to look, by annotated images."),
    "report": About("Measure the score on objects, background and marks."),
    "cost": About("Predict evaluations and time before a long run."),
    "doctor": About("Show what is installed and what each command lacks; test hshap."),
    "demo": About("Explain four images with the bundled network.", ("torch", "plot")),
    "run": About("Explain an archive of images into a run folder.", ("runs",), hidden=True),
    "exam": About("Find the slices of a volume that drive a model's score.", hidden=True),
    "tiles": About("Explain large images tile by tile.", hidden=True),
    "query": About("Print the rows of an SQL query over a run.", ("runs",), hidden=True),
}
"""Each is a function of its name, in a module of its name in `hshap.cli.commands`."""

MEANT = {
    "--labels": "--classes",
    "--names": "--classes",
    "--class": "--target",
    "--output-dir": "--out",
    "--batch": "--batch-size",
    "--gpu": "--device",
    "--input-size": "--size",
}
"""Options of other programs, and ours of the same meaning."""


class Command(TyperCommand):
    """A command whose help has a section for each group of options."""

    def format_options(self, ctx: Untyped, formatter: Untyped) -> None:
        """Write the arguments and the options."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            is_argument = param.param_type_name == "argument"
            panel = getattr(param, "rich_help_panel", None) or "Options"
            record = param.get_help_record(ctx)
            if record is not None:
                sections.setdefault("Arguments" if is_argument else panel, []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)


class Commands(TyperGroup):
    """Loads a command and runs it, and writes any error in one line to standard error."""

    def __init__(self, *args: Untyped, **options: Untyped) -> None:
        super().__init__(*args, **options)
        for name, about in COMMANDS.items():
            self.commands[name] = Command(name, help=about.text, hidden=about.hidden)

    def list_commands(self, ctx: Untyped) -> list[str]:
        """Return the names in the order of the help."""
        del ctx
        return list(COMMANDS)

    def resolve_command(self, ctx: Untyped, args: Untyped) -> Untyped:
        """Return the command that the words name, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load_command(str(command.name)), rest

    def make_context(self, *args: Untyped, **options: Untyped) -> Untyped:
        """Read the words before a command."""
        try:
            return super().make_context(*args, **options)
        except UsageError as error:
            raise _refusal(error) from None

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
            raise _refusal(error) from None
        except Exception as error:
            if ctx.find_root().meta.get("hshap.debug"):
                raise
            for line in lines_of(error):
                say(line)
            raise typer.Exit(code_of(error)) from None


def _refusal(error: Untyped) -> typer.Exit:
    """Say in one line how a command is to be called; return the end of the command."""
    param, path = getattr(error, "param", None), error.ctx.command_path if error.ctx else "hshap"
    text = " ".join(error.format_message().split()).rstrip(".")
    meant = MEANT.get(getattr(error, "option_name", ""))
    if type(error).__name__ == "MissingParameter" and param is not None:
        is_option = param.param_type_name == "option"
        name = param.opts[0] if is_option else param.metavar or param.name.upper()
        meaning = (getattr(param, "help", None) or "").rstrip(".")
        text = f"{name} is missing" + (f" ({meaning})" if meaning else "")
    elif meant is not None:
        text = f"No such option: {error.option_name}. Did you mean {meant}?"
    say(f"{text}; see {path} --help")
    return typer.Exit(Code.USAGE)


def load_command(name: str) -> Untyped:
    """Return the command of a name, with the options of its groups and --debug."""
    made = typer.Typer(add_completion=False, rich_markup_mode=None)
    function = getattr(import_module(f"hshap.cli.commands.{name}"), name)
    made.command(name, cls=Command)(flatten(function, COMMANDS[name].extras))
    return typer.main.get_command(made)


def _note_debug(ctx: typer.Context, value: bool) -> bool:
    if value:
        ctx.find_root().meta["hshap.debug"] = True
    return value


Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        callback=_note_debug,
        is_eager=True,
        help="Show the traceback of an error.",
    ),
]


def flatten(function: Callable[..., None], extras: Sequence[str] = ()) -> Callable[..., None]:
    """Return a command whose options are the fields of the dataclasses that a function takes.

    Each command gets --debug, too. It is refused where packages of its extras are missing.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     height: int
    ...     width: int = 1
    >>> def area(name: str, *, size: Size) -> None:
    ...     print(name, size.height * size.width)
    >>> flatten(area)(name="a", height=3, width=2, debug=False)
    a 6
    >>> list(signature(flatten(area)).parameters)
    ['name', 'height', 'width', 'debug']
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, type] = {}
    flat: list[Parameter] = []
    for parameter in signature(function).parameters.values():
        kind: Untyped = hints[parameter.name]
        if isinstance(kind, type) and is_dataclass(kind):
            groups[parameter.name] = kind
            made = signature(kind).parameters
            own = get_type_hints(kind, include_extras=True)
            flat += [made[field.name].replace(annotation=own[field.name]) for field in fields(kind)]
        else:
            flat.append(parameter.replace(annotation=kind))
    flat.append(Parameter("debug", Parameter.KEYWORD_ONLY, default=False, annotation=Debug))

    @wraps(function)
    def command(**given: Untyped) -> None:
        del given["debug"]  # its callback has noted it
        for extra in extras:
            require_extra(extra, needed_by=f"hshap {function.__name__}")
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        function(**given)

    flat = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in flat]
    made: Untyped = command
    made.__signature__ = Signature(flat)
    made.__annotations__ = {one.name: one.annotation for one in flat}
    del made.__wrapped__  # typer would read the signature with the groups
    return command


app = typer.Typer(
    name="hshap",
    cls=Commands,
    help=HELP,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # half of the time of --help
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(value: bool) -> None:
    if value:
        tell(__version__)
        raise typer.Exit


@app.callback(help=HELP, invoke_without_command=True)
def root(
    ctx: typer.Context,
    *,
    debug: Debug = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command; without a command, print the help."""
    del debug, version
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
