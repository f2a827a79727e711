"""Tiling: a large image explained tile by tile, and then inside the tiles that were found.

First a game over tiles: the model scores each tile once, and `Bags` plays the games on these
scores. Then each found tile is explained at full resolution by the ordinary explainer, as a part of
the whole image: all other tiles are hidden, and pooled with it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, overload

import numpy as np

from hshap._util import checks
from hshap.baselines.recipes import Fixed
from hshap.errors import ArgumentError
from hshap.evaluators.bags import Bags
from hshap.evaluators.tiles import Pool, Tiles, embedded, joined
from hshap.explainer import Explainer
from hshap.explainer.tile_parts import GROUP
from hshap.explainer.tile_scores import score_tiles
from hshap.explanation.placement import Placement
from hshap.explanation.tiled import TiledExplanation, tiles_of
from hshap.formats.reading import opened
from hshap.games.search import BreadthFirst, DepthFirst, GroupTesting, Share
from hshap.games.targets import as_targets, class_index, describe_target, is_several, measure
from hshap.partitions.grids import Bisection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hshap._util.types import Grid, Heat, Image
    from hshap.explainer.tile_parts import KeptTiles
    from hshap.explainer.tile_scores import TileScores
    from hshap.explanation.explanation import Explanation
    from hshap.games.engine import Progress
    from hshap.games.search import Search
    from hshap.games.targets import Positives, Target

    OnProgress = Callable[[Progress], None]

SHARE = 0.2
"""Tiles below this share of the strongest one are dropped, if the explainer has no search."""


@overload
def explain_tiles(
    explainer: Explainer,
    image: object,
    target: Target,
    *,
    tiles: Tiles | None = None,
    progress: OnProgress | None = None,
) -> TiledExplanation: ...


@overload
def explain_tiles(
    explainer: Explainer,
    image: object,
    target: Sequence[Target],
    *,
    tiles: Tiles | None = None,
    progress: OnProgress | None = None,
) -> list[TiledExplanation]: ...


def explain_tiles(
    explainer: Explainer,
    image: object,
    target: Target | Sequence[Target],
    *,
    tiles: Tiles | None = None,
    progress: OnProgress | None = None,
) -> TiledExplanation | list[TiledExplanation]:
    """Explain an image that need not fit in memory: first its tiles, then inside the found ones.

    `image` is a path, an array or a `LargeImage`, see `open_image`. `tiles` says how it is cut,
    `Tiles(side=512)` by default. The model of the explainer takes one tile. Its outputs are pooled
    over tiles, by their maximum unless `tiles.bags` says otherwise. `target` is a class of the
    pooled outputs, a callable, or a list of them, which share the scores of the tiles.

    Hidden pixels show one baseline in all tiles: that of the explainer, or the image's own colour.
    The search is that of the explainer in both stages. Over tiles it has no budget, because no
    model runs there. Without a search, tiles and regions below a fifth of the strongest one are
    dropped.

    If tiles do not overlap, the result is that of the pooled model on the whole image, by a tree
    that passes through the tiles.

    >>> import hshap
    >>> import numpy as np
    >>> image = np.zeros((1, 64, 64), np.float32)
    >>> image[0, 40, 21] = 1.0
    >>> explainer = hshap.Explainer(
    ...     lambda tiles: tiles.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Bisection(min_size=1),
    ... )
    >>> found = explain_tiles(explainer, image, target=0, tiles=hshap.large.Tiles(side=16))
    >>> found.boxes()
    [Finding(start=(40, 21), stop=(41, 22), score=1.0)]
    """
    wanted, cut = as_targets(target, explainer.facts.index), _checked(tiles)
    with opened(image) as large:
        scored = score_tiles(explainer, large, cut, progress)
        found = [explain_scored(explainer, scored, one, progress) for one in wanted]
    return found if is_several(target) else found[0]


def _checked(tiles: object) -> Tiles:
    if not (tiles is None or isinstance(tiles, Tiles)):
        message = f"tiles is {checks.shown(tiles)}; pass Tiles(side=512) or None"
        raise ArgumentError(message)
    return tiles or Tiles()


def explain_scored(  # noqa: PLR0913, the facts of one target
    explainer: Explainer,
    scored: TileScores,
    target: Target,
    progress: OnProgress | None = None,
    kept: KeptTiles | None = None,
    *,
    positives: Positives | None = None,
) -> TiledExplanation:
    """Explain one target of an image whose tiles have been scored.

    Found tiles are explained in groups; those that are `kept` are not explained again. With
    `positives`, a negative image comes back without found tiles: see `Explainer.explain_many`.
    """
    started = time.perf_counter()
    reader = scored.reader
    grid, cut = reader.grid, reader.tiles
    pool = Pool.of(cut.bags, scored.outputs, scored.hidden)
    over_tiles = _over_tiles(explainer, scored, target, positives)
    values = measure(target, pool.alone().reshape(prod(grid), -1)).reshape(grid)
    scores = np.where(scored.skipped, 0.0, values - over_tiles.baseline_score)
    # The strongest first; equal ones from the top.
    found = sorted(
        (place for place in tiles_of(over_tiles.leaves) if not scored.skipped[place]),
        key=lambda place: (-scores[place], place),
    )
    chosen = found[: cut.max_tiles]
    inside: list[Explanation] = []
    for number, first in enumerate(range(0, len(chosen), GROUP)):
        group = chosen[first : first + GROUP]
        positions = [int(np.ravel_multi_index(place, grid)) for place in group]
        made = kept and kept.get(number, positions)
        if made is None:
            told = progress and _counted(progress, first, len(chosen) - first - len(group))
            made = tuple(_inside(explainer, scored, pool, target, group, told))
            if kept is not None:
                kept.put(number, made)
        inside += made
    return TiledExplanation(
        name=reader.image.name,
        tiles=over_tiles,
        inside=tuple(inside),
        scores=scores,
        skipped=scored.skipped,
        side=cut.side,
        overlap=cut.overlap,
        level=cut.level,
        pixel_size=reader.image.pixel_size,
        thumbnail=scored.thumbnail,
        evaluations=scored.evaluations + sum(one.evaluations for one in inside),
        seconds=scored.seconds + time.perf_counter() - started,
    )


def _over_tiles(
    explainer: Explainer, scored: TileScores, target: Target, positives: Positives | None
) -> Explanation:
    """Return the explanation over the grid of tiles, at its place in the whole image."""
    features, hidden = (np.moveaxis(each, -1, 0) for each in (scored.outputs, scored.hidden))
    cut, reader = scored.reader.tiles, scored.reader
    bags = Bags(cut.bags.embed, cut.bags.head, cut.bags.pool)
    game = Explainer(bags, Fixed(hidden), Bisection(min_size=1), _unlimited(explainer.search))
    made = game.explain(features, target, layout="CYX", positives=positives)
    shape = reader.image.shape[1:]
    factors = _factors(shape, reader.size)
    stop = [n * cut.stride * factor for n, factor in zip(reader.grid, factors, strict=True)]
    settings = made.settings.updated(tiles=cut, background=int(scored.skipped.sum()))
    return replace(made.placed(shape, stop=stop), settings=settings)


def _unlimited(search: Search | None) -> Search:
    """Return the search without budgets: over tiles no model runs."""
    if search is None:
        return Share(SHARE, of="finding")
    if isinstance(search, (DepthFirst, BreadthFirst, GroupTesting)):
        return replace(search, max_evaluations=None, max_seconds=None)
    return replace(search, max_evaluations=None) if isinstance(search, Share) else search


@dataclass(frozen=True, eq=False)
class InBag:
    """The target of one tile: that of the whole image, with all other tiles hidden."""

    target: Target
    bags: Bags
    rest: Heat

    def __call__(self, outputs: Heat) -> Heat:
        """Return the explained number for each row of a tile's outputs."""
        return measure(self.target, joined(self.bags, embedded(self.bags, outputs), self.rest))


