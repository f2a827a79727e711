"""The searches once more: a few lines each, played game by game on masked images.

They share no code with hshap but the regions of a partition, and take nothing from a run.
"""

from __future__ import annotations

import numpy as np
from oracle import by_permutations


def worth(model, image, regions):
    """Return the score of the image with nothing but some regions shown, on a baseline of 0."""
    shown = np.zeros_like(image)
    for region in regions:
        shown[(slice(None), *region.index)] = image[(slice(None), *region.index)]
    return float(np.ravel(model(shown[None]))[0])


def game(model, image, region):
    """Return the parts of a region, the score of each coalition, and its Shapley values."""
    parts = region.split() or (region,)
    values = np.zeros(2 ** len(parts))
    for number in range(2 ** len(parts)):
        kept = [part for i, part in enumerate(parts) if number >> i & 1]
        values[number] = worth(model, image, kept)
    return parts, values, by_permutations(values)


def cost(region, *, is_first):
    """Return the new evaluations of a game: the empty and the full coalition are known later."""
    parts = len(region.split() or (region,))
    return 2**parts if is_first else 2**parts - 2


def depth_first(model, image, root, tolerance=0.0, most=np.inf, *, keep_whole=False):
    """Play algorithm 1, always at the region with the largest share times the root of its area.

    Return the leaves, the regions that the budget left, in order, and the evaluations.
    """
    waiting, leaves, spent = [(root, np.inf, 1.0)], [], 0
    while waiting:
        region, own, share = waiting[0]
        price = cost(region, is_first=not spent)
        if spent + price > most:
            break
        spent += price
        waiting.pop(0)
        parts, values, phi = game(model, image, region)
        own = values[-1] - values[0] if region is root else own
        positive = sum(max(one, 0.0) for one in phi) or 1.0
        shares = [share * one / positive for one in phi]
        kept = [one for one in zip(parts, phi, shares, strict=True) if one[1] > tolerance + 1e-12]
        leaves += [part for part, _, _ in kept if not part.split()]
        if keep_whole and own > tolerance and not kept:
            leaves.append(region)
        waiting += [one for one in kept if one[0].split()]
        waiting.sort(key=lambda one: -one[2] * one[0].area ** 0.5)
    left = [region for region, _, _ in waiting]
    return {*leaves, *left}, left, spent


def breadth_first(model, image, root, percentile, *, keep_whole=False):
    """Keep, level by level, positive parts from a percentile of the level's coefficients on."""
    level, leaves, spent = [root], [], 0
    while level:
        spent += sum(cost(region, is_first=region is root) for region in level)
        played = [game(model, image, region) for region in level]
        limit = np.percentile(np.concatenate([phi for _, _, phi in played]), percentile)
        kept = [
            (part, phi)
            for parts, _, values in played
            for part, phi in zip(parts, values, strict=True)
            if phi > 1e-12 and phi >= limit - 1e-12
        ]
        for region, (_, values, phi) in zip(level, played, strict=True):
            adds = region is not root or values[-1] > values[0]
            if keep_whole and adds and not (phi > 1e-12).any():
                leaves.append(region)
        leaves += [part for part, _ in kept if not part.split()]
        level = [part for part, _ in kept if part.split()]
    return set(leaves), spent


def automatic_size(model, image, root, tolerance=0.0):
    """End where no part alone has 3/10 of the region's score; split the large ones further, once.

    Large are those of more than four median areas, unless parts that matter would all be leaves.
    """
    leaves, ended, waiting, limit = [], [], [(root, np.inf)], np.inf
    while waiting:
        region, own = waiting.pop()
        parts, values, phi = game(model, image, region)
        gain, alone = values[-1] - values[0], [values[1 << i] for i in range(len(parts))]
        relevant = [(part, one) for part, one in zip(parts, phi, strict=True) if one > tolerance]
        is_small = region.area <= limit or (
            relevant and not any(part.split() for part, _ in relevant)
        )
        matters = min(own, gain if region is root else own) > tolerance
        if matters and max(alone) - values[0] < 0.3 * gain and is_small:
            ended.append((region, own, relevant))
        else:
            leaves += [part for part, _ in relevant if not part.split()]
            waiting += [one for one in relevant if one[0].split()]
        if not waiting and ended and np.isinf(limit):
            limit = 4 * np.median([one.area for one in (*leaves, *(each[0] for each in ended))])
            waiting = [(region, own) for region, own, _ in ended]
            ended = []
    return {*leaves, *(each[0] for each in ended)}


def unit_of_share(model, image, root):
    """Return the smallest coefficient on the way to the strongest finding, at most the total."""
    region, parts = root, root.split()
    least = worth(model, image, [root]) - worth(model, image, [])
    while parts:
        _, _, phi = game(model, image, region)
        best = int(np.argmax(phi))
        if phi[best] <= 0:
            break
        region, least = parts[best], min(least, phi[best])
        parts = region.split()
    return max(least, 0.0)
