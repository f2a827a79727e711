"""Tokens: transformers that see an image as patches, with the tokens of hidden patches left out.

The paper replaces hidden pixels by a baseline. Here nothing replaces them: the model gets fewer
tokens. That is cheaper, and the model never sees a painted image. The baseline has no influence.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.cache import BoundedCache, ByIdentity
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError, require
from hshap.evaluators.batched import Batched
from hshap.evaluators.outputs import as_scores, naming_inputs
from hshap.partitions.regions import mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from hshap._util.types import Array, Heat, Ints, Model, Shape, Tensor
    from hshap.evaluators.canvas import Row

LARGEST_BATCH = 64
MOST_IMAGES = 40
"""Images whose tokens are kept: more than a run works on at a time."""

SHOWN = 0.5
"""Share of a token's pixels that must be shown for the token to be shown."""


@recipe
class Tokens:
    """Score a transformer with the tokens of hidden patches left out.

    `model` is a torch module in eval mode that has `embed(images)`, which returns tokens `(n,
    prefix + patches, width)` with their positions, patches row by row; `blocks`, a module or
    several; and `head(tokens)`, which returns scores `(n, classes)`. `patch` is a token's side in
    pixels, one number or one for each axis; `prefix` counts the tokens that belong to no patch,
    which are always shown. A patch is shown if at least half of its pixels are: choose a partition
    whose leaves are no smaller. An exception of the model becomes a `ModelFailedError`.

    >>> import torch
    >>> import hshap
    >>> class Pooled(torch.nn.Module):  # patches of one pixel, and a block that changes nothing
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

    model: Model
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
        Batched(self.model)  # refuses objects that are no module, and training mode
        settle(self, patch=checks.sides("patch", self.patch))
        settle(self, prefix=checks.integer("prefix", self.prefix, minimum=1))

    def open_session(self) -> TokenSession:
        """Start a run."""
        return TokenSession(self)


class TokenSession:
    """Embeds every image once, and runs the blocks on the tokens that are shown."""

    def __init__(self, tokens: Tokens, *, max_images: int = MOST_IMAGES) -> None:
        self._torch = require("torch", extra="torch", needed_by="Tokens")
        self._model, self._prefix = tokens.model, tokens.prefix
        self._patch = checks.sides("patch", tokens.patch)
        self._batched = Batched(tokens.model).open_session()
        self._embedded = BoundedCache["torch.Tensor"](max_images)

    def put(self, array: Array) -> Tensor:
        return self._batched.put(array)

    def capacity(self, shape: Shape, itemsize: int) -> int:
        del shape, itemsize
        return LARGEST_BATCH

    def score(self, rows: Sequence[Row]) -> Heat:
        shown = [self._shown(row) for row in rows]
        by_count: defaultdict[int, list[int]] = defaultdict(list)
        for number, places in enumerate(shown):
            by_count[len(places)].append(number)
        found: dict[int, Heat] = {}
        # Rows with equally many tokens form a batch, which so needs no padding.
        for numbers in by_count.values():
            group = [rows[n] for n in numbers]
            with naming_inputs(group), self._torch.inference_mode():
                tokens = self._torch.stack(
                    [self._tokens(rows[n].canvas.image)[shown[n]] for n in numbers]
                )
                scores = as_scores(self._head(tokens), len(numbers))
            found.update(zip(numbers, scores, strict=True))
        return np.stack([found[number] for number in range(len(rows))])

    def _head(self, tokens: torch.Tensor) -> torch.Tensor:
        blocks = self._model.blocks
        several = isinstance(blocks, (list, tuple, self._torch.nn.ModuleList))
        for block in blocks if several else (blocks,):
            tokens = block(tokens)
        return self._model.head(tokens)

    def _shown(self, row: Row) -> Ints:
        """Return the positions of the tokens that are shown, the prefix first."""
        grid = row.canvas.grid
        sides = checks.per_axis("patch", self._patch, len(grid))
        if any(n % side for n, side in zip(grid, sides, strict=True)):
            message = f"patch={self._patch} does not divide the grid {grid}; resize the image"
            raise ArgumentError(message)
        split = [part for n, side in zip(grid, sides, strict=True) for part in (n // side, side)]
        inside = mask(row.kept, grid).reshape(split)
        share = inside.mean(axis=tuple(range(1, 2 * len(grid), 2)))
        patches = np.flatnonzero(share >= SHOWN) + self._prefix
        return np.concatenate([np.arange(self._prefix), patches])

    def _tokens(self, image: Tensor) -> torch.Tensor:
        """Return the tokens of an image `(prefix + patches, width)`."""
        key = ByIdentity(image)
        tokens = self._embedded.get(key)
        if tokens is None:
            is_array = isinstance(image, np.ndarray)
            batch = self._torch.from_numpy(np.array(image)) if is_array else image
            tokens = self._model.embed(batch[None])[0]
            self._embedded.put(key, tokens)
        return tokens
