"""The commit, the date and the versions of packages that a result comes from."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from benchmarks.core.folders import ROOT
from benchmarks.core.reference import VERSION

PACKAGES = (
    "torch",
    "numpy",
    "scikit-image",
    "shap",
    "lime",
    "captum",
    "grad-cam",
    "shap-bpt",
    "dianna",
    "rex-xai",
    "h-shap",
)


@cache
def provenance() -> dict[str, str]:
    """Return the commit that is run, marked if files differ from it, and today's date."""
    head = _git("rev-parse", "--short=10", "HEAD")
    # Git's * also matches files in folders below.
    changed = _git(
        "status", "--porcelain", "--", "src", "benchmarks/*.py", "benchmarks/models/weights"
    )
    return {
        "commit": head + ("+changes" if changed else ""),
        "date": datetime.now(UTC).date().isoformat(),
    }


def versions() -> dict[str, str]:
    """Return the versions of everything whose numbers are in the results."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = VERSION if name == "h-shap" else "not installed"
    return found


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words],  # noqa: S607, whichever git the user has
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()
