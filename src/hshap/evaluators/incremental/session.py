"""One run of `Incremental`: rows become patches where that pays, and full inputs elsewhere.

The first patch is compared with a full forward pass; that of a large image on a crop. Needs torch.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from hshap.errors import ModelFailedError
from hshap.evaluators.incremental.activation_cache import UnfitError
from hshap.evaluators.incremental.boxes import BoxCache, BoxOfImage
from hshap.evaluators.incremental.network import Network, size_of
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.recipe import CostLedger
from hshap.evaluators.incremental.row_groups import Group, RowDifference, difference, group_rows
from hshap.evaluators.outputs import as_scores
from hshap.evaluators.protocol import Provenance
from hshap.partitions.regions import Box

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hshap._util.types import Array, Heat, Shape, Tensor
    from hshap.evaluators.batched import BatchedSession
    from hshap.evaluators.canvas import Row
    from hshap.evaluators.incremental.activation_cache import ActivationCache, Anchor
    from hshap.evaluators.incremental.recipe import CostPolicy
    from hshap.evaluators.incremental.windows import Corners, Sides
    from hshap.evaluators.protocol import Comparison


LARGEST_BATCH = 64
"""Rows that are scored together, if their rectangles are small."""

LEAST_BOX = 2**10
"""Pixels of a box: larger ones are computed along their sides alone, if memory allows."""

SMALL_IMAGE = 2**17
"""Pixels: up to here, images run in full batches until tracing is affordable."""

_DEPENDENT = "scores depend on the other inputs of a batch"


class IncrementalSession:
    """Groups inputs by anchor and rectangle size; one batch per group.

    `reason` says why every input runs in full, and is empty while patches are used.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        batched: BatchedSession,
        cache: ActivationCache,
        policy: CostPolicy,
        *,
        batch_size: int | None = None,
    ) -> None:
        self._model, self._batched, self._batch_size = model, batched, batch_size
        self._network: Network | None = None
        self._cache, self._boxes = cache, BoxCache()
        self._ledger = CostLedger(policy, modules=sum(1 for _ in model.modules()))
        self._comparison: Comparison = "not made"
        self._crop: OnCrop | None = None
        self._takes_crops = True  # as far as is known
        self._scored, self._incremental = Counter[int](), Counter[int]()
        self._from_patches: list[Row] = []  # of the rows that are being scored
        self._epsilon = precision(model)
        self.reason = _DEPENDENT if batched.runs_alone else ""

    def provenance(self, position: int) -> Provenance:
        """Return how the scores of an image were made so far."""
        return Provenance(
            full=self._scored[position] - self._incremental[position],
            incremental=self._incremental[position],
            comparison=self._comparison,
            batches=self._batched.provenance(position).batches,
            reason=self.reason,
        )

    def put(self, array: Array) -> Tensor:
        return self._batched.put(array)

    def capacity(self, shape: Shape, itemsize: int) -> int:
        if self.reason:
            return self._batched.capacity(shape, itemsize)
        return self._batch_size or LARGEST_BATCH

    def score(self, rows: Sequence[Row]) -> Heat:
        self._from_patches = []
        scores = self._scores(rows)
        if self._batched.runs_alone and not self.reason:
            self._give_up(_DEPENDENT)
        if self.reason and self._from_patches:  # found only now: some may be wrong
            self._from_patches = []
            scores = self._full_scores(rows)
        self._scored.update(row.canvas.position for row in rows)
        self._incremental.update(row.canvas.position for row in self._from_patches)
        # Rows refer to this session: kept, they would hold all activations after the run.
        self._from_patches = []
        return scores

    def _scores(self, rows: Sequence[Row]) -> Heat:
        if not self._is_traced(rows[0]) and (self.reason or _is_small(rows[0])):
            return self._full_scores(rows)
        found: dict[int, Heat] = {}
        for row in rows:
            if _shows_all(row):
                self._keep_image(row)
        # Rows that show all pixels come first, before activations take the memory that they need.
        complete = [
            n for n, row in enumerate(rows) if _shows_all(row) and self._difference(row) is None
        ]
        if complete:
            scores = self._full_scores([rows[n] for n in complete])
            found.update(zip(complete, scores, strict=True))
        differences = {n: self._difference(rows[n]) for n in range(len(rows)) if n not in found}
        for numbers in group_rows(differences):
            scores = self._group_scores([(rows[n], differences[n]) for n in numbers])
            found.update(zip(numbers, scores, strict=True))
        return np.stack([found[n] for n in range(len(rows))])

    def _group_scores(self, group: Sequence[tuple[Row, RowDifference | None]]) -> Iterable[Heat]:
        """Score rows that differ from one anchor in rectangles of one size."""
        rows, first = [row for row, _ in group], group[0][1]
        if first is not None:
            self._compare_on_crop(rows[0])
        anchor = None if first is None else self._anchor(first.anchor)
        if anchor is None or first is None:
            return self._full_scores(rows)
        shape = rows[0].canvas.shape
        if first.is_empty and self._comparison == "passed":
            self._from_patches += rows
            self._ledger.add_saved(
                len(rows) * self._ledger.seconds_per_input(shape, anchor.pass_seconds)
            )
            return [anchor.output] * len(rows)
        pays = self._ledger.allows_patches(
            shape, first.size, count=len(rows), alone=anchor.pass_seconds
        )
        if first.is_empty or not pays:
            return self._full_scores(rows)
        differences = [found for _, found in group if found is not None]
        try:
            return self._patch_scores(Group(anchor, rows, differences))
        except ModelFailedError:
            raise
        except Exception as error:  # noqa: BLE001, a rule may meet a case that it does not know
            self._give_up(f"a patch failed ({type(error).__name__}: {error})")
            return self._full_scores(rows)

    def _patch_scores(self, group: Group) -> Heat:
        """Score a group in batches of patches; the first one is compared with a full pass."""
        rows, shape = group.rows, group.shape
        full_seconds = self._ledger.seconds_per_input(shape, group.anchor.pass_seconds)
        in_strips = self._boxes_of(group) is not None
        count = group.rows_at_once(self._batch_size, in_strips=in_strips)
        if group.anchor.network.needs_full_tensors:  # and so the memory of full inputs
            count = min(count, self._batched.capacity(shape, rows[0].canvas.image.dtype.itemsize))
        parts: list[Heat] = []
        for first in range(0, len(rows), count):
            started = time.perf_counter()
            parts.append(self._checked_scores(group.part(first, count)))
            seconds = time.perf_counter() - started
            self._ledger.add_patches(shape, group.size, len(parts[-1]) * full_seconds, seconds)
            if self._comparison == "not made":
                self._compare(rows[first], parts[-1][0])
        self._from_patches += rows
        return np.concatenate(parts)

    def _checked_scores(self, group: Group) -> Heat:
        """Score a group in one batch; the first batches show whether scores depend on the batch.

        A crop of a large image has shown that, if its two inputs score differently.
        """
        if self._crop is not None and self._crop.tells_mates_apart(self._epsilon):
            self._batched.independence.note_independent()
            return self._part_scores(group)
        return self._batched.independence.scores(
            group.rows, lambda rows: self._part_scores(group.only(rows))
        )

    def _part_scores(self, group: Group) -> Heat:
        """Score a part of a group in one batch, along the sides if all rows show large boxes."""
        boxes = self._boxes_of(group)
        if boxes is None:
            return self._run_patches(group)
        return self._boxes.scores(boxes, group.anchor, self._cache.room)

    def _run_patches(self, group: Group) -> Heat:
        with torch.inference_mode():
            patch = group.patch(self._batched.painted)
            outputs = group.anchor.network.run(patch, group.anchor.activations)
        return as_scores(outputs, len(group.rows))

    def _boxes_of(self, group: Group) -> list[BoxOfImage] | None:
        """Return the large boxes of all rows, if activations of what they show are kept."""
        boxes: list[BoxOfImage] = []
        for found in group.found:
            inside = self._cache.get(found.inside)
            if inside is None or found.box is None or prod(group.size) < LEAST_BOX:
                return None
            boxes.append(BoxOfImage(found.box, inside))
        return boxes

    def _keep_image(self, row: Row) -> None:
        """Keep the activations of a large image whose regions are boxes, if memory allows.

        They give the image's own score too, so they cost no further forward pass.
        """
        canvas, cache = row.canvas, self._cache
        is_framed = isinstance(canvas.root, Box) and canvas.is_still and not _is_small(row)
        if not is_framed or canvas.image in cache or not self._is_traced(row):
            return
        self._compare_on_crop(row)
        network, crop = self._network, self._crop
        if self._comparison != "passed" or network is None or crop is None:
            return
        hidden = [canvas.stand_ins((), draw) for draw in range(canvas.draws)]
        are_flat = all(cache.has_flat_anchor(network, each) for each in hidden)
        size = crop.bytes_per_pixel * prod(canvas.grid)
        if cache.has_room_for(size if are_flat else 2 * size):
            self._anchor(hidden[row.draw])
            self._anchor(canvas.image)

    def _full_scores(self, rows: Sequence[Row]) -> Heat:
        canvas = rows[0].canvas
        count = self._batched.capacity(canvas.shape, canvas.image.dtype.itemsize)
        parts: list[Heat] = []
        for first in range(0, len(rows), count):
            started = time.perf_counter()
            parts.append(self._batched.score(rows[first : first + count]))
            seconds = time.perf_counter() - started
            self._ledger.add_full(canvas.shape, len(parts[-1]), seconds)
        return np.concatenate(parts)

    def _compare(self, row: Row, patched: Heat) -> None:
        """Compare the scores of a row with a full pass, once a run.

        Large images are compared on a crop, if the network takes images of other sizes.
        """
        self._compare_on_crop(row)
        if self._comparison == "not made":
            self._judge(passed=agree(patched, self._full_scores([row])[0], self._epsilon))

    def _compare_on_crop(self, row: Row) -> None:
        is_open = self._comparison == "not made" and self._takes_crops
        if not is_open or self._network is None or _is_small(row):
            return
        try:
            self._crop = scores_on_crop(self._network, row, self._cache)
        except Exception:  # noqa: BLE001, the network may take images of one size only
            self._takes_crops = False
            return
        self._judge(passed=self._crop.passes(self._epsilon))

    def _judge(self, *, passed: bool) -> None:
        self._comparison = "passed" if passed else "failed"
        if self._comparison == "failed":
            self._give_up("scores from patches differ from those of a full forward pass")

    def _difference(self, row: Row) -> RowDifference | None:
        """Return the closest anchor of a row and the rectangle of the difference, if any."""
        if not self._is_traced(row):
            return None
        if not row.canvas.is_still:
            self._give_up("the stand-ins of the baseline depend on the regions that are shown")
            return None
        return difference(row, image_is_kept=row.canvas.image in self._cache)

    def _is_traced(self, row: Row) -> bool:
        """Tell whether the network is traced; trace it as soon as that is affordable."""
        is_known = self._network is not None or self.reason
        # An anchor and a comparison follow. Large images need no look at their cost: tracing takes
        # less time than one pass, and the anchor of a row without a difference is its own pass.
        pays = not _is_small(row) or self._ledger.allows_setup(row.canvas.shape, passes=2)
        if not is_known and pays:
            started = time.perf_counter()
            self._network = Network(self._model, row.canvas.shape)
            self._ledger.add_overhead(time.perf_counter() - started)
            if self._network.reason:
                self._give_up(self._network.reason)
        return self._network is not None and not self.reason

    def _anchor(self, image: Tensor) -> Anchor | None:
        found = self._cache.get(image)
        if found is not None or self._network is None or self.reason:
            return found
        if not self._ledger.allows_anchor(image.shape):
            return None
        try:
            seconds = None if self._crop is None else self._crop.seconds_per_pixel
            made = self._cache.add(self._network, image, seconds)
        except UnfitError as error:
            self._give_up(str(error))
            return None
        self._ledger.add_overhead(made.seconds)
        return made

    def _give_up(self, reason: str) -> None:
        """Run full inputs from now on, and say why."""
        if not self.reason:
            message = f"Incremental runs every input in full: {reason}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        self.reason = reason


