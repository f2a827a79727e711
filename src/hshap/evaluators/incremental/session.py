"""The work of `Incremental`: which rows differ where and from what, and what they score."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import defaultdict
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap.evaluators.incremental.cost_policy import Pace
from hshap.evaluators.incremental.rectangles import around, bounds
from hshap.evaluators.runners import as_scores
from hshap.partitions.regions import blocks, mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Tensor
    from hshap.evaluators.batched import BatchedSession
    from hshap.evaluators.canvas import Row
    from hshap.evaluators.incremental.activation_cache import Anchor
    from hshap.evaluators.incremental.recipe import Incremental
    from hshap.evaluators.incremental.traced_network import Network

ROWS = 64  # that are scored together, if their rectangles are small
PIXELS = 2**20  # of all rectangles together: activations should stay in the cache
SMALL = 2**17  # pixels: of images up to here, whole ones go together until setting up pays
CUT = 160  # pixels a side: of larger images, such a part is checked
WORTH = 0.75  # of the grid: beyond, a rectangle is not worth it
CLOSE = 1e-4  # of the largest score: what differs more is not the same


@dataclass(frozen=True, eq=False)
class _Place:
    """The input that a row differs from, and the rectangle in which it does."""

    anchor: Tensor
    start: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Group:
    """Rows that differ from one anchor in rectangles of one size, each at its place."""

    anchor: Anchor
    rows: Sequence[Row]
    starts: Sequence[tuple[int, ...]]
    size: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the images."""
        return self.rows[0].canvas.shape

    def some(self, first: int, count: int) -> _Group:
        part = slice(first, first + count)
        return replace(self, rows=self.rows[part], starts=self.starts[part])