def _inside(  # noqa: PLR0913, PLR0917, the facts of one target
    explainer: Explainer,
    scored: TileScores,
    pool: Pool,
    target: Target,
    found: Sequence[Grid],
    progress: OnProgress | None,
) -> Iterator[Explanation]:
    """Yield the explanations of found tiles, in their order, at their place in the image."""
    reader, cut = scored.reader, scored.reader.tiles
    model = Explainer(explainer.evaluator, reader.baseline, explainer.partition, explainer.search)

    def pairs() -> Iterator[tuple[Image, InBag]]:
        for place in found:
            yield reader.tile(reader.raw(place)), InBag(target, cut.bags, pool.rest[place])

    shape = reader.image.shape[1:]
    factors = _factors(shape, reader.size)
    made = sorted(model.explain_many(pairs(), progress=progress), key=lambda one: one.position)
    for place, one in zip(found, made, strict=True):
        start = cut.corner(place)
        ends = [
            tuple(at * factor for at, factor in zip(corner, factors, strict=True))
            for corner in (start, tuple(at + cut.side for at in start))
        ]
        yield replace(
            one,
            position=int(np.ravel_multi_index(place, reader.grid)),
            target=describe_target(target),
            class_index=class_index(target),
            placement=Placement(one.grid, shape, *ends),
        )


def _counted(progress: OnProgress, done: int, left: int) -> OnProgress:
    """Return a receiver of a group's progress; so many tiles are done before it, or left after."""

    def tell(made: Progress) -> None:
        explanations, waiting = made.explanations + done, made.waiting + left
        progress(replace(made, explanations=explanations, waiting=waiting))

    return tell


def _factors(shape: Sequence[int], size: Grid) -> tuple[float, ...]:
    """Return the pixels of the whole image for one of a level, on each axis."""
    return tuple(1 if own == full else full / own for full, own in zip(shape, size, strict=True))
