from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys

import pytest

import hshap


def test_everything_public_is_exported_in_order():
    assert hshap.__all__ == sorted(hshap.__all__)
    public = {name for name in vars(hshap) if not name.startswith("_")}
    modules = {module.name for module in pkgutil.iter_modules(hshap.__path__)}
    assert public - modules == set(hshap.__all__) - modules - {"__version__"}
    assert callable(hshap.shapley)


def test_the_page_is_reachable_from_the_package():
    code = "import hshap; print(hshap.export.page.View, hshap.export.page.write_page)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)  # noqa: S603
    assert hshap.viewer.View is hshap.export.page.View
    assert ">>>" in hshap.export.page.__doc__


@pytest.mark.parametrize("name", [name for name in hshap.__all__ if not name.startswith("_")])
def test_every_public_name_is_documented(name):
    thing = getattr(hshap, name)
    assert inspect.getdoc(thing)
    for part, member in inspect.getmembers(thing, inspect.isfunction):
        if not part.startswith("_") and member.__qualname__.startswith(f"{name}."):
            assert inspect.getdoc(member), f"{name}.{part}"


@pytest.mark.parametrize(
    "code",
    [
        "import hshap, sys; print('torch' in sys.modules, 'matplotlib' in sys.modules)",
        "import hshap, sys; print('onnxruntime' in sys.modules, 'scipy' in sys.modules)",
    ],
)
def test_importing_hshap_imports_nothing_optional(code):
    shown = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split() == ["False", "False"]
