"""Anchors: inputs whose activations are known, as many as memory allows. Needs torch."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from hshap.evaluators.incremental.traced_network import OverwrittenError, TooLargeError, size_of
from hshap.evaluators.runners import as_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hshap._util.types import Tensor
    from hshap.evaluators.incremental.traced_network import Network


class UnfitError(Exception):
    """A network cannot be run step by step; the message says why."""


@dataclass(frozen=True, eq=False)
class Anchor:
    """An input whose activations are known."""

    network: Network
    input: Tensor  # kept, so that nothing else can have its identity
    tensor: torch.Tensor
    activations: dict[str, torch.Tensor]
    output: NDArray[np.float64]
    seconds: float

    @property
    def bytes(self) -> int:
        return size_of(self.activations)


class Anchors:
    """The anchors of a run. What was not asked for longest goes first."""

    def __init__(self, max_memory: int, *, channels_last: bool) -> None:
        self._max_memory, self._channels_last = max_memory, channels_last
        self._kept: dict[int, Anchor] = {}

    def __contains__(self, whole: Tensor) -> bool:
        return id(whole) in self._kept

    @property
    def bytes(self) -> int:
        return sum(anchor.bytes for anchor in self._kept.values())

    def known(self, whole: Tensor) -> Anchor | None:
        """Return the anchor of an input, if there is one."""
        found = self._kept.pop(id(whole), None)
        if found is not None:
            self._kept[id(whole)] = found
        return found

    def add(self, network: Network, whole: Tensor) -> Anchor:
        """Compute an input's activations and keep them."""
        begun = time.perf_counter()
        tensor = self.tensor(whole)
        try:
            activations, output = network.anchors(tensor, self._max_memory)
            scores = as_scores(output, 1)[0]
        except TooLargeError:
            message = f"activations take more than max_memory={self._max_memory} bytes"
            raise UnfitError(message) from None
        except OverwrittenError:
            message = "it reads what it has overwritten in place"
            raise UnfitError(message) from None
        except Exception as error:  # step by step may fail where the whole does not
            message = f"step by step it failed ({type(error).__name__}: {error})"
            raise UnfitError(message) from error
        seconds = time.perf_counter() - begun
        made = Anchor(network, whole, tensor, activations, scores, seconds)
        # The baseline is asked for by every image, and so stays.
        while self._kept and made.bytes + self.bytes > self._max_memory:
            del self._kept[next(iter(self._kept))]
        self._kept[id(whole)] = made
        return made

    def tensor(self, whole: Tensor) -> torch.Tensor:
        """Return an input as a batch of one, laid out as the network wants it."""
        with warnings.catch_warnings():
            # That the array is read-only: nothing writes to what is kept of it.
            warnings.simplefilter("ignore", UserWarning)
            tensor = torch.from_numpy(whole) if isinstance(whole, np.ndarray) else whole
        last = self._channels_last and tensor.ndim == 3
        layout = torch.channels_last if last else torch.contiguous_format
        return tensor[None].contiguous(memory_format=layout)
