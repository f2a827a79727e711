"""The command line of a training, and the record that it leaves."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _typeshed import DataclassInstance

    S = TypeVar("S", bound=DataclassInstance)


def chosen_settings(defaults: S, description: str, words: Sequence[str] | None = None) -> S:
    """Return the settings with the options that the command line changes, one for each field."""
    parser = argparse.ArgumentParser(description=description)
    for name, default in asdict(defaults).items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=type(default), default=default, help=f"default: {default}")
    return replace(defaults, **vars(parser.parse_args(words)))


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write the figures of a training as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n")
