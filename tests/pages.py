"""Explanations of large images for tests of the page, without the time to explain them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import hshap


def spotted(side, number=80):
    """Explain an image with spots of different strength, in boxes of a twentieth of its side."""
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, side, (2, number))
    image = np.zeros((1, side, side), np.float32)
    image[0, rows, columns] = 1 + rng.random(number)
    return hshap.Explainer(
        lambda batch: batch[:, 0, rows, columns].sum(axis=1),
        baseline=hshap.Constant(0.0),
        partition=hshap.Dyadic(side // 20),
    ).explain(image, 0)


def enlarged(explanation, factor):
    """Return the explanation of an image in which every pixel is a square of pixels."""

    def large(box):
        return hshap.Box(
            tuple(factor * place for place in box.start),
            tuple(factor * place for place in box.stop),
        )

    games = tuple(
        replace(game, region=large(game.region), children=tuple(map(large, game.children)))
        for game in explanation.games
    )
    grid = tuple(factor * length for length in explanation.grid)
    return replace(
        explanation,
        grid=grid,
        games=games,
        leaves=tuple(map(large, explanation.leaves)),
        unfinished=(),
        placement=hshap.Placement(grid),
    )
