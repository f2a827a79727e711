"""What `import hshap` gives: every public name, loaded at its first use, and no other package."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import hshap

CHAPTERS = {name for name in hshap.__all__ if inspect.ismodule(getattr(hshap, name))}


def python(code):
    """Run code in a fresh process; return what it prints."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_names_are_where_type_checkers_are_told():
    tree = ast.parse(Path(hshap.__file__).read_text(encoding="utf-8"))
    (told,) = (node for node in tree.body if isinstance(node, ast.If) and len(node.body) > 2)
    places = {alias.name: node.module for node in told.body for alias in node.names}
    assert places.keys() == {*hshap.__all__} - {"__version__"}
    assert hshap.__all__ == sorted(hshap.__all__) == dir(hshap)
    for name, module in places.items():
        thing = getattr(hshap, name)
        if name in CHAPTERS:
            assert (module, thing.__name__) == ("hshap", f"hshap.{name}")
        else:
            assert thing is getattr(sys.modules[module], name)


def test_chapters_are_modules_of_that_name():
    assert {module.name for module in pkgutil.iter_modules(hshap.__path__)} >= CHAPTERS


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(AttributeError, match="module 'hshap' has no attribute 'Explaner'"):
        hshap.Explaner  # noqa: B018


def test_public_names_are_documented():
    things = {name: getattr(hshap, name) for name in hshap.__all__ if not name.startswith("_")}
    missing = [name for name, thing in things.items() if not inspect.getdoc(thing)]
    missing += [
        f"{name}.{part}"
        for name, thing in things.items()
        for part, member in inspect.getmembers(thing, inspect.isfunction)
        if not part.startswith("_") and member.__qualname__.startswith(f"{name}.")
        if not inspect.getdoc(member)
    ]
    assert missing == []


def test_importing_hshap_imports_nothing_else():
    code = "import sys, hshap; print({'numpy', 'torch', 'hshap.explainer'} & {*sys.modules})"
    assert python(code) == "set()"


def test_all_public_names_together_import_nothing_optional():
    optional = {"torch", "matplotlib", "onnxruntime", "scipy"}
    assert (
        python(f"import sys; from hshap import *; print({optional} & {{*sys.modules}})") == "set()"
    )
