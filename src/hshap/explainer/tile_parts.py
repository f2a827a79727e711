"""Finished parts of the work on a large image, in a folder: a call that was killed goes on.

Scores of tiles are kept in their order, found tiles in groups. A call that goes on fills the same
batches as one that was never stopped, so its numbers are equal to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.atomic import replace
from hshap.explanation.archive import Archive, DamagedError, expect, file_bytes
from hshap.explanation.storage import MAX_BYTES, SEVERAL, pack_several, unpack_several

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hshap._util.types import Array, Heat
    from hshap.explanation.explanation import Explanation

EVERY = 10.0
"""Seconds between two files of scores: those of tiles since then are computed again."""

GROUP = 16
"""Found tiles that are explained and kept together; as many images are in flight at a time."""

SCORES = {
    "first": ("int64", 1),
    "scored": ("uint8", 1),
    "outputs": ("float64", 2),
    "bare": ("uint8", 1),
    "hidden": ("float64", 2),
    "skipped": ("uint8", 1),
    "thumbnail": ("uint8", 1),
    "tile": ("int64", 1),
    "seconds": ("float64", 1),
}
"""Type and number of axes of each array in a file of scores."""


@dataclass(frozen=True, eq=False)
class ScoredPart:
    """The scores of some tiles, one after another; `first` is the number of the first one.

    `outputs` are those of tiles for which `scored` is 1, `hidden` those of hidden tiles for which
    `bare` is 1. `thumbnail` has the bytes of the small picture so far, `tile` the shape of a tile
    and the bytes of a number in it. `seconds` is the time that the tiles took.
    """

    first: NDArray[np.int64]
    scored: NDArray[np.uint8]
    outputs: Heat
    bare: NDArray[np.uint8]
    hidden: Heat
    skipped: NDArray[np.uint8]
    thumbnail: NDArray[np.uint8]
    tile: NDArray[np.int64]
    seconds: Heat

    def check(self) -> None:
        """Refuse arrays that do not fit together with a `DamagedError`."""
        tiles = len(self.scored)
        expect(tiles and len(self.bare) == len(self.skipped) == tiles, "it has no tiles")
        expect(len(self.outputs) == self.scored.sum(), "it misses outputs")
        expect(len(self.hidden) == self.bare.sum(), "it misses outputs of hidden tiles")
        expect(len(self.tile) == 4 and (self.tile > 0).all(), "its tiles have no size")
        expect(len(self.first) == 1, "its first tile is none")
        expect(len(self.seconds) == 1 and self.seconds[0] >= 0, "its time is none")


@dataclass(frozen=True)
class Parts:
    """Finished parts of one image in a folder; a file that cannot be read does not count.

    `every` is the time in seconds between two files of scores.
    """

    folder: Path
    every: float = EVERY

    def scored(self) -> Iterator[ScoredPart]:
        """Yield the scores that are kept, up to the first part that is missing or damaged."""
        for number in count():
            arrays = self.read(f"scores-{number:06d}", SCORES)
            if arrays is None:
                return
            part = ScoredPart(**arrays)
            try:
                part.check()
            except DamagedError:
                return
            yield part

    def keep_scores(self, number: int, part: ScoredPart) -> None:
        """Keep the scores of tiles that follow those of earlier parts."""
        self.write(f"scores-{number:06d}", vars(part))

    def found_tiles(self, target: int) -> KeptTiles:
        """Return the found tiles that are kept for a target, by its number."""
        return KeptTiles(self, target)

    def read(self, name: str, wanted: Mapping[str, tuple[str, int]]) -> dict[str, Array] | None:
        """Return the arrays of a file; None if it is not there, or not whole."""
        try:
            archive = Archive(file_bytes(self.folder / f"{name}.npz", MAX_BYTES), MAX_BYTES)
            return {key: archive.read(key, *kind) for key, kind in wanted.items()}
        except (OSError, DamagedError):
            return None

    def write(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Write the arrays of a file, which appears whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.npz"
        replace(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


@dataclass(frozen=True)
class KeptTiles:
    """The explanations inside found tiles for one target, in groups."""

    parts: Parts
    target: int

    def get(self, group: int, positions: Sequence[int]) -> tuple[Explanation, ...] | None:
        """Return the explanations of a group of tiles at these positions; None if not kept."""
        arrays = self.parts.read(self._name(group), SEVERAL)
        try:
            found = () if arrays is None else unpack_several(arrays, MAX_BYTES)
        except DamagedError:
            return None
        return found if [one.position for one in found] == list(positions) else None

    def put(self, group: int, found: Sequence[Explanation]) -> None:
        """Keep the explanations of a group."""
        self.parts.write(self._name(group), pack_several(found))

    def _name(self, group: int) -> str:
        return f"inside-{self.target:03d}-{group:06d}"
