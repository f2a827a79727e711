"""Large images of a run: each is explained tile by tile, and a kill costs at most its last tiles.

Finished parts lie in `unfinished/KEY` of a local folder, until the rows of the image are
committed. Two files with the same content have keys of their own, since two workers may be at them
at once. A run folder on an object store has none: there, a kill costs the image.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hshap.errors import MissingExtraError
from hshap.explainer.tile_parts import Parts
from hshap.explainer.tile_scores import score_tiles
from hshap.explainer.tiling import explain_scored
from hshap.formats.reading import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from hshap.evaluators.tiles import Tiles
    from hshap.explainer import Explainer
    from hshap.explanation.tiled import TiledExplanation
    from hshap.games.engine import Progress
    from hshap.games.targets import Positives, Target

DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors of a disk that concern all images, and not the one that is read."""


@dataclass(frozen=True, eq=False)
class LargeResult:
    """The explanation of a large image; `position` is its number among the images of a task."""

    position: int
    found: TiledExplanation

    @property
    def target(self) -> int | str:
        """The explained number."""
        return self.found.target

    @property
    def evaluations(self) -> int:
        """The inputs of the model."""
        return self.found.evaluations

    @property
    def is_explained(self) -> bool:
        """Whether the image was explained: negative ones are not."""
        return self.found.tiles.is_explained

    @property
    def negative(self) -> str:
        """Why the image is negative; empty if it is not."""
        return self.found.tiles.negative


@dataclass(frozen=True)
class LargeWork:
    """One large image of a task: its path, and its targets with the texts that tell them apart."""

    position: int
    key: str
    path: str
    targets: Sequence[tuple[str, Target]]


def explain_large(  # noqa: PLR0913, PLR0917, each is another part of the run
    explainer: Explainer,
    works: Iterator[LargeWork],
    tiles: Tiles,
    unfinished: Path | None,
    on_error: Callable[[int, Exception], None],
    positives: Positives | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> Iterator[LargeResult]:
    """Yield the explanations of all targets of large images, one image after the other."""
    for work in works:
        parts = None if unfinished is None else Parts(unfinished / work.key)
        try:
            with opened(work.path) as image:
                scored = score_tiles(explainer, image, tiles, watch, parts)
                for text, target in work.targets:
                    kept = parts and parts.found_tiles(_number(text))
                    made = explain_scored(
                        explainer, scored, target, watch, kept, positives=positives
                    )
                    yield LargeResult(work.position, made)
        except (MissingExtraError, MemoryError):
            raise  # concerns all images
        except Exception as error:
            if isinstance(error, OSError) and error.errno in DISK:
                raise
            on_error(work.position, error)


def parts_key(identity: str, name: str) -> str:
    """Return the key of the finished parts of an image: its identity, and its name in the run."""
    return hashlib.sha256(f"{identity}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()


def forget_parts(unfinished: Path | None, key: str) -> None:
    """Remove the finished parts of an image whose rows are committed."""
    if unfinished is not None:
        shutil.rmtree(unfinished / key, ignore_errors=True)


def _number(text: str) -> int:
    """Return a number for a target that stays the same in later calls."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)
