"""The conditional baseline against brute force: every coalition, every draw, both searches."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import by_definition

from hshap import (
    Batched,
    BreadthFirst,
    Conditional,
    DepthFirst,
    Dyadic,
    Explainer,
    Similar,
)


def model(batch):
    """Score inputs by a smooth function of all pixels, in which parts act together."""
    flat = batch.reshape(len(batch), -1)
    weights = np.cos(np.arange(flat.shape[1]))
    return np.stack([np.tanh(flat @ weights), np.exp(-((flat - 0.3) ** 2).mean(1))], axis=1)


def drawn(image, visible, draws):
    """Return stand-ins that depend on the image, on the visible pixels and on the draw."""
    seed = np.frombuffer(np.packbits(visible).tobytes().ljust(8, b"\0"), np.uint8)
    noise = np.random.default_rng(seed.tolist()).random((draws, *image.shape))
    return 0.7 * noise + 0.3 * (image[:, visible].mean() if visible.any() else 0.5)


def own_draws(image, visible, draws, generator):
    del generator
    return drawn(image, visible, draws)


class BruteForce:
    """Quadtree, values and Shapley values by definition; shares no code with the library."""

    def __init__(self, image, draws, target, side):
        self.image, self.draws, self.target, self.side = image, draws, target, side
        self.worths = {}

    def worths_of(self, boxes):
        """Return the score of each draw, for some boxes shown."""
        visible = np.zeros(self.image.shape[1:], bool)
        for (top, bottom), (left, right) in boxes:
            visible[top:bottom, left:right] = True
        key = visible.tobytes()
        if key not in self.worths:
            inputs = np.where(visible, self.image, drawn(self.image, visible, self.draws))
            self.worths[key] = np.array([model(one[None])[0, self.target] for one in inputs])
        return self.worths[key]

    def parts(self, box):
        cuts = [(a, (a + b) // 2, b) if b - a > self.side else (a, b) for a, b in box]
        found = list(product(*(list(pairwise(cut)) for cut in cuts)))
        return found if len(found) > 1 else []

    def game(self, box):
        """Return parts, coefficients and standard errors of the game of a box."""
        parts = self.parts(box)
        phi = np.stack(
            [
                by_definition(
                    lambda kept, k=k: self.worths_of([parts[i] for i in kept])[k], len(parts)
                )
                for k in range(self.draws)
            ]
        )
        return parts, phi.mean(0), phi.std(0, ddof=1) / np.sqrt(self.draws)

    def depth_first(self, box, tolerance):
        """Algorithm 1: parts above the tolerance are entered."""
        parts, phi, _ = self.game(box)
        leaves = []
        for part, one in zip(parts, phi, strict=True):
            if one > tolerance:
                leaves += self.depth_first(part, tolerance) if self.parts(part) else [part]
        return leaves

    def breadth_first(self, box, percentile):
        """Algorithm 2: parts at or above the percentile of their level are entered."""
        level, leaves = [box], []
        while level:
            found = [pair for one in level for pair in zip(*self.game(one)[:2], strict=True)]
            least = np.percentile([phi for _, phi in found], percentile)
            kept = [part for part, phi in found if phi >= least and phi > 0]
            leaves += [part for part in kept if not self.parts(part)]
            level = [part for part in kept if self.parts(part)]
        return leaves


def box_of(region):
    return tuple(zip(region.start, region.stop, strict=True))


@st.composite
def cases(draw):
    grid = draw(st.tuples(st.integers(4, 8), st.integers(4, 8)))
    channels, draws = draw(st.integers(1, 2)), draw(st.integers(2, 4))
    values = np.random.default_rng(draw(st.integers(0, 2**32))).random((channels, *grid))
    # Some images hold a value twice, or nothing but zeros in places.
    image = np.where(values < draw(st.sampled_from([0.0, 0.5])), 0.0, values)
    return image, draws, draw(st.integers(0, 1)), draw(st.integers(2, 3))


@given(cases(), st.sampled_from([1, 5, None]), st.sampled_from([0.0, 0.01, 35.0, 65.0]))
@settings(max_examples=20, deadline=None)
def test_values_and_leaves_are_by_definition(case, batch_size, limit):
    image, draws, target, side = case
    search = DepthFirst(limit) if limit < 1 else BreadthFirst(limit)
    found = Explainer(
        Batched(model, batch_size=batch_size),
        baseline=Conditional(own_draws, draws=draws),
        partition=Dyadic(side),
        search=search,
    ).explain(image, target=target)
    expected = BruteForce(image, draws, target, side)
    whole = tuple((0, n) for n in image.shape[1:])
    for game in found.games:
        parts, phi, errors = expected.game(box_of(game.region))
        assert [box_of(part) for part in game.children] == parts
        np.testing.assert_allclose(game.coefficients, phi, atol=1e-12)
        np.testing.assert_allclose(game.errors, errors, atol=1e-12)
        for number, value in enumerate(game.values):
            kept = [part for i, part in enumerate(parts) if number >> i & 1]
            assert value == pytest.approx(expected.worths_of(kept).mean(), abs=1e-12)
    leaves = (
        expected.depth_first(whole, limit) if limit < 1 else expected.breadth_first(whole, limit)
    )
    assert sorted(map(box_of, found.leaves)) == sorted(leaves)
    assert found.evaluations == draws + 1 + sum(
        draws * (len(game.values) - 2) for game in found.games
    )


class Recorded:
    """A sampler that remembers its draws by the visible pixels."""

    def __init__(self, sampler):
        self.sampler, self.drawn = sampler, {}

    def __call__(self, image, visible, draws, rng):
        made = self.sampler(image, visible, draws, rng)
        before = self.drawn.setdefault((image.tobytes(), visible.tobytes()), made.copy())
        assert np.array_equal(before, made)  # the same pixels always get the same draws
        return made


@pytest.mark.parametrize("search", [DepthFirst(), BreadthFirst(50)])
def test_images_in_shared_batches_keep_their_own_draws(search, rng):
    images = rng.random((3, 1, 8, 8))
    sampler = Recorded(Similar(rng.random((20, 1, 8, 8)), bandwidth=0.2))
    explainer = Explainer(model, Conditional(sampler, draws=3), Dyadic(2), search)
    seen = 0
    for found in explainer.explain_many((image, [0, 1]) for image in images):
        image = images[found.position]
        for game in found.games:
            for number, value in enumerate(game.values):
                visible = np.zeros((8, 8), bool)
                for i, part in enumerate(game.children):
                    if number >> i & 1:
                        visible[part.index] = True
                if visible.all():
                    continue
                draws = sampler.drawn[image.tobytes(), visible.tobytes()]
                scores = model(np.where(visible, image, draws))[:, found.class_index]
                assert value == pytest.approx(scores.mean(), abs=1e-12)
                seen += 1
    assert seen > 6 * 15
