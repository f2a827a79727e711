"""Incremental: score as the model does, computing only what differs from what is known.

All that is hidden equals the baseline, so every activation beyond the reach of what is shown equals
the baseline's, which is computed once. Where little is hidden, the whole image takes its place.
"""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap import checks
from hshap.errors import ArgumentError, require
from hshap.evaluators import Batched, Inputs
from hshap.models import as_scores
from hshap.recipes import recipe
from hshap.regions import blocks, mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from hshap.canvas import Array, Row
    from hshap.evaluators import BatchedSession
    from hshap.network import Network

ROWS = 64  # that are scored together, if their rectangles are small
PIXELS = 2**20  # of all rectangles together: activations should stay in the cache
ROUNDED = 16  # pixels: rectangles of about one size are made so, and go together
WORTH = 0.75  # of the grid: beyond, a rectangle is not worth it
QUICK = 0.05  # seconds: networks below run several inputs in much less than one after another
SETUP = 5e-4  # seconds for each of a network's modules: about what tracing takes
ODDS = 0.1  # of what whole inputs would have taken: what setting up and trying may cost besides
MEMORY = 2 * 2**30


@recipe
class Incremental:
    """Give the numbers of `Batched`, but compute only what differs from the baseline.

    `model` is a torch module in eval mode, best one made of convolutions: what sees all places at
    once runs on whole tensors, and everything after it. The baseline's activations, and the
    image's where little is hidden, are kept, up to `max_memory` bytes; where that is not enough,
    and where it would be slower, inputs are run as a whole; a warning says so where none can be run
    in part. `report` tells layer by layer. Batch norms are folded into convolutions.
    `channels_last` is for pictures: on many CPUs and GPUs it is the faster layout. All this pays on
    large images; for a few evaluations of a small network, `Batched` is quicker.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU()).eval()
    >>> print(Incremental(net).report((1, 64, 64)))
    layer   operation   how     work for a quarter of the side
    _0      Conv2d      patch   0.08
    _1      ReLU        patch   0.08
    """

    model: Any
    batch_size: int | None = None
    max_memory: int = MEMORY
    channels_last: bool = False

    def __post_init__(self) -> None:
        torch = require("torch", extra="torch", what="Incremental")
        if not isinstance(self.model, torch.nn.Module):
            message = (
                f"model is {checks.shown(self.model)}, but Incremental takes torch modules; "
                "use Batched for others"
            )
            raise ArgumentError(message)
        most = checks.integer("max_memory", self.max_memory, minimum=0)
        object.__setattr__(self, "max_memory", most)
        self._dense()  # checks the others

    def open_session(self) -> IncrementalSession:
        """Start a run."""
        dense = self._dense().open_session()
        return IncrementalSession(
            self.model, dense, self.max_memory, channels_last=self.channels_last
        )

    def report(self, shape: Sequence[int]) -> str:
        """Say how each layer runs on images of a shape, and how much of its work is left.

        The example shows a rectangle of a quarter of each side, in the middle.
        """
        from hshap.network import Network, reported  # noqa: PLC0415, torch is optional

        return reported(Network(self.model), tuple(shape))

    def _dense(self) -> Batched:
        return Batched(self.model, self.batch_size, channels_last=self.channels_last)


@dataclass(frozen=True, eq=False)
class _Anchor:
    """An input whose activations are known."""

    network: Network
    input: Array  # kept, so that nothing else can have its identity
    tensor: Any
    activations: dict[str, Any]
    output: NDArray[np.float64]
    seconds: float

    @property
    def bytes(self) -> int:
        from hshap.network import size_of  # noqa: PLC0415, torch is an optional dependency

        return size_of(self.activations)


@dataclass
class _Ledger:
    """What whole inputs would have taken so far, and what has been spent beyond that, in seconds.

    A short run of a quick network is over before setting up has paid; this bounds what it costs.
    """

    whole: float = 0.0
    beyond: float = 0.0

    def add(self, whole: float, spent: float) -> None:
        self.whole += whole
        self.beyond += spent - whole

    def allows(self, cost: float) -> bool:
        return self.beyond + cost <= ODDS * self.whole


