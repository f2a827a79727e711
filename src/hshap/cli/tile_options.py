"""Options of commands that cut large images into tiles."""

from __future__ import annotations

from typing import Annotated

import typer

from hshap.cli.faults import Code, Refusal
from hshap.evaluators.tiles import Tiles

TILES = "How to cut the image"

Side = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Explain large images by tiles of this side, in pixels.",
        rich_help_panel=TILES,
    ),
]
Overlap = Annotated[
    int, typer.Option(min=0, help="Pixels that neighbouring tiles share.", rich_help_panel=TILES)
]
Level = Annotated[
    int, typer.Option(min=0, help="Resolution to read; 0 is full.", rich_help_panel=TILES)
]
SkipFlat = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Skip tiles in which no channel of the model's input varies by more than this.",
        rich_help_panel=TILES,
    ),
]
MaxTiles = Annotated[
    int, typer.Option(min=1, help="Most found tiles to look into.", rich_help_panel=TILES)
]
MAX_TILES = 100


def tiles_of(
    side: int | None, overlap: int, level: int, skip_flat: float | None, most: int
) -> Tiles | None:
    """Return how large images are cut; None without --tiles, where its options mean nothing."""
    if side is not None:
        return Tiles(side, overlap, background=skip_flat, max_tiles=most, level=level)
    given = {"--overlap": overlap, "--level": level, "--skip-flat": skip_flat is not None}
    given["--max-tiles"] = most != MAX_TILES
    for name in (name for name, is_given in given.items() if is_given):
        raise Refusal(Code.USAGE, f"{name} is for large images; pass --tiles with a side, too")
    return None


def size_of(size: str | None, cut: Tiles | None) -> str | None:
    """Return the size of the model's images: that of tiles, if large images are cut."""
    if cut is None:
        return size
    if size is not None:
        message = f"--size {size} is for whole images; with --tiles, a tile of {cut.side} is one"
        raise Refusal(Code.USAGE, message)
    return f"{cut.side}x{cut.side}"
