"""The `hshap` command, also as `python -m hshap`."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from hshap.errors import HshapError, require

if TYPE_CHECKING:
    from types import FrameType


def _stop(signal_number: int, frame: FrameType | None) -> None:
    del signal_number, frame
    sys.exit(143)


def main() -> None:
    """Run the command. A missing package is named in one line, without a traceback."""
    try:
        for module in ("typer", "rich"):
            require(module, extra="cli", needed_by="the hshap command")
        from hshap.cli.app import app  # noqa: PLC0415, typer is an optional dependency

        # SIGTERM ends the command like an exit, so that no unfinished result is left behind.
        signal.signal(signal.SIGTERM, _stop)
        app(prog_name="hshap")
    except HshapError as error:
        sys.stderr.write(f"hshap: {error}\n")
        raise SystemExit(6) from None


if __name__ == "__main__":
    main()
