"""Every public name has a docstring with an example, and is in the reference."""

from __future__ import annotations

import ast
import doctest
import inspect
from functools import cached_property
from pathlib import Path

import pytest

import hshap
from hshap import drop_ins, export, metrics, models, plot, runs, theory
from hshap.demo import bundled
from hshap.export import page as html_page

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"

# Modules by the name under which users import them.
NAMES = [("hshap", hshap, name) for name in hshap.__all__ if name != "__version__"]
NAMES += [("hshap.metrics", metrics, name) for name in metrics.__all__]
NAMES += [("hshap.drop_ins", drop_ins, name) for name in drop_ins.__all__]
NAMES += [("hshap.models", models, name) for name in models.__all__]
NAMES += [("hshap.export", export, name) for name in export.__all__]
NAMES += [("hshap.export.page", html_page, name) for name in ("View", "page", "write_page")]
NAMES += [("hshap.plot", plot, name) for name in plot.__all__]
NAMES += [("hshap.runs", runs, name) for name in runs.__all__]
NAMES += [
    ("hshap.theory", theory, name) for name, _ in inspect.getmembers(theory, inspect.isfunction)
]
PUBLIC = {
    f"{public}.{name}": getattr(module, name)
    for public, module, name in NAMES
    if not name.startswith("_") and "hshap" in inspect.getmodule(getattr(module, name)).__name__
}
CLASSES = {name: thing for name, thing in PUBLIC.items() if inspect.isclass(thing)}


def own_doc(thing):
    """Return a docstring of its own: not one that it inherits, nor a dataclass's signature."""
    doc = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    return "" if doc is None or doc.startswith(f"{thing.__name__}(") else doc


def examples(doc):
    return doctest.DocTestParser().get_examples(doc)


def public_members(cls):
    """Yield the methods and properties that a class defines itself."""
    for name, member in vars(cls).items():
        plain = getattr(member, "__func__", member)
        described = isinstance(plain, (property, cached_property)) or inspect.isfunction(plain)
        if described and not name.startswith("_"):
            yield name, plain


def test_the_walk_finds_the_public_names():
    assert {"hshap.Explainer", "hshap.shapley", "hshap.metrics", "hshap.metrics.f1"} <= set(PUBLIC)
    assert {"hshap.theory.cost_bound", "hshap.export.coco", "hshap.plot.draw"} <= set(PUBLIC)
    assert dict(public_members(hshap.Explanation)).keys() >= {"saliency", "audit", "load", "score"}
    assert not own_doc(type("Bare", (), {}))


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_a_docstring_with_an_example(name):
    doc = own_doc(PUBLIC[name])
    assert doc, f"{name} has no docstring"
    assert examples(doc), f"{name} has no example; add one with >>>"


@pytest.mark.parametrize("name", PUBLIC)
def test_an_example_does_more_than_import(name):
    lines = [ast.parse(example.source).body[0] for example in examples(own_doc(PUBLIC[name]))]
    assert not all(isinstance(line, (ast.Import, ast.ImportFrom)) for line in lines)


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_has_a_docstring(name):
    missing = [part for part, member in public_members(CLASSES[name]) if not inspect.getdoc(member)]
    assert not missing, f"{name} has no docstring for {', '.join(missing)}"


def test_examples_are_run_wherever_they_stand():
    """`pytest` collects the modules of the package: an example in one of them is a test."""
    found = doctest.DocTestFinder().find(inspect.getmodule(bundled), "hshap.demo")
    assert any(test.examples for test in found)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_in_the_reference(name):
    if inspect.ismodule(PUBLIC[name]):
        return
    module, _, last = name.rpartition(".")
    listed = [
        line.split("::")[1].strip()
        for page in REFERENCE.glob("*.md")
        for part in page.read_text(encoding="utf-8").split(".. currentmodule:: ")
        if part.startswith(f"{module}\n")
        for line in part.splitlines()
        if line.startswith((".. autoclass::", ".. autofunction::"))
    ]
    assert last in listed, f"{name} is on no page of docs/reference; add it where it belongs"
