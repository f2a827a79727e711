"""The `hshap` command, also as `python -m hshap`."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings

from hshap._util.visible import visible
from hshap.errors import MissingExtraError, require


def _show_warning(message: Warning | str, category: type[Warning], *place: object) -> None:
    """Write a warning of any library in one line, without the line of its source."""
    del place
    sys.stderr.write(f"hshap: {category.__name__}: {visible(str(message))}\n")


def main() -> None:
    """Run the command. A missing package is named in one line, without a traceback."""
    warnings.showwarning = _show_warning
    # pillow tells details of image files; one that cannot be read as it should is refused anyway.
    warnings.filterwarnings("ignore", module="PIL")
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    try:
        for module in ("typer", "rich"):
            require(module, extra="cli", needed_by="the hshap command")
        from hshap.cli.app import app  # noqa: PLC0415, typer is an optional dependency

        app(prog_name="hshap")
    except KeyboardInterrupt:  # before the command has begun
        raise SystemExit(130) from None
    except MissingExtraError as error:
        sys.stderr.write(f"hshap: {visible(str(error))}\n")
        raise SystemExit(6) from None
    except Exception:  # noqa: BLE001, only with --debug: the traceback, which names files
        for line in traceback.format_exc().splitlines():
            sys.stderr.write(f"{visible(line)}\n")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