class IncrementalSession:
    """Sorts rows by what they differ from and in which rectangle, and runs each sort at once."""

    def __init__(self, settings: Incremental, model: Any, dense: BatchedSession) -> None:
        from hshap.evaluators.incremental.activation_cache import Anchors  # noqa: PLC0415, torch is an optional dependency

        self._model, self._dense, self._batch_size = model, dense, settings.batch_size
        self._network: Network | None = None
        self._anchors = Anchors(settings.max_memory, channels_last=settings.channels_last)
        self._pace = Pace(modules=sum(1 for _ in model.modules()))
        self._checked = False
        self._epsilon = _epsilon(model)
        self.reason = ""

    def put(self, array: NDArray[Any]) -> Tensor:
        return self._dense.put(array)

    def capacity(self, shape: tuple[int, ...], itemsize: int) -> int:
        return self._dense.capacity(shape, itemsize) if self.reason else self._batch_size or ROWS

    def score(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        if not self._ready(rows[0]) and (self.reason or _is_small(rows[0])):
            return self._dense_scores(rows)
        found: dict[int, NDArray[np.float64]] = {}
        # Whole images first, before the memory they need is taken by what is kept of the baseline.
        whole = [n for n, row in enumerate(rows) if _is_whole(row) and self._differs(row) is None]
        if whole:
            found.update(zip(whole, self._dense_scores([rows[n] for n in whole]), strict=True))
        rest = [n for n in range(len(rows)) if n not in found]
        places = {n: self._differs(rows[n]) for n in rest}
        groups: defaultdict[Any, list[int]] = defaultdict(list)
        for n, place in places.items():
            groups[None if place is None else (id(place.anchor), place.size)].append(n)
        # One anchor after another, so that few are needed at once; what is empty after the rest,
        # which was checked by then.
        for _, numbers in sorted(groups.items(), key=_by_anchor):
            scores = self._scores(places[numbers[0]], [(rows[n], places[n]) for n in numbers])
            found.update(zip(numbers, scores, strict=True))
        if self.reason:  # found only now: what came before may be wrong
            return self._dense_scores(rows)
        return np.stack([found[n] for n in range(len(rows))])

    def _scores(
        self, first: _Place | None, placed: Sequence[tuple[Row, _Place | None]]
    ) -> Iterable[NDArray[np.float64]]:
        """Score rows that differ from one anchor in rectangles of one size."""
        rows = [row for row, _ in placed]
        anchor = None if first is None else self._anchor(first.anchor)
        if anchor is None or first is None:
            return self._dense_scores(rows)
        if not prod(first.size) and self._checked:
            self._pace.saved(len(rows) * self._pace.whole(rows[0].canvas.shape, anchor.seconds))
            return [anchor.output] * len(rows)
        starts = [place.start for _, place in placed if place is not None]
        group = _Group(anchor, rows, starts, first.size)
        pays = self._pace.pays(group.shape, group.size, len(rows), anchor.seconds)
        if not prod(first.size) or not pays:
            return self._dense_scores(rows)
        try:
            return self._in_parts(group)
        except Exception as error:  # noqa: BLE001, a rule may meet what it was not made for
            self._give_up(f"a part of an input failed ({type(error).__name__}: {error})")
            return self._dense_scores(rows)

    def _in_parts(self, group: _Group) -> NDArray[np.float64]:
        rows, whole = group.rows, self._pace.whole(group.shape, group.anchor.seconds)
        few = max(1, min(len(rows), self._batch_size or len(rows), PIXELS // prod(group.size)))
        if group.anchor.network.goes_whole:  # and then takes the memory of whole inputs
            few = min(few, self._dense.capacity(group.shape, rows[0].canvas.image.dtype.itemsize))
        parts: list[NDArray[np.float64]] = []
        for first in range(0, len(rows), few):
            begun = time.perf_counter()
            parts.append(self._patched(group.some(first, few)))
            spent = time.perf_counter() - begun
            self._pace.ran_in_part(group.shape, group.size, len(parts[-1]) * whole, spent)
            if not self._checked:
                self._check(rows[first], parts[-1][0])
        return np.concatenate(parts)

    def _check(self, row: Row, found: NDArray[np.float64]) -> None:
        """Compare with the module itself, once a run: a trace may differ from it.

        Of large images, on a part of them, if the network takes images of other sizes.
        """
        self._checked = True
        pair = None
        if not _is_small(row):
            with contextlib.suppress(Exception):
                pair = self._on_a_cut(row)
        mine, expected = pair or (found, self._dense_scores([row])[0])
        close = max(CLOSE, 8 * self._epsilon) * float(np.abs(expected).max(initial=1e-6))
        if not float(np.abs(mine - expected).max(initial=0.0)) <= close:
            self._give_up("what is computed in part differs from what it computes as a whole")

    def _on_a_cut(self, row: Row) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return what a part of the image gives, shown in its middle, in part and as a whole."""
        import torch  # noqa: PLC0415, an optional dependency

        from hshap.evaluators.incremental.patches import Patch  # noqa: PLC0415

        if self._network is None:
            return None
        sides = tuple(min(side, CUT) for side in row.canvas.grid)
        cut = (
            slice(None),
            *(
                slice((n - m) // 2, (n + m) // 2)
                for n, m in zip(row.canvas.grid, sides, strict=True)
            ),
        )
        start, size = tuple(m // 4 for m in sides), tuple(max(1, m // 2) for m in sides)
        middle = (
            slice(None),
            slice(None),
            *(slice(a, a + m) for a, m in zip(start, size, strict=True)),
        )
        anchor = self._anchors.tensor(row.canvas.stand_ins(row.kept, row.draw)[cut])
        patch = Patch(self._anchors.tensor(row.canvas.image[cut])[middle], (start,), anchor)
        activations, _ = self._network.anchors(anchor)
        with torch.inference_mode():
            mine, whole = self._network.run(patch, activations), self._model(patch.whole())
        return as_scores(mine, 1)[0], as_scores(whole, 1)[0]

    def _patched(self, group: _Group) -> NDArray[np.float64]:
        import torch  # noqa: PLC0415, an optional dependency

        from hshap.evaluators.incremental.patches import Patch, room  # noqa: PLC0415

        with torch.inference_mode():
            whole = group.anchor.tensor
            data = room(whole, (len(group.rows), whole.shape[1], *group.size))
            for place, (row, start) in enumerate(zip(group.rows, group.starts, strict=True)):
                spans = (slice(a, a + n) for a, n in zip(start, group.size, strict=True))
                data[place] = torch.as_tensor(self._dense.painted(row)[(slice(None), *spans)])
            patch = Patch(data, tuple(group.starts), whole)
            outputs = group.anchor.network.run(patch, group.anchor.activations)
        return as_scores(outputs, len(group.rows))

    def _dense_scores(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        canvas = rows[0].canvas
        few = self._dense.capacity(canvas.shape, canvas.image.dtype.itemsize)
        parts: list[NDArray[np.float64]] = []
        for first in range(0, len(rows), few):
            begun = time.perf_counter()
            parts.append(self._dense.score(rows[first : first + few]))
            self._pace.ran_whole(canvas.shape, len(parts[-1]), time.perf_counter() - begun)
        return np.concatenate(parts)

    def _differs(self, row: Row) -> _Place | None:
        """Return the best anchor and the rectangle in which the row differs from it, if any."""
        grid = row.canvas.grid
        if not self._ready(row):
            return None
        shown = around([box for region in row.kept for box in blocks(region, grid)], grid)
        under = row.canvas.stand_ins(row.kept, row.draw)
        if not row.canvas.is_still:
            self._give_up("what the baseline shows depends on what is kept")
            return None
        if prod(shown[1]) <= prod(grid) / 2:
            return _Place(under, *shown)
        away = around(bounds(~mask(row.kept, grid)), grid)
        if not prod(away[1]) and row.canvas.image not in self._anchors:
            return None  # the image itself: its activations may never be needed
        hides = prod(away[1]) < prod(shown[1])
        place = _Place(row.canvas.image, *away) if hides else _Place(under, *shown)
        return place if prod(place.size) <= WORTH * prod(grid) else None

    def _ready(self, row: Row) -> bool:
        """Tell whether the network is traced, which is done as soon as it may pay."""
        known = self._network is not None or self.reason
        # An anchor and a check follow, which on large images are a small part of what is saved.
        passes = 2 if _is_small(row) else 0
        if not known and self._pace.allows_setup(row.canvas.shape, passes):
            from hshap.evaluators.incremental.traced_network import Network  # noqa: PLC0415, torch is an optional dependency

            begun = time.perf_counter()
            self._network = Network(self._model)
            self._pace.set_up(time.perf_counter() - begun)
            if self._network.reason:
                self._give_up(self._network.reason)
        return self._network is not None and not self.reason

    def _anchor(self, whole: Tensor) -> Anchor | None:
        from hshap.evaluators.incremental.activation_cache import UnfitError  # noqa: PLC0415, torch is an optional dependency

        found = self._anchors.known(whole)
        if found is not None or self._network is None or not self._pace.allows_anchor(whole.shape):
            return found
        try:
            made = self._anchors.add(self._network, whole)
        except UnfitError as error:
            self._give_up(str(error))
            return None
        self._pace.set_up(made.seconds)
        return made

    def _give_up(self, reason: str) -> None:
        """Run whole inputs from now on, and say why."""
        if not self.reason:
            message = f"Incremental runs every input as a whole: {reason}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        self.reason = reason


def _by_anchor(group: tuple[Any, list[int]]) -> tuple[bool, int, int]:
    """Sort by anchor, and what equals one last."""
    key = group[0]
    return (False, 0, 0) if key is None else (not prod(key[1]), key[0], group[1][0])


def _epsilon(model: Any) -> float:
    """Return the precision of a module's numbers."""
    import torch  # noqa: PLC0415, an optional dependency

    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()}
    return max((torch.finfo(kind).eps for kind in kinds), default=0.0)


def _is_whole(row: Row) -> bool:
    return row.kept == (row.canvas.root,)


def _is_small(row: Row) -> bool:
    return prod(row.canvas.grid) <= SMALL
