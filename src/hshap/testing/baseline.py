"""Checks of a baseline and its fills."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.baselines.protocol import IgnoresImage, Still
from hshap.errors import HshapError
from hshap.explainer import Explainer
from hshap.games.search import DepthFirst
from hshap.partitions.grids import Bisection
from hshap.testing import brute_force
from hshap.testing.report import Report, expect, run_checks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hshap._util.types import Array, Image
    from hshap.baselines.protocol import Baseline, Fill
    from hshap.partitions.protocol import Coalition

CLOSE = 1e-9


def check_baseline(baseline: Baseline, images: Sequence[Image] | None = None) -> Report:
    """Check that a baseline gives stand-ins for hidden pixels as its contract says.

    `images` are images `(channels, *grid)` that the baseline takes, by default two small random
    ones.

    >>> import hshap
    >>> check_baseline(hshap.Blur(sigma=1.0)).passed[0]
    'stand-ins have the shape of the image'
    """
    given = [brute_force.locked(image) for image in images or brute_force.images()]
    fills = _Fills(baseline, given)
    return run_checks(
        baseline,
        {
            "stand-ins have the shape of the image": fills.stand_ins_have_the_image_shape,
            "stand-ins are finite floats": fills.stand_ins_are_finite,
            "the number of draws is the same for all coalitions": fills.draws_are_the_same,
            "the same coalition gets the same stand-ins, in any order of calls": (
                fills.stand_ins_repeat
            ),
            "images do not change each other's stand-ins": fills.images_are_independent,
            "Still stand-ins ignore the shown regions": fills.still_means_still,
            "still() agrees with the call": fills.still_agrees_with_the_call,
            "the image is not written to": fills.the_image_stays_as_it_is,
            "an image of another shape works, or is refused with an error of hshap": (
                fills.other_shapes_are_refused
            ),
            "values equal the mean over painted inputs": fills.values_equal_brute_force,
        },
    )


class _Fills:
    """The fills that a baseline gives for some images."""

    def __init__(self, baseline: Baseline, images: Sequence[Image]) -> None:
        self._baseline, self._images = baseline, images

    def _each(self, check: Callable[[Image, Fill, Coalition], None]) -> None:
        for image in self._images:
            fill = self._baseline(image)
            for kept in _coalitions(image):
                check(image, fill, kept)

    def stand_ins_have_the_image_shape(self) -> None:
        self._each(
            lambda image, fill, kept: expect(
                np.shape(fill(kept))[1:] == image.shape and len(fill(kept)),
                f"got {np.shape(fill(kept))} for an image of shape {image.shape}; "
                "they must be (draws, *image.shape)",
            )
        )

    def stand_ins_are_finite(self) -> None:
        def check(_: Image, fill: Fill, kept: Coalition) -> None:
            found = np.asarray(fill(kept))
            expect(found.dtype.kind == "f", f"they hold {found.dtype} numbers")
            expect(np.isfinite(found).all(), "they hold NaN or infinite values")

        self._each(check)

    def draws_are_the_same(self) -> None:
        for image in self._images:
            fill = self._baseline(image)
            draws = {len(fill(kept)) for kept in _coalitions(image)}
            expect(len(draws) == 1, f"it varies: {sorted(draws)}")

    def stand_ins_repeat(self) -> None:
        for image in self._images:
            kept = list(_coalitions(image))
            forward = _all(self._baseline(image), kept)
            backward = _all(self._baseline(image), kept[::-1])[::-1]
            same = all(map(np.array_equal, forward, backward))
            expect(same, "a second fill, asked in another order, gave other stand-ins")

    def images_are_independent(self) -> None:
        image, *others = self._images
        fill, kept = self._baseline(image), list(_coalitions(image))
        before = _all(fill, kept)
        for other in (*others, 1.0 - image):
            other_fill = self._baseline(other)
            for coalition in _coalitions(other):
                other_fill(coalition)
        expect(
            all(map(np.array_equal, before, _all(fill, kept))),
            "they differ after another image was filled",
        )

    def still_means_still(self) -> None:
        def check(image: Image, fill: Fill, kept: Coalition) -> None:
            del image
            expect(
                not isinstance(fill, Still) or np.array_equal(fill(kept), fill(())),
                f"with {kept!r} shown they differ from the bare baseline",
            )

        self._each(check)

    def still_agrees_with_the_call(self) -> None:
        if not isinstance(self._baseline, IgnoresImage):
            return
        for image in self._images:
            still = self._baseline.still(image.shape, image.dtype)
            expect(np.array_equal(still(()), self._baseline(image)(())), "the two differ")

    def the_image_stays_as_it_is(self) -> None:
        for image in self._images:
            writable = np.array(image)
            _all(self._baseline(writable), list(_coalitions(image)))
            expect(np.array_equal(writable, image), "pixels changed")

    def other_shapes_are_refused(self) -> None:
        for image in self._images:
            wider = np.concatenate([image, image[..., :1]], axis=-1)
            try:
                shape = np.shape(self._baseline(wider)(()))[1:]
            except HshapError:
                continue
            expect(
                shape == wider.shape,
                f"for an image of shape {wider.shape} they have shape {shape}, and no error",
            )

    def values_equal_brute_force(self) -> None:
        for image in self._images:
            found = Explainer(
                brute_force.weighted_mean,
                baseline=self._baseline,
                partition=Bisection(min_size=max(image.shape[1:]) // 2),
                search=DepthFirst(),
            ).explain(image, target=0)
            game = found.games[0]
            left, right = game.children
            fill = self._baseline(image)
            for value, kept in zip(
                game.values, [(), (left,), (right,), (left, right)], strict=True
            ):
                inputs = [brute_force.painted(image, one, kept) for one in np.asarray(fill(kept))]
                expected = float(brute_force.weighted_mean(np.stack(inputs)).mean())
                expect(
                    abs(value - expected) <= CLOSE * max(1.0, abs(expected)),
                    f"{value} instead of {expected} with {kept!r} shown",
                )


def _coalitions(image: Image) -> Iterator[Coalition]:
    """Yield coalitions of a few regions: none, one, several and all."""
    root = Bisection(min_size=2)(image)
    parts = root.split()
    yield ()
    yield (root,)
    yield from ((part,) for part in parts)
    yield from (part.split()[:1] for part in parts if part.split())


def _all(fill: Fill, kept: Sequence[Coalition]) -> list[Array]:
    return [np.array(fill(coalition)) for coalition in kept]
