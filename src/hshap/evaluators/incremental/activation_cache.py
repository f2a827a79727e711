"""The activations of anchors, as many as memory allows. Needs torch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch

from hshap._util.cache import BoundedCache, ByIdentity
from hshap.evaluators.incremental.network import ActivationsTooLargeError, Network, size_of
from hshap.evaluators.incremental.steps import OverwrittenError
from hshap.evaluators.outputs import as_scores

if TYPE_CHECKING:
    from hshap._util.types import Heat, Tensor
    from hshap.evaluators.incremental.network import Activations, FlatAnchor


class UnfitError(Exception):
    """A network cannot be run step by step; the message says why."""


@dataclass(frozen=True, eq=False)
class Anchor:
    """An input whose activations are known.

    They took `seconds`; a full forward pass takes about `pass_seconds`.
    """

    network: Network
    tensor: torch.Tensor
    activations: Activations
    output: Heat
    bytes: int
    seconds: float
    pass_seconds: float


class ActivationCache:
    """The anchors of a run. The least recently used ones go first.

    Every image uses the anchor of the baseline, so that one stays.
    """

    def __init__(self, max_memory: int, *, channels_last: bool = False) -> None:
        self._max_memory, self._channels_last = max_memory, channels_last
        self._anchors = BoundedCache[Anchor](max_memory, weight=lambda anchor: anchor.bytes)

    def __contains__(self, image: Tensor) -> bool:
        return ByIdentity(image) in self._anchors

    @property
    def bytes(self) -> int:
        """Memory that the activations take."""
        return int(self._anchors.weight)

    def get(self, image: Tensor) -> Anchor | None:
        """Return the anchor of an input, if it is in the cache."""
        return self._anchors.get(ByIdentity(image))

    @property
    def room(self) -> int:
        """Memory that is left for other activations."""
        return max(0, self._max_memory - self.bytes)

    def has_room_for(self, size: float) -> bool:
        """Tell whether activations of so many bytes may be kept at all."""
        return size <= self._max_memory

    def has_flat_anchor(self, network: Network, image: Tensor) -> bool:
        """Tell whether the activations of an input are those of a smaller image of one colour."""
        return network.has_flat_anchor(_batch_of_one(image))

    def add(
        self, network: Network, image: Tensor, seconds_per_pixel: float | None = None
    ) -> Anchor:
        """Compute and keep the activations of an input, or raise `UnfitError`.

        An image of one colour is computed from a smaller one if `seconds_per_pixel` of a full pass
        are known: the seconds of the smaller one do not tell those of a full pass.
        """
        started = time.perf_counter()
        try:
            flat = None if seconds_per_pixel is None else self._flat(network, _batch_of_one(image))
            if flat is None:
                tensor = self.tensor(image)
                activations, output = network.activations(tensor, self._max_memory)
            else:
                tensor, activations, output, _ = flat
            scores = as_scores(output, 1)[0]
        except ActivationsTooLargeError:
            message = f"activations take more than max_memory={self._max_memory} bytes"
            raise UnfitError(message) from None
        except OverwrittenError:
            message = "it reads a tensor that it has overwritten in place"
            raise UnfitError(message) from None
        except Exception as error:  # single steps may fail where the module does not
            message = f"step by step it failed ({type(error).__name__}: {error})"
            raise UnfitError(message) from error
        seconds, size = time.perf_counter() - started, size_of(activations)
        alone = seconds
        if flat is not None and seconds_per_pixel is not None:
            alone = seconds_per_pixel * prod(tensor.shape[2:])
        made = Anchor(network, tensor, activations, scores, size, seconds, alone)
        self._anchors.put(ByIdentity(image), made)
        return made

    def _flat(self, network: Network, tensor: torch.Tensor) -> FlatAnchor | None:
        try:
            return network.flat_activations(tensor, self._max_memory, self._layout(tensor))
        except (ActivationsTooLargeError, OverwrittenError):
            raise
        except Exception:  # noqa: BLE001, the network may take images of one size only
            return None

    def tensor(self, image: Tensor) -> torch.Tensor:
        """Return an input as a batch of one, in the memory layout of the run.

        It is a copy: no later step can reach the caller's image or baseline.
        """
        tensor = _batch_of_one(image)
        return tensor.clone(memory_format=self._layout(tensor))

    def _layout(self, tensor: torch.Tensor) -> torch.memory_format:
        last = self._channels_last and tensor.ndim == 4
        return torch.channels_last if last else torch.contiguous_format


def _batch_of_one(image: Tensor) -> torch.Tensor:
    """Return an input as a batch of one: the caller's own memory, which is only read."""
    return torch.from_numpy(np.array(image))[None] if isinstance(image, np.ndarray) else image[None]
