"""The journal of a run: a line for each finished image, so that a sudden end loses none of them.

A run that is stopped by a signal writes its record itself. One that is killed cannot: the next run
on the same folder reads the journal, and gives the killed one the record that it would have had.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hshap.cli.runs.record import DIGESTS, SUMMARY, digest, read_summary, write_summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Json

JOURNAL = "journal"
"""Name of the file, beside the folder of results."""


class Journal:
    """Writes the journal of a run whose results go to a folder."""

    def __init__(self, results: Path) -> None:
        self._results = results

    def begin(self, summary: Mapping[str, Json], *, resumed: bool) -> None:
        """Note the facts of the run, and whether it goes on with the results that are there."""
        self._write({"summary": dict(summary), "resumed": resumed})

    def note(self, image: Mapping[str, Json], names: Sequence[str]) -> None:
        """Note a finished image: its entry in the record, and the names of its files."""
        files: dict[str, Json] = {name: digest(self._results / name) for name in names}
        self._write({"image": dict(image), DIGESTS: files})

    def _write(self, line: Mapping[str, Json]) -> None:
        # In one piece: of a line that is cut short, nothing is believed.
        with (self._results.parent / JOURNAL).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def has_results(lock: Path) -> bool:
    """Tell whether a run that was killed left finished images in its lock."""
    return len(_lines(lock)) > 1


def complete(results: Path, out: Path) -> bool:
    """Write the record of a run that was killed into its results; True if they belong into `out`.

    They belong there if the run went on with the results of `out`, or if there are none. Files that
    are not of a finished image are removed.
    """
    first, *others = _lines(results.parent)
    earlier = read_summary(out) or {}
    belongs = bool(first.get("resumed")) or not earlier
    images: list[Json] = list(cast("list[Json]", earlier.get("images") or [])) if belongs else []
    kept = dict(cast("dict[str, str]", earlier.get(DIGESTS) or {})) if belongs else {}
    finished: dict[str, str] = {}
    for line in others:
        files = cast("dict[str, str]", line.get(DIGESTS) or {})
        # A rescue may have been killed, too: then some files have been moved already.
        moved = {name for name, sha256 in files.items() if belongs and _is_same(out, name, sha256)}
        left = {name: sha256 for name, sha256 in files.items() if name not in moved}
        if files and all(_is_same(results, *pair) for pair in left.items()):
            images.append(line["image"])
            finished |= left
            kept |= {name: files[name] for name in moved}
    for file in results.iterdir():
        if file.name not in finished:
            file.unlink()
    summary = cast("Mapping[str, Json]", first["summary"])
    record: dict[str, Json] = {**summary, "interrupted": True, "done": len(images)}
    listed = {name: sha256 for name, sha256 in kept.items() if (out / name).is_file()}
    write_summary(results, {**record, "skipped": [], "page": None, "images": images}, listed)
    return belongs


def close(results: Path) -> None:
    """Remove the journal, once its results are in their place."""
    (results.parent / JOURNAL).unlink(missing_ok=True)


def _is_same(results: Path, name: str, sha256: str) -> bool:
    """Tell whether a file of the results is as it was noted; other places are never looked at."""
    with suppress(OSError):
        return Path(name).name == name != SUMMARY and digest(results / name) == sha256
    return False


def _lines(lock: Path) -> list[dict[str, Json]]:
    """Return the lines of a journal that are whole; none if it lacks the first one."""
    try:
        text = (lock / JOURNAL).read_text("utf-8")
    except (OSError, ValueError):
        return []
    found: list[dict[str, Json]] = []
    for line in text.splitlines():
        with suppress(ValueError, RecursionError):
            made = json.loads(line)
            if isinstance(made, dict) and ("image" if found else "summary") in made:
                found.append(made)
    return found
