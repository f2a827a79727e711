"""Original images for a page: each is read from its file again when its turn comes, and one by one.

The page shows the file at its own size and depth, and not the smaller image that the model saw.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.visible import as_text
from hshap.cli.inputs.images import read_original
from hshap.cli.runs.record import digest
from hshap.errors import HshapError
from hshap.export.page import View

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hshap._util.types import Grid
    from hshap.cli.inputs.images import Original, Reader
    from hshap.explanation.explanation import Explanation
    from hshap.formats.lengths import PixelSize

GREY = 200
"""Brightness of the page's picture if there is no image."""


@dataclass(frozen=True)
class Scale:
    """The size of a pixel of the original images, as options give it; None as each file tells."""

    pixel_size: float | None = None
    unit: str = "mm"

    def of(self, told: PixelSize | None) -> tuple[tuple[float, ...] | float | None, str]:
        """Return the size of a pixel and its unit for an image whose file tells one, or none."""
        if self.pixel_size is not None or told is None:
            return self.pixel_size, self.unit
        return told.sides, told.unit


@dataclass(frozen=True)
class Originals:
    """Makes the views of a page; `notes` tell about images, once for all that share a note."""

    reader: Reader
    scale: Scale = field(default_factory=Scale)
    notes: dict[str, list[Path]] = field(default_factory=dict[str, "list[Path]"])

    def view(
        self, path: Path, sha256: str, size: Grid, explanations: Mapping[str, Explanation]
    ) -> View:
        """Return an image with its explanations; on grey if the file is no longer the same."""
        original = self._read(path, sha256, size)
        if original is None:
            changed = "it has changed since it was explained"
            reason = changed if path.exists() else "its file is not there any more"
            note = f"{reason}, so the page shows its findings on grey"
            self.notes.setdefault(note, []).append(path)
            return on_grey(as_text(path.name), explanations)
        return self.drawn(original, explanations)

    def drawn(self, original: Original, explanations: Mapping[str, Explanation]) -> View:
        """Return the view of an image that was read."""
        told = original.pixel_size
        if told is not None and self.scale.pixel_size is None:
            note = f"{told}, as the file says; --pixel-size takes another size"
            self.notes.setdefault(note, []).append(original.path)
        size, unit = self.scale.of(told)
        name, window = as_text(original.path.name), original.window
        return View(name, original.pixels, explanations, pixel_size=size, unit=unit, window=window)

    def _read(self, path: Path, sha256: str, size: Grid) -> Original | None:
        try:
            # A record of others may name a pipe, which never ends.
            if not path.is_file() or digest(path) != sha256:
                return None
            found = read_original(path, self.reader)
        except (OSError, HshapError):
            return None
        return found if found.size == size else None


def on_grey(name: str, explanations: Mapping[str, Explanation]) -> View:
    """Return a view without an image."""
    first = next(iter(explanations.values()))
    is_one = len({one.grid for one in explanations.values()}) == 1
    size = first.grid if is_one else first.placement.shape
    return View(name, np.full(size, GREY, dtype=np.uint8), explanations)
