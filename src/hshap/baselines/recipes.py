"""The baselines: a value, an image, a mean, a blur, reference images, or a sampler."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import as_floats, as_image, as_images, frozen, to_numpy
from hshap._util.recipes import recipe, settle
from hshap._util.smoothing import gaussian
from hshap.baselines.dataset_mean import stream_mean
from hshap.baselines.protocol import Fill, Still
from hshap.baselines.samplers import Sampler, check_shape
from hshap.errors import ArgumentError
from hshap.partitions.regions import mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from hshap._util.types import Array, Tensor
    from hshap.partitions.protocol import Coalition


@recipe
class Constant:
    """Hide pixels behind one value, or one for each channel.

    >>> Constant(0.5)(np.zeros((3, 4, 4)))(())[0, 0, 0, 0].item()
    0.5
    """

    value: float | Sequence[float] = 0.0

    def __post_init__(self) -> None:
        given = to_numpy("value", self.value)
        value = as_floats("value", given.astype(float) if given.dtype.kind in "iu" else given)
        if value.ndim > 1:
            message = (
                f"value has shape {value.shape}; pass one number, or one for each channel, "
                "or use Fixed for a whole image"
            )
            raise ArgumentError(message)
        settle(self, value=value.tolist() if value.ndim == 0 else tuple(value.tolist()))

    def __call__(self, image: Array) -> Fill:
        """Return the fill for one image."""
        return self.still(image.shape, image.dtype)

    def still(self, shape: tuple[int, ...], dtype: np.dtype) -> Still:
        """Return the fill for every image of a shape and type."""
        value = np.asarray(self.value, dtype=dtype)
        if value.ndim == 1 and len(value) not in (1, shape[0]):
            message = (
                f"value={self.value} has {len(value)} entries, but the image has {shape[0]} "
                f"channels; pass one number, or {shape[0]} of them"
            )
            raise ArgumentError(message)
        column = value.reshape(-1, *(1,) * (len(shape) - 1))
        # A view that repeats the value: no memory, however large the image.
        return Still(np.broadcast_to(column, (1, *shape)))


@recipe
class Fixed:
    """Hide pixels behind those of one reference image.

    >>> Fixed(np.full((3, 4, 4), 0.25))(np.zeros((3, 4, 4)))(()).shape
    (1, 3, 4, 4)
    """

    image: Tensor

    def __post_init__(self) -> None:
        # A copy, so that later changes of the caller's array do not change the recipe.
        settle(self, image=frozen(as_image("image", self.image)))

    def __call__(self, image: Array) -> Fill:
        """Return the fill for one image."""
        return self.still(image.shape, image.dtype)

    def still(self, shape: tuple[int, ...], dtype: np.dtype) -> Still:
        """Return the fill for every image of a shape and type."""
        return _single(self.image, shape, dtype)


@recipe
class Mean:
    """Hide pixels behind the mean of many images: the paper's expected value.

    `source` is an array `(count, channels, *grid)`, an iterable of images or of `(image, ...)`
    tuples, or a torch DataLoader. It is read once and never held in memory. Say `batched=True` for
    an iterable of batches that is not a DataLoader.

    >>> Mean(np.ones((3, 4, 4)) * level for level in (0.0, 1.0)).image.mean().item()
    0.5
    """

    image: NDArray[np.float64]
    count: int

    def __init__(self, source: Iterable[object], *, batched: bool | None = None) -> None:
        """Read `source` in one pass."""
        image, count = stream_mean(source, batched=batched)
        settle(self, image=frozen(image))
        settle(self, count=count)

    @classmethod
    def of(cls, image: ArrayLike, count: int) -> Mean:
        """Return the baseline of a mean that is known already, and the number of its images.

        >>> Mean.of(np.zeros((3, 4, 4)), count=200).count
        200
        """
        made = cls([image])
        settle(made, count=checks.integer("count", count, minimum=1))
        return made

    def __call__(self, image: Array) -> Fill:
        """Return the fill for one image."""
        return self.still(image.shape, image.dtype)

    def still(self, shape: tuple[int, ...], dtype: np.dtype) -> Still:
        """Return the fill for every image of a shape and type."""
        return _single(self.image, shape, dtype)


@recipe
class Blur:
    """Hide pixels behind a Gaussian blur of the image itself.

    `sigma` is in pixels; borders are mirrored. Coarse content stays visible, so the explanation
    shows which details matter, not which objects.

    >>> Blur(sigma=2.0)(np.eye(8)[None])(()).shape
    (1, 1, 8, 8)
    """

    sigma: float

    def __post_init__(self) -> None:
        sigma = checks.number("sigma", self.sigma, minimum=1e-3)
        settle(self, sigma=sigma)

    def __call__(self, image: Array) -> Fill:
        """Return the fill for one image."""
        blurred = gaussian(image, self.sigma, range(1, image.ndim))
        return Still(blurred.astype(image.dtype)[None])


@recipe
class OwnColour:
    """Hide pixels behind the median of each channel of the image itself.

    On most images that is the colour of the background. It needs no other image, and regions that
    show the background get no edge.

    >>> OwnColour()(np.ones((3, 4, 4)))(()).shape
    (1, 3, 4, 4)
    >>> OwnColour()(np.arange(8.0).reshape(1, 8))(()).tolist()
    [[[3.5, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5]]]
    """

    def __call__(self, image: Array) -> Fill:
        """Return the fill for one image."""
        axes = tuple(range(1, image.ndim))
        own = np.median(image, axis=axes, keepdims=True)
        return Still(np.broadcast_to(own.astype(image.dtype), (1, *image.shape)))


@recipe
class References:
    """Hide pixels behind reference images drawn at random; a value is the mean over them.

    Every coefficient then carries its standard error over the draws. All images are used unless
    `draws` asks for fewer; these are chosen once, by `seed`.

    >>> References(np.zeros((5, 3, 4, 4)), draws=2)(np.ones((3, 4, 4)))(()).shape
    (2, 3, 4, 4)
    """

    images: Tensor
    draws: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        images = frozen(as_images("images", self.images))
        settle(self, images=images)
        checks.integer("seed", self.seed, minimum=0)
        if len(images) < 2:
            message = f"images has shape {images.shape}, only one; pass 2 or more, or use Fixed"
            raise ArgumentError(message)
        if self.draws is None:
            return
        draws = checks.integer("draws", self.draws, minimum=2)
        settle(self, draws=draws)
        if draws > len(images):
            message = (
                f"draws={draws}, but there are only {len(images)} images; "
                "pass more images or fewer draws"
            )
            raise ArgumentError(message)

    def __call__(self, image: Array) -> Fill:
        """Return the fill for one image."""
        return self.still(image.shape, image.dtype)

    def still(self, shape: tuple[int, ...], dtype: np.dtype) -> Still:
        """Return the fill for every image of a shape and type."""
        images = self.images
        check_shape(images.shape[1:], shape)
        if self.draws is not None:
            rng = np.random.default_rng(self.seed)
            images = images[np.sort(rng.permutation(len(images))[: self.draws])]
        return Still(images.astype(dtype, copy=False))


@recipe
class Conditional:
    """Hide pixels behind the draws of a sampler, given the pixels that are shown.

    `sampler(image, visible, draws, rng)` returns stand-ins `(draws, *image.shape)`; their values at
    visible pixels are ignored. The same shown pixels always get the same draws.

    >>> import hshap
    >>> sampler = hshap.Similar(np.zeros((5, 3, 4, 4)))
    >>> Conditional(sampler, draws=2)(np.ones((3, 4, 4)))(()).shape
    (2, 3, 4, 4)
    """

    sampler: Sampler
    draws: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.sampler, type) or not callable(self.sampler):
            message = (
                f"sampler must be callable, got {checks.shown(self.sampler)}; "
                "pass one such as Similar(reference_images)"
            )
            raise ArgumentError(message)
        checks.integer("draws", self.draws, minimum=2)
        checks.integer("seed", self.seed, minimum=0)

    def __call__(self, image: Array) -> Fill:
        """Return the fill for one image."""

        def fill(kept: Coalition) -> Array:
            visible = mask(kept, image.shape[1:])
            # Seeded by the pixels, not by the order of calls: results do not depend on batching.
            key = zlib.crc32(np.packbits(visible).tobytes())
            rng = np.random.default_rng((self.seed, key))
            drawn = to_numpy("sampler's answer", self.sampler(image, visible, self.draws, rng))
            if drawn.shape != (self.draws, *image.shape):
                message = (
                    f"sampler returned shape {drawn.shape}; "
                    f"it must return {(self.draws, *image.shape)}"
                )
                raise ArgumentError(message)
            return drawn.astype(image.dtype, copy=False)

        return fill


def _single(reference: Array, shape: tuple[int, ...], dtype: np.dtype) -> Still:
    check_shape(reference.shape, shape)
    return Still(reference.astype(dtype, copy=False)[None])
