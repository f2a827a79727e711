"""The `hshap` command, also as `python -m hshap`."""

from __future__ import annotations

import sys

from hshap.errors import HshapError, require


def main() -> None:
    """Run the command; mistakes are answered in one line, without a traceback."""
    try:
        for module in ("typer", "rich"):
            require(module, extra="cli", what="the hshap command")
        from hshap.cli import app  # noqa: PLC0415, typer is an optional dependency

        app()
    except HshapError as error:
        sys.stderr.write(f"hshap: {error}\n")
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
