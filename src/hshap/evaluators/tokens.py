"""Tokens: transformers that see an image as patches, with the tokens of hidden patches left out.

The paper replaces hidden pixels by a baseline. Here nothing replaces them: the model gets fewer
tokens. That is cheaper, and the model never sees a painted image. The baseline has no influence.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.cache import BoundedCache, ByIdentity
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError, require
from hshap.evaluators.batch_independence import BatchIndependence
from hshap.evaluators.batch_size import BatchLimits
from hshap.evaluators.outputs import as_scores, naming_inputs
from hshap.evaluators.protocol import Provenance
from hshap.evaluators.runners import TorchRunner, runner
from hshap.partitions.regions import mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from hshap._util.types import Array, Grid, Heat, Ints, Model, Shape, Tensor
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
    prefix + patches + suffix, width)` with their positions, patches row by row; `blocks`, a module
    or several; and `head(tokens)`, which returns scores `(n, classes)`. `patch` is a token's side
    in pixels, one number or one for each axis. `prefix` counts the tokens before the patches and
    `suffix` those after them, such as class and register tokens; they are always shown. Any other
    number of tokens is refused. A patch is shown if at least half of its pixels are: choose a
    partition whose leaves are no smaller. An exception of the model becomes a `ModelFailedError`.

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
    suffix: int = 0

    def __post_init__(self) -> None:
        require("torch", extra="torch", needed_by="Tokens")
        missing = [name for name in ("embed", "blocks", "head") if not hasattr(self.model, name)]
        if missing:
            message = (
                f"model is {checks.shown(self.model)} without {', '.join(missing)}; pass a torch "
                "module with embed, blocks and head, or use Batched"
            )
            raise ArgumentError(message)
        _runner(self.model)
        settle(self, patch=checks.sides("patch", self.patch))
        suffix = checks.integer("suffix", self.suffix, minimum=0)
        # With all patches hidden, at least one token is left.
        prefix = checks.integer("prefix", self.prefix, minimum=0 if suffix else 1)
        settle(self, prefix=prefix, suffix=suffix)

    def open_session(self) -> TokenSession:
        """Start a run."""
        return TokenSession(self)


def _runner(model: Model) -> TorchRunner:
    """Return the runner of a module; refuse other objects, and training mode."""
    made = runner(model, autocast=None, channels_last=False)
    if not isinstance(made, TorchRunner):
        message = f"model is {checks.shown(model)}, which is no torch module; pass one"
        raise ArgumentError(message)
    return made


class TokenSession:
    """Embeds every image once, and runs the blocks on the tokens that are shown."""

    def __init__(self, tokens: Tokens, *, max_images: int = MOST_IMAGES) -> None:
        self._torch = require("torch", extra="torch", needed_by="Tokens")
        self._recipe, self._model = tokens, tokens.model
        self._runner = _runner(tokens.model)
        self._limits = BatchLimits()
        self._independence = BatchIndependence(
            self._runner.precision, self._runner.batch_dependence
        )
        self._embedded = BoundedCache["torch.Tensor"](max_images)
        self._scored = Counter[int]()

    def provenance(self, position: int) -> Provenance:
        """Return how the scores of an image were made so far."""
        return Provenance(full=self._scored[position], batches=self._independence.outcome)

    def put(self, array: Array) -> Tensor:
        return self._runner.put(array)

    def capacity(self, shape: Shape, itemsize: int) -> int:
        del itemsize
        if self._independence.run_alone:
            return 1
        return min(LARGEST_BATCH, self._limits.get(shape) or LARGEST_BATCH)

    def score(self, rows: Sequence[Row]) -> Heat:
        by_count: defaultdict[int, list[int]] = defaultdict(list)
        for number, row in enumerate(rows):
            by_count[len(self._shown(row))].append(number)
        found: dict[int, Heat] = {}
        # Rows with equally many tokens form a batch, which so needs no padding.
        for numbers in by_count.values():
            scores = self._limits.scores(
                [rows[n] for n in numbers],
                lambda batch: self._independence.scores(batch, self._run),
            )
            found.update(zip(numbers, scores, strict=True))
        self._scored.update(row.canvas.position for row in rows)
        return np.stack([found[number] for number in range(len(rows))])

    def _run(self, rows: Sequence[Row]) -> Heat:
        """Score rows that show equally many tokens."""
        with naming_inputs(rows), self._torch.inference_mode():
            shown = [self._tokens(row.canvas.image)[self._shown(row)] for row in rows]
            return as_scores(self._head(self._torch.stack(shown)), len(rows))

    def _head(self, tokens: torch.Tensor) -> torch.Tensor:
        blocks = self._model.blocks
        several = isinstance(blocks, (list, tuple, self._torch.nn.ModuleList))
        for block in blocks if several else (blocks,):
            tokens = block(tokens)
        return self._model.head(tokens)

    def _shown(self, row: Row) -> Ints:
        """Return the positions of the tokens that are shown, in order."""
        grid, prefix, suffix = row.canvas.grid, self._recipe.prefix, self._recipe.suffix
        counts, sides = self._patches(grid)
        split = [part for pair in zip(counts, sides, strict=True) for part in pair]
        inside = mask(row.kept, grid).reshape(split)
        share = inside.mean(axis=tuple(range(1, 2 * len(grid), 2)))
        last = prefix + share.size
        patches = np.flatnonzero(share >= SHOWN) + prefix
        return np.concatenate([np.arange(prefix), patches, np.arange(last, last + suffix)])

    def _patches(self, grid: Grid) -> tuple[Grid, Grid]:
        """Return the number of patches on each axis, and their sides."""
        patch = checks.sides("patch", self._recipe.patch)
        sides = checks.per_axis("patch", patch, len(grid))
        if any(n % side for n, side in zip(grid, sides, strict=True)):
            message = f"patch={patch} does not divide the grid {grid}; resize the image"
            raise ArgumentError(message)
        return tuple(n // side for n, side in zip(grid, sides, strict=True)), sides

    def _tokens(self, image: Tensor) -> torch.Tensor:
        """Return the tokens of an image `(prefix + patches + suffix, width)`."""
        key = ByIdentity(image)
        tokens = self._embedded.get(key)
        if tokens is None:
            # Copies: the model may write to its input, or use the memory of its output again.
            is_array = isinstance(image, np.ndarray)
            batch = self._torch.from_numpy(np.array(image)) if is_array else image.clone()
            made = self._model.embed(batch[None])
            self._check_count(made, image.shape[1:])
            tokens = made[0].clone()
            self._embedded.put(key, tokens)
        return tokens

    def _check_count(self, made: Tensor, grid: Grid) -> None:
        """Refuse tokens whose number is not that of the patches and the declared others."""
        shape = tuple(made.shape) if isinstance(made, self._torch.Tensor) else ()
        if len(shape) != 3 or shape[0] != 1:
            message = (
                f"embed returned {checks.shown(made)} for one image; it must return tokens "
                "(1, tokens, width)"
            )
            raise ArgumentError(message)
        prefix, suffix, patch = self._recipe.prefix, self._recipe.suffix, self._recipe.patch
        patches = prod(self._patches(grid)[0])
        if shape[1] != prefix + patches + suffix:
            others = shape[1] - patches
            fix = (
                f"pass prefix={others} if all others come first, or prefix and suffix that add up "
                f"to {others}"
                if others > 0
                else "pass the side of the model's own patches as patch"
            )
            message = (
                f"prefix={prefix} and suffix={suffix} do not fit: embed returned {shape[1]} tokens "
                f"for {patches} patches of patch={patch}; {fix}"
            )
            raise ArgumentError(message)
