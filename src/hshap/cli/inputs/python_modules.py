"""Models in Python modules, as --model module:attribute. Importing a module runs its code.

The module may be in the current folder. That folder is searched last, so that a file numpy.py in it
cannot take the place of NumPy. A module that both the folder and an installed package have is
refused, as the user may mean either.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hshap.cli.faults import Code, Refusal, brief

if TYPE_CHECKING:
    from hshap._util.types import Model, Untyped

IN_MODULE = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)(?P<call>\(\))?")


def from_module(match: re.Match[str]) -> Model:
    """Return the attribute that a match of `IN_MODULE` names, called if it ends with ()."""
    name, attribute = match["module"], match["name"]
    _search_here_last(match[0], name.partition(".")[0])
    try:
        found: Untyped = importlib.import_module(name)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        message = f"--model {match[0]}: module {name} cannot be imported ({brief(error)})"
        raise Refusal(Code.MODEL, message) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            message = f"--model {match[0]}: module {name} has no {attribute}"
            raise Refusal(Code.MODEL, message)
        found = getattr(found, part)
    if not match["call"]:
        if _makes_a_model(found):
            message = (
                f"--model {match[0]}: it takes no images, so it makes the model; "
                f"add () to call it: --model '{match[0]}()'"
            )
            raise Refusal(Code.MODEL, message)
        return found
    try:
        return found()
    except Exception as error:
        message = f"--model {match[0]}: calling it failed ({brief(error)})"
        raise Refusal(Code.MODEL, message) from error


def _makes_a_model(found: Untyped) -> bool:
    """Return whether an object is a class, or a function that can be called with nothing alone."""
    if inspect.isclass(found):
        return True
    if not inspect.isroutine(found):
        return False
    try:
        signature = inspect.signature(found)
        signature.bind()
    except (TypeError, ValueError):
        return False
    try:
        signature.bind("images")
    except TypeError:
        return True
    return False


def _search_here_last(option: str, top: str) -> None:
    """Append the current folder to the search path, unless the user put it there already."""
    here = str(Path.cwd())
    if here in sys.path or "" in sys.path:
        return
    own = importlib.machinery.PathFinder.find_spec(top, [here])
    other = importlib.util.find_spec(top)
    # A folder without __init__.py has no origin, and gives way to an installed module.
    if own and own.origin and other and other.origin not in (None, own.origin):
        message = (
            f"--model {option}: module {top} is in the current folder and in {other.origin}; "
            "rename the one in the folder"
        )
        raise Refusal(Code.MODEL, message)
    sys.path.append(here)
