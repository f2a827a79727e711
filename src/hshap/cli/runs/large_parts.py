"""A run of `hshap tiles` that has not ended: its finished parts, from which `--resume` goes on.

    OUT/unfinished/settings.json     model and options: other ones are refused
    OUT/unfinished/STATE/            scores and found tiles of one image

The folder goes when the results are there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hshap._util.atomic import replace
from hshap._util.version import __version__
from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal
from hshap.cli.runs.record import UNFINISHED, WORDS, read_summary
from hshap.errors import HshapError
from hshap.explainer.probes import compare, noted_probes
from hshap.explainer.tile_parts import Parts
from hshap.explanation.tiled import TiledExplanation

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from hshap._util.types import Json, Untyped
    from hshap.cli.runs.folders import Place

SETTINGS = "settings.json"


@dataclass(frozen=True)
class TileParts:
    """The finished parts of a run whose results go to a place; without `resume`, it begins anew."""

    place: Place
    resume: bool

    @property
    def folder(self) -> Path:
        """The folder of all parts."""
        return self.place.out / UNFINISHED

    @contextmanager
    def kept(self, settings: Mapping[str, Json]) -> Generator[None]:
        """Keep parts that are made with these settings; those of other ones are refused."""
        wanted = {"hshap": __version__, **settings}
        if self.resume:
            self._check(wanted)
        else:
            self.remove()
        self.folder.mkdir(exist_ok=True)
        text = json.dumps(wanted, indent=1) + "\n"
        replace(self.folder / SETTINGS, lambda file: file.write(text.encode()))
        try:
            yield
        finally:
            if not any(self.folder.glob("*/*.npz")):
                self.remove()

    def _check(self, wanted: Mapping[str, Json]) -> None:
        """Refuse a folder that has results of other settings, or files of others alone."""
        out, found = self.place.out, (self._noted(), read_summary(self.place.out))
        if found == (None, None) and self.place.others:
            message = f"{out} has files but no results to resume; pass another --out"
            raise Refusal(Code.OUTPUT, message)
        for noted in found:
            known = wanted if noted is None else noted
            different = [WORDS.get(name, name) for name in wanted if _differs(name, known, wanted)]
            if different:
                message = (
                    f"--resume: {out} was made with another {', '.join(different)}; pass the same "
                    "options, or --force to replace its results"
                )
                raise Refusal(Code.USAGE, message)

    def of(self, state: str) -> Parts:
        """Return the finished parts of an image by its state."""
        return Parts(self.folder / state)

    def finished(self, path: Path, state: str) -> dict[str, TiledExplanation]:
        """Return the results of an image that an earlier run finished, by class; empty if none."""
        out = self.place.out
        record = (read_summary(out) or {}) if self.resume else {}
        for entry in cast("list[Untyped]", record.get("images") or ()):
            with suppress(KeyError, TypeError, OSError, HshapError):
                if (entry["image"], entry["state"]) == (as_text(str(path)), state):
                    files = {each["class"]: each["explanation"] for each in entry["explanations"]}
                    return {
                        name: TiledExplanation.load(out / Path(file).name)
                        for name, file in files.items()
                    }
        return {}

    def remove(self) -> None:
        """Remove all parts, once the results are there, or are to be made anew."""
        if (self.folder / SETTINGS).is_file():  # it is ours
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def told(self) -> str:
        """How to go on, for the end of a run that was stopped."""
        if not self.folder.exists():
            return "nothing was written"
        return "finished tiles are kept; run the same command with --resume to go on"

    def _noted(self) -> dict[str, Json] | None:
        try:
            found = json.loads((self.folder / SETTINGS).read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


def _differs(name: str, noted: Mapping[str, Json], wanted: Mapping[str, Json]) -> bool:
    """Tell whether two records differ in an entry; answers of a model may differ by rounding."""
    one, other = noted_probes(noted), noted_probes(wanted)
    if name == "probes" and one is not None and other is not None:
        return compare(one, other).is_other
    return noted.get(name) != wanted[name]


def state_of(path: Path) -> str:
    """Return a digest of the names, sizes and times of change of an image's files.

    The pixels of a slide are not read for it: that would take as long as to read all its tiles.
    """
    # Slides of one maker are a file, and a folder of the same name.
    root = path.with_suffix("") if path.suffix.lower() == ".mrxs" else path
    try:
        states = {str(one.relative_to(root)): one.stat() for one in sorted(root.rglob("*"))}
        states |= {"": path.stat()}
    except OSError:
        return "unknown"  # whoever opens the image says why
    facts = [(name, state.st_size, state.st_mtime_ns) for name, state in states.items()]
    return hashlib.sha256(json.dumps(facts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
