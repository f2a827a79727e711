"""What `import hshap` gives: every public name, and no optional package."""

from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys

import hshap


def test_everything_public_is_exported_in_order():
    assert hshap.__all__ == sorted(hshap.__all__)
    public = {name for name in vars(hshap) if not name.startswith("_")}
    modules = {module.name for module in pkgutil.iter_modules(hshap.__path__)}
    assert public - modules == set(hshap.__all__) - modules - {"__version__"}


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


def test_importing_hshap_imports_nothing_optional():
    code = (
        "import sys, hshap\n"
        "print({'torch', 'matplotlib', 'onnxruntime', 'scipy'} & {*sys.modules})\n"
        "print(hshap.export.page.View, hshap.export.page.write_page)"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("set()\n")