def _shows_all(row: Row) -> bool:
    return row.kept == (row.canvas.root,)


def _is_small(row: Row) -> bool:
    return prod(row.canvas.grid) <= SMALL_IMAGE


CROP_SIDE = 160
"""Side in pixels of the crop on which large images are compared."""

TOLERANCE = 1e-4
"""Largest difference from a full forward pass, relative to its largest score."""


CLEARLY = 1000
"""By how many errors two inputs must differ, so that a share of 0.1 % of one in the other shows."""

ROUNDING = 8
"""The error that scores have at least, in units of the relative precision."""


def agree(patched: Heat, full: Heat, epsilon: float) -> bool:
    """Tell whether scores from patches are those of a full pass, up to rounding."""
    allowed = max(TOLERANCE, ROUNDING * epsilon) * float(np.abs(full).max(initial=1e-6))
    return float(np.abs(patched - full).max(initial=0.0)) <= allowed


def precision(module: torch.nn.Module) -> float:
    """Return the coarsest relative precision among a module's parameters."""
    types = {p.dtype for p in module.parameters() if p.is_floating_point()}
    return max((torch.finfo(kind).eps for kind in types), default=0.0)


class OnCrop(NamedTuple):
    """Scores of two inputs, `found` from batches of both and `expected` in full, each alone.

    `found` has those from patches first, then those from strips. Memory of the activations and time
    of a full pass are given for a pixel.
    """

    found: Heat
    expected: Heat
    bytes_per_pixel: float
    seconds_per_pixel: float

    def passes(self, epsilon: float) -> bool:
        """Tell whether all scores are those of a full pass, up to rounding."""
        return agree(self.found, self._in_full, epsilon)

    def tells_mates_apart(self, epsilon: float) -> bool:
        """Tell whether the two inputs score so differently that mixing them would be seen.

        A share of one input in the score of the other is an error of that share of the difference
        between both. So the share is at most the error divided by the difference.
        """
        error = float(np.abs(self.found - self._in_full).max(initial=0.0))
        least = ROUNDING * epsilon * float(np.abs(self.expected).max(initial=1e-6))
        apart = float(np.abs(self.expected[0] - self.expected[1]).max(initial=0.0))
        return apart > CLEARLY * max(error, least)

    @property
    def _in_full(self) -> Heat:
        return np.tile(self.expected, (2, 1))