class IncrementalSession:
    """Sorts rows by what they differ from and in which rectangle, and runs each sort at once."""

    def __init__(
        self, model: Any, dense: BatchedSession, max_memory: int, *, channels_last: bool
    ) -> None:
        self._model, self._dense, self._max_memory = model, dense, max_memory
        self._channels_last = channels_last
        self._setup = SETUP * sum(1 for _ in model.modules())
        self._network: Network | None = None
        self._anchors: dict[int, _Anchor] = {}
        self._slow: set[Any] = set()
        self._measured: set[Any] = set()
        self._paces: dict[tuple[int, ...], float] = {}  # seconds for one of many whole inputs
        self._ledger = _Ledger()
        self._canvas: Inputs | None = None
        self.reason = ""

    def put(self, array: NDArray[Any]) -> Array:
        return self._dense.put(array)

    def capacity(self, shape: tuple[int, ...], itemsize: int) -> int:
        return self._dense.capacity(shape, itemsize) if self.reason else ROWS

    def score(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        found: dict[int, NDArray[np.float64]] = {}
        groups: defaultdict[Any, list[int]] = defaultdict(list)
        starts: dict[int, tuple[int, ...]] = {}
        # Whole images first, before the memory they need is taken by what is kept of the baseline.
        for number, row in sorted(enumerate(rows), key=lambda each: not _is_whole(each[1])):
            anchor, start, size = self._differs(row)
            if anchor is None and _is_whole(row):
                (found[number],) = self._dense_scores([row])
            elif anchor is not None and not prod(size):
                found[number] = anchor.output
                self._ledger.add(self._pace(row, anchor), 0.0)
            else:
                groups[None if anchor is None else (anchor, size)].append(number)
                starts[number] = start
        for key, numbers in groups.items():
            scores = self._scores(key, [rows[n] for n in numbers], [starts[n] for n in numbers])
            found.update(zip(numbers, scores, strict=True))
        return np.stack([found[number] for number in range(len(rows))])

    def _scores(
        self, key: Any, rows: Sequence[Row], starts: Sequence[tuple[int, ...]]
    ) -> Iterable[NDArray[np.float64]]:
        if key is None or key in self._slow or self._unknown(key[0], rows):
            return self._dense_scores(rows)
        anchor, size = key
        whole = self._pace(rows[0], anchor)
        if key not in self._measured and whole < QUICK and not self._ledger.allows(0.0):
            return self._dense_scores(rows)
        few = max(1, min(len(rows), PIXELS // prod(size)))
        parts: list[NDArray[np.float64]] = []
        for first in range(0, len(rows), few):
            some = slice(first, first + few)
            begun = time.perf_counter()
            parts.append(self._patched(anchor, rows[some], starts[some], size))
            spent, count = time.perf_counter() - begun, len(parts[-1])
            self._ledger.add(count * whole, spent)
            # The second time, since the first also sets things up.
            if key in self._measured and spent > count * whole:
                self._slow.add(key)
            self._measured.add(key)
        return np.concatenate(parts)

    def _pace(self, row: Row, anchor: _Anchor) -> float:
        """Return the seconds that a whole input takes."""
        return self._paces.get(row.canvas.shape) or anchor.seconds

    def _unknown(self, anchor: _Anchor, rows: Sequence[Row]) -> bool:
        """Tell whether whole inputs should be run once, to learn how fast that is."""
        shape = rows[0].canvas.shape
        return anchor.seconds < QUICK and len(rows) > 1 and shape not in self._paces

    def _patched(
        self,
        anchor: _Anchor,
        rows: Sequence[Row],
        starts: Sequence[tuple[int, ...]],
        size: tuple[int, ...],
    ) -> NDArray[np.float64]:
        import torch  # noqa: PLC0415, an optional dependency

        from hshap.patches import Patch, room  # noqa: PLC0415

        with torch.inference_mode():
            whole = anchor.tensor
            data = room(whole, (len(rows), whole.shape[1], *size))
            for place, (row, start) in enumerate(zip(rows, starts, strict=True)):
                spans = (slice(a, a + n) for a, n in zip(start, size, strict=True))
                data[place] = torch.as_tensor(self._painted(row)[(slice(None), *spans)])
            outputs = anchor.network.run(Patch(data, tuple(starts), whole), anchor.activations)
        return as_scores(outputs, len(rows))

    def _painted(self, row: Row) -> Array:
        image, shape = row.canvas.image, row.canvas.shape
        if self._canvas is None or not self._canvas.fit(shape, image.dtype, 1):
            self._canvas = Inputs(self._dense.inputs(1, shape, image.dtype), shape, image.dtype, 1)
        self._canvas.paint(0, row)
        return self._canvas.array[0]

    def _dense_scores(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        canvas = rows[0].canvas
        few = self._dense.capacity(canvas.shape, canvas.image.dtype.itemsize)
        parts: list[NDArray[np.float64]] = []
        for first in range(0, len(rows), few):
            begun = time.perf_counter()
            parts.append(self._dense.score(rows[first : first + few]))
            spent = time.perf_counter() - begun
            self._ledger.add(spent, spent)
            pace = spent / len(parts[-1])
            if len(parts[-1]) > 1:
                self._paces[canvas.shape] = min(pace, self._paces.get(canvas.shape, pace))
        return np.concatenate(parts)

    def _differs(self, row: Row) -> tuple[_Anchor | None, tuple[int, ...], tuple[int, ...]]:
        """Return the best anchor, and the rectangle in which the row differs from it."""
        grid = row.canvas.grid
        nowhere = None, (), ()
        if not self._ready():
            return nowhere
        shown = _around([bounds for region in row.kept for bounds in blocks(region, grid)], grid)
        under = row.canvas.stand_ins(row.kept, row.draw)
        if not row.canvas.is_still:
            self._give_up("what the baseline shows depends on what is kept")
            return nowhere
        if prod(shown[1]) <= prod(grid) / 2:
            return self._anchor(under), *shown
        away = _around(_bounds(~mask(row.kept, grid)), grid)
        if not prod(away[1]) and id(row.canvas.image) not in self._anchors:
            return nowhere  # the image itself: its activations may never be needed
        if prod(away[1]) < prod(shown[1]):
            anchor, rectangle = self._anchor(row.canvas.image), away
        else:
            anchor, rectangle = self._anchor(under), shown
        if anchor is None or prod(rectangle[1]) > WORTH * prod(grid):
            return nowhere
        return anchor, *rectangle

    def _ready(self) -> bool:
        """Tell whether the network is traced, which is done as soon as it may pay."""
        if self._network is None and not self.reason and self._ledger.allows(self._setup):
            from hshap.network import Network  # noqa: PLC0415, torch is an optional dependency

            begun = time.perf_counter()
            self._network = Network(self._model)
            self._ledger.add(0.0, time.perf_counter() - begun)
            if self._network.reason:
                self._give_up(self._network.reason)
        return self._network is not None and not self.reason

    def _anchor(self, whole: Array) -> _Anchor | None:
        found = self._anchors.pop(id(whole), None)
        if found is None:
            pace = self._paces.get(whole.shape, QUICK)
            if self._network is None or (pace < QUICK and not self._ledger.allows(pace)):
                return None
            found = self._made(self._network, whole)
            if found is None:
                self._give_up(f"activations take more than max_memory={self._max_memory} bytes")
                return None
        spent = found.bytes + sum(anchor.bytes for anchor in self._anchors.values())
        # What was not asked for longest goes first: the baseline is asked for by every image.
        while spent > self._max_memory:
            spent -= self._anchors.pop(next(iter(self._anchors))).bytes
        self._anchors[id(whole)] = found
        return found

    def _give_up(self, reason: str) -> None:
        """Run whole inputs from now on, and say why."""
        if not self.reason:
            message = f"Incremental runs every input as a whole: {reason}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        self.reason = reason

    def _made(self, network: Network, whole: Array) -> _Anchor | None:
        import torch  # noqa: PLC0415, an optional dependency

        from hshap.network import TooLargeError  # noqa: PLC0415

        begun = time.perf_counter()
        tensor = self._tensor(whole)
        try:
            with torch.inference_mode():
                activations, output = network.anchors(tensor, self._max_memory)
        except TooLargeError:
            return None
        seconds = time.perf_counter() - begun
        self._ledger.add(0.0, seconds)
        return _Anchor(network, whole, tensor, activations, as_scores(output, 1)[0], seconds)

    def _tensor(self, whole: Array) -> Any:
        import torch  # noqa: PLC0415, an optional dependency

        with warnings.catch_warnings():
            # That the array is read-only: nothing writes to what is kept of it.
            warnings.simplefilter("ignore", UserWarning)
            tensor = torch.from_numpy(whole) if isinstance(whole, np.ndarray) else whole
        last = self._channels_last and tensor.ndim == 3
        layout = torch.channels_last if last else torch.contiguous_format
        return tensor[None].contiguous(memory_format=layout)


def _is_whole(row: Row) -> bool:
    return row.kept == (row.canvas.root,)


def _bounds(inside: NDArray[np.bool_]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the box around what is True, if anything is."""
    places = np.nonzero(inside)
    if not places[0].size:
        return []
    return [(tuple(int(a.min()) for a in places), tuple(int(a.max()) + 1 for a in places))]


def _around(
    bounds: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], grid: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return start and size of the rectangle around all, its sides rounded up."""
    if not bounds:
        return (0,) * len(grid), (0,) * len(grid)
    low = [min(axis) for axis in zip(*(start for start, _ in bounds), strict=True)]
    high = [max(axis) for axis in zip(*(stop for _, stop in bounds), strict=True)]
    size = tuple(
        int(min(n, -(-(b - a) // ROUNDED) * ROUNDED))
        for a, b, n in zip(low, high, grid, strict=True)
    )
    start = tuple(int(min(a, n - m)) for a, m, n in zip(low, size, grid, strict=True))
    return start, size
