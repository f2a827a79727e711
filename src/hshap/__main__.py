"""The `hshap` command, also as `python -m hshap`."""

from __future__ import annotations

import signal
import sys

from hshap.errors import HshapError, require


def main() -> None:
    """Run the command; what is missing is said in one line, without a traceback."""
    try:
        for module in ("typer", "rich"):
            require(module, extra="cli", needed_by="the hshap command")
        from hshap.cli.app import app  # noqa: PLC0415, typer is an optional dependency

        # Being told to stop is no reason to leave half a result behind.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        app(prog_name="hshap")
    except HshapError as error:
        sys.stderr.write(f"hshap: {error}\n")
        raise SystemExit(6) from None


if __name__ == "__main__":
    main()
