"""Checks of a partition and its regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.baselines.recipes import Constant
from hshap.explainer import Explainer
from hshap.games.game import MOST_PLAYERS
from hshap.games.search import DepthFirst
from hshap.partitions.protocol import ComparesWithBaseline, Region
from hshap.testing import brute_force
from hshap.testing.report import Report, expect, run_checks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Image
    from hshap.partitions.protocol import Partition

MOST_NODES = 4000
MARK = 5.0


def check_partition(partition: Partition, images: Sequence[Image] | None = None) -> Report:
    """Check that a partition splits images as its contract says.

    `images` are images `(channels, *grid)` that the partition takes; by default two small random
    ones. Trees are walked down to 4000 regions.

    >>> import hshap
    >>> check_partition(hshap.Bisection(min_size=3)).passed[0]
    'the root holds every pixel'
    """
    given = [brute_force.locked(image) for image in images or brute_force.images()]
    trees = _Trees(partition, given)
    return run_checks(
        partition,
        {
            "the root holds every pixel": trees.roots_hold_every_pixel,
            "regions are regions": trees.nodes_are_regions,
            "area counts the pixels of index": trees.areas_count_pixels,
            "parts are disjoint and cover their region": trees.parts_cover_their_region,
            "a region has no part, or 2 to 16": trees.regions_have_two_parts_or_none,
            "regions are equal, and hash alike, if and only if their pixels are the same": (
                trees.regions_are_equal_by_their_pixels
            ),
            "the same image gives the same tree": trees.the_same_image_gives_the_same_tree,
            "the image is not written to": trees.the_image_stays_as_it_is,
            "under the OR rule every marked pixel is found": trees.marked_pixels_are_found,
        },
    )


class _Trees:
    """The trees that a partition gives for some images."""

    def __init__(self, partition: Partition, images: Sequence[Image]) -> None:
        self._partition, self._images = partition, images

    def _root(self, image: Image) -> Region:
        if isinstance(self._partition, ComparesWithBaseline):
            return self._partition.compare(image, np.zeros_like(image))
        return self._partition(image)

    def _each(self, check: Callable[[Image, Region], None]) -> None:
        for image in self._images:
            for region in brute_force.nodes(self._root(image), MOST_NODES):
                check(image, region)

    def roots_hold_every_pixel(self) -> None:
        for image in self._images:
            held = int(brute_force.inside([self._root(image)], image.shape[1:]).sum())
            pixels = image[0].size
            expect(
                held == pixels,
                f"on an image of shape {image.shape} it holds {held} of {pixels} pixels",
            )

    def nodes_are_regions(self) -> None:
        def check(_: Image, node: object) -> None:
            kept = isinstance(node, Region)
            expect(kept, f"{node!r} lacks one of index, area, adaptive and split()")

        self._each(check)

    def areas_count_pixels(self) -> None:
        def check(image: Image, region: Region) -> None:
            counted = int(brute_force.inside([region], image.shape[1:]).sum())
            expect(
                region.area == counted, f"{region!r} has area {region.area}, and {counted} pixels"
            )

        self._each(check)

    def parts_cover_their_region(self) -> None:
        def check(image: Image, region: Region) -> None:
            parts, grid = region.split(), image.shape[1:]
            if not parts:
                return
            times = sum(brute_force.inside([part], grid).astype(int) for part in parts)
            whole = brute_force.inside([region], grid)
            expect(
                np.array_equal(times, whole.astype(int)),
                f"the parts of {region!r} overlap, leave pixels out or reach outside",
            )
            expect(all(part.area for part in parts), f"{region!r} has an empty part")

        self._each(check)

    def regions_have_two_parts_or_none(self) -> None:
        def check(_: Image, region: Region) -> None:
            count = len(region.split())
            expect(
                count == 0 or 2 <= count <= MOST_PLAYERS, f"{region!r} is split into {count} parts"
            )

        self._each(check)

    def regions_are_equal_by_their_pixels(self) -> None:
        for image in self._images:
            first = list(brute_force.nodes(self._root(image), MOST_NODES))
            again = list(brute_force.nodes(self._root(image), MOST_NODES))
            for one, other in zip(first, again, strict=False):
                if _same_pixels(one, other, image):
                    expect(
                        one == other and hash(one) == hash(other),
                        f"{one!r} and {other!r} hold the same pixels, but differ as keys",
                    )
            for region in first:
                for part in region.split():
                    expect(part != region, f"{part!r} equals the larger region that it is part of")

    def the_same_image_gives_the_same_tree(self) -> None:
        for image in self._images:
            first, again = self._root(image), self._root(image)
            pairs = [(first, again)]
            for _ in range(MOST_NODES):
                if not pairs:
                    break
                one, other = pairs.pop()
                parts = one.split()
                expect(_same_pixels(one, other, image), f"{one!r} became {other!r}")
                expect(parts == one.split(), f"{one!r} is split differently the second time")
                expect(
                    len(parts) == len(other.split()), f"{one!r} is split differently in a new tree"
                )
                pairs.extend(zip(parts, other.split(), strict=True))

    def the_image_stays_as_it_is(self) -> None:
        for image in self._images:
            writable = np.array(image)
            for region in brute_force.nodes(self._root(writable), MOST_NODES):
                region.split()
            expect(np.array_equal(writable, image), "pixels changed")

    def marked_pixels_are_found(self) -> None:
        rng = np.random.default_rng(1)
        for image in self._images:
            points = rng.choice(image[0].size, size=min(3, image[0].size), replace=False)
            marked = np.array(image, dtype=np.float64)
            marked[0].reshape(-1)[points] = MARK
            found = Explainer(
                brute_force.any_marked,
                baseline=Constant(0.0),
                partition=self._partition,
                # An adaptive tree may end above the pixel; the region around it is still found.
                search=DepthFirst(keep_whole=True),
            ).explain(marked, target=0)
            relevant = brute_force.inside(found.leaves, image.shape[1:])
            missed = int((~relevant.reshape(-1)[points]).sum())
            expect(not missed, f"{missed} of {len(points)} marked pixels lie outside of all leaves")


def _same_pixels(one: Region, other: Region, image: Image) -> bool:
    grid = image.shape[1:]
    return np.array_equal(brute_force.inside([one], grid), brute_force.inside([other], grid))
