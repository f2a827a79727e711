"""Tokens: transformers that see an image as patches, with the tokens of hidden patches left out.

The paper replaces hidden pixels by a baseline. Here nothing replaces them: the model gets fewer
tokens. That is cheaper, and the model never sees a painted image. The baseline has no influence.

A classifier of the transformers library is split by its own `embeddings`: its copy, which shares
all weights, takes tokens in the place of images. All else is the library's code.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from itertools import chain
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

    from hshap._util.types import Array, Grid, Heat, Ints, Model, Shape, Tensor, Untyped
    from hshap.evaluators.canvas import Row

LARGEST_BATCH = 64
MOST_IMAGES = 40
"""Images whose tokens are kept: more than a run works on at a time."""

AGREEMENT, PRECISIONS = 1e-4, 8
"""Allowed difference relative to the largest score, and in units of the model's precision."""

SHOWN = 0.5
"""Share of a token's pixels that must be shown for the token to be shown."""


@recipe
class Tokens:
    """Score a transformer with the tokens of hidden patches left out.

    `model` is an image classifier of transformers in eval mode, such as ViT, DeiT or DINOv2: pass
    it alone. It is compared with itself on the first image, with its patches in another order, and
    refused if its scores depend on the order, as with windows (Swin). If it averages its patches,
    the mean is that of the shown ones, and 0 where none is shown.

    Any other `model` is a torch module in eval mode that has `embed(images)`, which returns tokens
    `(n, prefix + patches + suffix, width)` with their positions, patches row by row; `blocks`, a
    module or several; and `head(tokens)`, which returns scores `(n, classes)`. `patch` is a token's
    side in pixels, one number or one for each axis. `prefix` counts the tokens before the patches,
    1 by default, and `suffix` those after them, such as class and register tokens; they are always
    shown. Any other number of tokens is refused.

    A patch is shown if at least half of its pixels are: choose a partition whose leaves are no
    smaller. An exception of the model becomes a `ModelFailedError`.

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
    patch: int | Sequence[int] | None = None
    prefix: int | None = None
    suffix: int = 0

    def __post_init__(self) -> None:
        require("torch", extra="torch", needed_by="Tokens")
        missing = [name for name in ("embed", "blocks", "head") if not hasattr(self.model, name)]
        known = _patch_in_config(self.model) if missing else None
        if missing and known is None:
            message = (
                f"model is {checks.shown(self.model)} without {', '.join(missing)}; pass a torch "
                "module with embed, blocks and head, an image classifier of transformers, or use "
                "Batched"
            )
            raise ArgumentError(message)
        _runner(self.model)
        patch = known if self.patch is None else self.patch
        if patch is None:
            message = "patch is missing; pass the side of the model's patches in pixels"
            raise ArgumentError(message)
        settle(self, patch=checks.sides("patch", patch))
        suffix = checks.integer("suffix", self.suffix, minimum=0)
        # With all patches hidden, at least one token is left.
        least = 0 if suffix else 1
        if self.prefix is not None or known is None:
            wanted = 1 if self.prefix is None else self.prefix
            settle(self, prefix=checks.integer("prefix", wanted, minimum=least))
        settle(self, suffix=suffix)

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


def _patch_in_config(model: Model) -> Untyped:
    """Return the side of the patches of an image classifier of transformers, or None."""
    found = getattr(getattr(model, "config", None), "patch_size", None)
    return found if _inner(model) is not None else None


def _inner(model: Model) -> Untyped:
    """Return the part of a classifier of transformers that embeds images, or None."""
    inner = getattr(model, str(getattr(model, "base_model_prefix", "")), None)
    return inner if hasattr(inner, "embeddings") else None


def _as_they_are(tokens: torch.Tensor, **_: object) -> torch.Tensor:
    return tokens


class _OwnParts:
    """A module that names its parts: `embed`, `blocks` and `head`."""

    def __init__(self, model: Model, torch: Untyped) -> None:
        self._model = model
        several = isinstance(model.blocks, (list, tuple, torch.nn.ModuleList))
        self._blocks = model.blocks if several else (model.blocks,)

    def embed(self, images: torch.Tensor) -> Untyped:
        return self._model.embed(images)

    def scores(self, tokens: torch.Tensor, *, shown: int) -> Untyped:
        """Return the outputs for tokens, `shown` of which are patches."""
        del shown
        for block in self._blocks:
            tokens = block(tokens)
        return self._model.head(tokens)


class _LibraryParts:
    """A classifier of transformers, and its copies that take tokens in the place of images."""

    def __init__(self, model: Model, torch: Untyped) -> None:
        self._torch, self._model = torch, model
        self._embeddings = _inner(model).embeddings
        self._some, self._none = self._copy(), self._copy()
        for layer in self._none.children():
            if isinstance(layer, torch.nn.Linear):  # it may get a mean over no patch
                layer.register_forward_pre_hook(self._without_means)

    def _copy(self) -> Model:
        """Return a copy that shares all weights, and whose embedding returns its argument."""
        tensors = chain(self._model.parameters(), self._model.buffers())
        twin = copy.deepcopy(self._model, {id(tensor): tensor for tensor in tensors})
        _inner(twin).embeddings.forward = _as_they_are
        return twin

    def _without_means(self, _: object, args: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return self._torch.where(args[0].isnan(), 0.0, args[0])

    def embed(self, images: torch.Tensor) -> Untyped:
        made = self._embeddings(images)
        if not isinstance(made, self._torch.Tensor) or made.ndim != 3:
            raise self._refused("its embeddings do not return tokens (1, tokens, width)")
        return made

    def _refused(self, reason: str) -> ArgumentError:
        message = (
            f"model is a {type(self._model).__name__} whose tokens cannot be left out: {reason}; "
            "use Batched, which paints the baseline over hidden pixels"
        )
        return ArgumentError(message)

    def scores(self, tokens: torch.Tensor, *, shown: int) -> Untyped:
        """Return the outputs for tokens, `shown` of which are patches."""
        return (self._some if shown else self._none)(tokens)

    def check(
        self, image: torch.Tensor, tokens: torch.Tensor, first: int, precision: float
    ) -> None:
        """Refuse a model whose scores depend on the order of its patches, from `first` on."""
        if not first:
            raise self._refused("it has no class token, so none is left if all patches are hidden")
        full = as_scores(self._model(image), 1)
        turned = self._torch.cat([tokens[:, :first], tokens[:, first:].flip(1)], 1)
        try:
            found = as_scores(self.scores(turned, shown=tokens.shape[1] - first), 1)
            apart = float(np.abs(found - full).max())
            reason = f"its scores change by {apart:.2g} with the order of its patches"
        except Exception as error:  # noqa: BLE001, the model may need tokens in their places
            apart, reason = np.inf, f"it fails on tokens alone ({type(error).__name__}: {error})"
        if not apart <= max(AGREEMENT, PRECISIONS * precision) * float(np.abs(full).max()):
            raise self._refused(reason)


class TokenSession:
    """Embeds every image once, and runs the blocks on the tokens that are shown."""

    def __init__(self, tokens: Tokens, *, max_images: int = MOST_IMAGES) -> None:
        self._torch = require("torch", extra="torch", needed_by="Tokens")
        self._recipe = tokens
        is_split = all(hasattr(tokens.model, name) for name in ("embed", "blocks", "head"))
        self._parts = (_OwnParts if is_split else _LibraryParts)(tokens.model, self._torch)
        self._is_checked = False
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
        """Score rows that show equally many patches."""
        with naming_inputs(rows), self._torch.inference_mode():
            shown = [self._shown(row) for row in rows]
            tokens = [self._selected(row, some) for row, some in zip(rows, shown, strict=True)]
            made = self._parts.scores(self._torch.stack(tokens), shown=len(shown[0]))
            return as_scores(made, len(rows))

    def _selected(self, row: Row, shown: Ints) -> torch.Tensor:
        """Return the tokens of a row: those of the patches that it shows, and all others."""
        tokens = self._tokens(row.canvas.image)
        suffix = self._recipe.suffix
        prefix = len(tokens) - suffix - prod(self._patches(row.canvas.grid)[0])
        last = np.arange(len(tokens) - suffix, len(tokens))
        return tokens[np.concatenate([np.arange(prefix), shown + prefix, last])]

    def _shown(self, row: Row) -> Ints:
        """Return the numbers of the patches that are shown, in order."""
        grid = row.canvas.grid
        counts, sides = self._patches(grid)
        split = [part for pair in zip(counts, sides, strict=True) for part in pair]
        inside = mask(row.kept, grid).reshape(split)
        return np.flatnonzero(inside.mean(axis=tuple(range(1, 2 * len(grid), 2))) >= SHOWN)

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
            made = self._parts.embed(batch[None])
            self._check_count(made, image.shape[1:])
            if isinstance(self._parts, _LibraryParts) and not self._is_checked:
                patches = prod(self._patches(image.shape[1:])[0])
                first = made.shape[1] - self._recipe.suffix - patches
                self._parts.check(batch[None], made, first, self._runner.precision)
                self._is_checked = True
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
        if prefix is None and shape[1] >= patches + suffix:
            return  # a model of transformers says by its tokens how many come first
        if prefix is None or shape[1] != prefix + patches + suffix:
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