def scores_on_crop(network: Network, row: Row, cache: ActivationCache) -> OnCrop:
    """Return the scores of two inputs of the size of a crop of the image.

    Each shows one box of the crop, and the stand-in elsewhere. Fails if the network does not take
    images of other sizes.
    """
    grid = row.canvas.grid
    sides = tuple(min(side, CROP_SIDE) for side in grid)
    crop = (
        slice(None),
        *(slice((n - m) // 2, (n + m) // 2) for n, m in zip(grid, sides, strict=True)),
    )
    boxes = _two_boxes(sides)
    anchor = cache.tensor(row.canvas.stand_ins(row.kept, row.draw)[crop])
    image = cache.tensor(row.canvas.image[crop])
    shown = [image[(slice(None), slice(None), *map(slice, *box))] for box in boxes]
    patch = Patch(torch.cat(shown), tuple(start for start, _ in boxes), anchor)
    # Before the patches run, so that they cannot change the inputs that they are compared on.
    painted = patch.full()
    outside, _ = network.activations(anchor)
    inside, _ = network.activations(image)
    whole = network.whole(inside)
    with torch.inference_mode():
        patched = network.run(patch, outside)
        along_borders, _ = network.run_boxes(boxes, [whole] * 2, outside, image)
        alone = [_timed(network.module, each) for each in painted.split(1)]
    return OnCrop(
        found=np.concatenate([as_scores(patched, 2), as_scores(along_borders, 2)]),
        expected=np.concatenate([scores for scores, _ in alone]),
        bytes_per_pixel=size_of(outside) / prod(sides),
        seconds_per_pixel=min(seconds for _, seconds in alone) / prod(sides),
    )


def _two_boxes(sides: Sides) -> list[Corners]:
    """Return boxes of half of each side: one near the origin, one near the opposite corner."""
    size, margin = [max(1, m // 2) for m in sides], [m // 8 for m in sides]
    far = [m - n - space for m, n, space in zip(sides, size, margin, strict=True)]
    return [
        (tuple(start), tuple(a + n for a, n in zip(start, size, strict=True)))
        for start in (margin, far)
    ]


def _timed(module: torch.nn.Module, tensor: torch.Tensor) -> tuple[Heat, float]:
    started = time.perf_counter()
    outputs = module(tensor)
    return as_scores(outputs, 1), time.perf_counter() - started
