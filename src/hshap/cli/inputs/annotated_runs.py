"""Annotated runs: the explanations of a run or folder, each with the annotations of its image."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.annotations import find, read_annotations
from hshap.cli.inputs.explanations import as_picture, source
from hshap.cli.output import say
from hshap.cli.progress import each
from hshap.cli.runs.stored import stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hshap._util.types import Grid, Mask
    from hshap.cli.inputs.annotations import Annotated
    from hshap.explanation.explanation import Explanation


class Explained(NamedTuple):
    """An explanation of a run, with the name of its image and its annotations."""

    image: str
    explanation: Explanation
    annotated: Annotated


def explained_with(run: str, truth: Path, target: str | None) -> tuple[list[Explained], list[str]]:
    """Return the explanations whose images are annotated, and the categories of the truth.

    An image that the truth does not name may have objects or none, and one that was not explained
    has nothing to judge: both are left out, with a message.
    """
    annotated, categories = read_annotations(truth)
    found: dict[str, Explained] = {}
    images: dict[str, str] = {}
    missing = 0
    for image, explanation in _explanations(run):
        if target is not None and target not in _names(explanation):
            continue
        own = find(annotated, image)
        if own is None:
            missing += 1
            continue
        other = images.setdefault(own.name, image)
        if other != image:
            message = (
                f"{own.name} of {truth} may be {other} or {image} of {run}; write the paths of the "
                "images into the truth as the run has them"
            )
            raise Refusal(Code.INPUT, message)
        if image in found:
            raise Refusal(Code.USAGE, _twice(run, image, found[image].explanation, explanation))
        if own.shape != explanation.placement.shape:
            wanted = " x ".join(map(str, explanation.placement.shape))
            message = (
                f"{truth}: {own.name} has {own.shape[0]} x {own.shape[1]} pixels, but the image "
                f"that was explained has {wanted}; annotate the images that were explained"
            )
            raise Refusal(Code.INPUT, message)
        found[image] = Explained(image, explanation, own)
    if not found:
        message = f"{truth} has none of the images of {run}; pass the annotations of these images"
        raise Refusal(Code.INPUT, message)
    if missing:
        say(f"explanations without an annotated image in {truth} are left out: {missing}")
    there = {one.annotated.name for one in found.values()}
    absent = sum(bool(one.objects) for one in annotated.values() if one.name not in there)
    if absent:
        say(f"images with objects in {truth} that {run} lacks are left out: {absent}")
    return list(found.values()), categories


def known(categories: Sequence[str], names: Sequence[str], option: str) -> None:
    """Refuse a category that the truth does not have."""
    for name in names:
        if name not in categories:
            message = f"{option} {name} is no category of the truth; it has {', '.join(categories)}"
            raise Refusal(Code.USAGE, message)


def objects_of(found: Sequence[Explained], categories: Sequence[str]) -> Iterator[list[Mask]]:
    """Yield the masks of the objects of each image, at its original size.

    Objects without a pixel that the model saw are left out, with a message at the end: those with
    an empty mask, outside of the image, or outside of the part of it that was explained. Keep less
    than the masks of an image: a data set has more objects than memory has room for.
    """
    unseen: list[str] = []
    for one in found:
        seen = one.explanation.placement.seen
        masks = one.annotated.masks(categories)
        there = [mask for mask in masks if (mask & seen).any()]
        unseen += [one.image] * (len(masks) - len(there))
        yield there
    if unseen:
        count = f"{len(unseen)}, the first in {unseen[0]}"
        say(f"objects without a pixel in the explained image are left out: {count}")


def joined(masks: Sequence[Mask], shape: Grid) -> Mask:
    """Return the pixels of all masks of an image of this shape."""
    return np.logical_or.reduce([np.zeros(shape, dtype=bool), *masks])


def on_grid(mask: Mask, explanation: Explanation) -> Mask:
    """Return a mask of the original image on the grid of its explanation, at pixel centres.

    An object that falls between the centres keeps the grid pixel at its middle. One that the model
    did not see has no pixel.
    """
    place = explanation.placement
    centres = [np.rint(place.centres(axis)).astype(int) for axis in range(mask.ndim)]
    inside = [(at >= 0) & (at < side) for at, side in zip(centres, mask.shape, strict=True)]
    clipped = [np.clip(at, 0, side - 1) for at, side in zip(centres, mask.shape, strict=True)]
    out = mask[np.ix_(*clipped)] & np.logical_and.outer(*inside)
    seen = np.nonzero(mask & place.seen)
    if len(seen[0]) and not out.any():
        places = [at[line] for at, line in zip(place.seen_at(), seen, strict=True)]
        out[tuple(int(np.rint(at.mean())) for at in places)] = True
    return out


def _explanations(run: str) -> Iterator[tuple[str, Explanation]]:
    """Yield the names of images and their explanations, from a run folder, or .npz files."""
    with each("reading explanations", stored(run)) as some:
        for one in some:
            explanation = as_picture(one.explanation(), one.file)
            yield source(explanation, "image", one.image or one.file.stem), explanation


def _twice(run: str, image: str, one: Explanation, other: Explanation) -> str:
    if _names(one) != _names(other):
        return f"{run} explains several classes of {image}; pass --target with one of them"
    return f"{run} explains two images named {image}; explain the images of each folder apart"


def _names(explanation: Explanation) -> tuple[str, ...]:
    """Return the names of an explanation's class: its number, its target and its own name."""
    number = () if explanation.class_index is None else (str(explanation.class_index),)
    return (*number, str(explanation.target), source(explanation, "class", ""))
