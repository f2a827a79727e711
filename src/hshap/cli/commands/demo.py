"""`hshap demo`: a few images of the paper's synthetic task, explained with the bundled network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hshap._util.version import __version__
from hshap.cli.output import tell
from hshap.cli.runs.folders import folder
from hshap.cli.runs.record import SUMMARY, write_summary
from hshap.demo.overview import OVERVIEW, file_names, run_demo


def demo(
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the pictures; created if missing.")
    ] = Path("demo-output"),
) -> None:
    """Explain a few images of the paper's synthetic task with the bundled network."""
    # Files of an earlier demo are replaced without a question, files of others never.
    with folder(out, fill=True, fixed=(SUMMARY, *file_names())) as place:
        run_demo(place.path)
        write_summary(place.path, {"hshap": __version__, "command": "demo"}, {})
    tell(f"pictures and explanations are in {out}; the overview is {out / OVERVIEW}")
