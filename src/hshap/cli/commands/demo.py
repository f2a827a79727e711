"""`hshap demo`: a few images of the paper's synthetic task, explained with the bundled network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hshap._util.version import __version__
from hshap.cli.output import tell
from hshap.cli.runs.record import SUMMARY, files_in
from hshap.cli.runs.result_folder import result_folder
from hshap.demo.overview import OVERVIEW, file_names, run_demo


def demo(
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the pictures; created if missing.")
    ] = Path("demo-output"),
) -> None:
    """Explain a few images of the paper's synthetic task with the bundled network."""
    # Files of an earlier demo are replaced without a question, files of others never.
    with result_folder(out, mixed=True, fixed=(SUMMARY, *file_names())) as place:
        run_demo(place.path)
        names = files_in(place.path)
        place.add({"table": "demo"}, names)
        place.finish({"hshap": __version__, "command": "demo"}, names)
    tell(f"pictures and explanations are in {out}; the overview is {out / OVERVIEW}")
