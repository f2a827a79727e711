"""The authors' own package, `h-shap` on PyPI, under a name that does not collide with ours.

Both are imported as `hshap`, so theirs is installed into a folder of its own that never enters
`sys.path`, and loaded from there as `h_shap_reference`.
"""

from __future__ import annotations

import math
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING

from benchmarks.core.folders import CACHE

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import ModuleType

VERSION = "0.1.6"
ALIAS = "h_shap_reference"
TARGET = CACHE / f"h_shap-{VERSION}"


def load_reference() -> ModuleType:
    """Return the reference package, installed at the first call."""
    if ALIAS in sys.modules:
        return sys.modules[ALIAS]
    install_reference()
    package = TARGET / "hshap"
    # Search locations make it a package, so that its relative imports find their files here.
    spec = spec_from_file_location(
        ALIAS, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        message = f"{package.name} in the cache cannot be loaded; delete {CACHE.name} and try again"
        raise ImportError(message)
    module = module_from_spec(spec)
    sys.modules[ALIAS] = module
    try:
        with _numpy_math():
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[ALIAS]
        raise
    return module


def install_reference() -> None:
    """Install the reference into the cache, unless it is there."""
    # Both, so that an installation that was cut short between the two is not taken for a whole one.
    parts = (TARGET / "hshap", TARGET / f"h_shap-{VERSION}.dist-info")
    if all(part.is_dir() for part in parts):
        return
    CACHE.mkdir(exist_ok=True)
    ignore = CACHE / ".gitignore"
    if not ignore.exists():
        # The folder ignores itself, so that no rule elsewhere has to know of it.
        ignore.write_text("*\n")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    subprocess.run([*command, "--target", str(TARGET), f"h-shap=={VERSION}"], check=True)


@contextmanager
def _numpy_math() -> Generator[None, None, None]:
    """Give NumPy the `math` that it dropped in version 2, while the reference is imported.

    The reference takes `np.math.factorial` once, at the top of its `utils.py`, and never looks at
    `np.math` again: after the import NumPy can be as it was.
    """
    import numpy as np

    if "math" in vars(np):
        yield
        return
    np.math = math  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del np.math  # type: ignore[attr-defined]
