"""Tokens: transformers that see an image as patches, with hidden patches left out.

This is another way to remove than the paper's: nothing stands in for what is hidden, the model is
shown fewer tokens. It is cheaper, and the model never sees a painted image; the baseline is not
asked.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError, require
from hshap.evaluators.batched import Batched
from hshap.evaluators.runners import as_scores
from hshap.partitions.regions import mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Tensor
    from hshap.evaluators.canvas import Row

ROWS = 64
IMAGES = 40  # whose tokens are kept: more than a run has in hand at a time
SHOWN = 0.5  # of a token's pixels


@recipe
class Tokens:
    """Score a transformer with the tokens of hidden patches left out.

    `model` is a torch module in eval mode that has `embed(images)`, which gives tokens `(n, prefix
    + patches, width)` with their positions, patches row by row; `blocks`, a module or several; and
    `head(tokens)`, which gives scores `(n, classes)`. `patch` is a token's side in pixels, one
    number or one for each axis; `prefix` counts the tokens that belong to no patch, which are
    always shown. A patch is shown if at least half of its pixels are: choose a partition whose
    leaves are no smaller.

    >>> import torch
    >>> import hshap
    >>> class Pooled(torch.nn.Module):  # patches of one pixel, no blocks worth the name
    ...     blocks = torch.nn.Identity()
    ...
    ...     def embed(self, images):
    ...         return torch.nn.functional.pad(images.flatten(2).mT, (0, 0, 1, 0))
    ...
    ...     def head(self, tokens):
    ...         return tokens.amax(1)
    >>> explainer = hshap.Explainer(
    ...     Tokens(Pooled().eval(), patch=1),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ... )
    >>> image = np.zeros((1, 4, 4), dtype=np.float32)
    >>> image[0, 1, 2] = 1.0
    >>> explainer.explain(image, target=0).leaves
    (Box(start=(1, 2), stop=(2, 3)),)
    """

    model: Any
    patch: int | Sequence[int]
    prefix: int = 1

    def __post_init__(self) -> None:
        require("torch", extra="torch", needed_by="Tokens")
        missing = [name for name in ("embed", "blocks", "head") if not hasattr(self.model, name)]
        if missing:
            message = (
                f"model is {checks.shown(self.model)} without {', '.join(missing)}; pass a torch "
                "module with embed, blocks and head, or use Batched"
            )
            raise ArgumentError(message)
        Batched(self.model)  # refuses what is no module, and training mode
        settle(self, patch=checks.sides("patch", self.patch))
        settle(self, prefix=checks.integer("prefix", self.prefix, minimum=1))

    def open_session(self) -> TokenSession:
        """Start a run."""
        return TokenSession(self)


class TokenSession:
    """Embeds every image once, and runs the blocks on the tokens that are shown."""

    def __init__(self, tokens: Tokens) -> None:
        self._recipe = tokens
        self._dense = Batched(tokens.model).open_session()
        self._embedded: dict[int, tuple[Tensor, Any]] = {}

    def put(self, array: NDArray[Any]) -> Tensor:
        return self._dense.put(array)

    def capacity(self, shape: tuple[int, ...], itemsize: int) -> int:
        del shape, itemsize
        return ROWS

    def score(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        import torch  # noqa: PLC0415, an optional dependency

        shown = [self._shown(row) for row in rows]
        groups: defaultdict[int, list[int]] = defaultdict(list)
        for number, places in enumerate(shown):
            groups[len(places)].append(number)
        found: dict[int, NDArray[np.float64]] = {}
        with torch.inference_mode():
            # Rows with as many tokens go together: nothing is padded.
            for numbers in groups.values():
                tokens = torch.stack(
                    [self._tokens(rows[n].canvas.image)[shown[n]] for n in numbers]
                )
                scores = as_scores(self._head(tokens), len(numbers))
                found.update(zip(numbers, scores, strict=True))
        return np.stack([found[number] for number in range(len(rows))])

    def _head(self, tokens: Any) -> Any:
        blocks = self._recipe.model.blocks
        for block in (blocks,) if _is_one(blocks) else blocks:
            tokens = block(tokens)
        return self._recipe.model.head(tokens)

    def _shown(self, row: Row) -> NDArray[np.intp]:
        """Return the places of the tokens that are shown, those of no patch first."""
        grid = row.canvas.grid
        patch: Any = self._recipe.patch
        sides = checks.per_axis("patch", patch, len(grid))
        if any(n % side for n, side in zip(grid, sides, strict=True)):
            message = (
                f"patch={self._recipe.patch} does not divide the grid {grid}; resize the image"
            )
            raise ArgumentError(message)
        split = [part for n, side in zip(grid, sides, strict=True) for part in (n // side, side)]
        inside = mask(row.kept, grid).reshape(split)
        share = inside.mean(axis=tuple(range(1, 2 * len(grid), 2)))
        prefix = self._recipe.prefix
        patches = np.flatnonzero(share >= SHOWN) + prefix
        return np.concatenate([np.arange(prefix), patches])

    def _tokens(self, image: Tensor) -> Any:
        import torch  # noqa: PLC0415, an optional dependency

        known = self._embedded.pop(id(image), None)
        if known is None:
            batch = torch.from_numpy(np.array(image)) if isinstance(image, np.ndarray) else image
            # The array is kept beside, so that nothing else can have its identity.
            known = image, self._recipe.model.embed(batch[None])[0]
        self._embedded[id(image)] = known
        while len(self._embedded) > IMAGES:
            del self._embedded[next(iter(self._embedded))]
        return known[1]


def _is_one(blocks: Any) -> bool:
    """Tell whether blocks are one module to call, and not a list of them."""
    import torch  # noqa: PLC0415, an optional dependency

    return not isinstance(blocks, (list, tuple, torch.nn.ModuleList))
