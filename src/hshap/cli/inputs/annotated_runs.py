"""Annotated runs: explanations, each with the objects of its image from a COCO file as masks."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.explanations import as_picture, source
from hshap.cli.inputs.files import text_of
from hshap.cli.output import say
from hshap.cli.progress import each
from hshap.cli.runs.stored import stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from hshap._util.types import Grid, Mask, Untyped
    from hshap.explanation.explanation import Explanation

FIX = "pass a COCO file with images, annotations and categories"
MOST_BYTES = 2**29
MOST_PIXELS = 2**28
MOST_NUMBERS = 2**17
"""Coordinates of one object: each side of a polygon is tested for every pixel around it."""

FARTHEST = 2**40
"""Pixels from the corner of an image; a place further away is a mistake."""

LONGEST_RUN = 60
"""Bits of a run of pixels."""

FAULTS = (ValueError, TypeError, LookupError, OverflowError, RecursionError)
"""Errors that a document gives which is not of COCO."""


class Annotation(NamedTuple):
    """One object: its category, its box `(left, top, width, height)` and its segmentation."""

    category: str
    box: Sequence[float]
    segmentation: Untyped


@dataclass(frozen=True)
class Annotated:
    """The annotations of one image of known size `(height, width)`."""

    name: str
    shape: Grid
    objects: tuple[Annotation, ...]

    def masks(self, categories: Sequence[str]) -> list[Mask]:
        """Return a mask for each object of some categories."""
        return [mask_of(one, self.shape) for one in self.objects if one.category in categories]


def read_annotations(path: Path) -> tuple[dict[str, Annotated], list[str]]:
    """Return the annotated images by file name, and the names of all categories."""
    text = text_of(path, fix=FIX, most=MOST_BYTES)
    try:
        document: Untyped = json.loads(text)
        for part, key in (("categories", "id"), ("images", "id"), ("images", "file_name")):
            _refuse_twins(document[part], part, key)
        names = {one["id"]: str(one["name"]) for one in document["categories"]}
        by_image: dict[Untyped, list[Annotation]] = {one["id"]: [] for one in document["images"]}
        for one in document["annotations"]:
            box = _numbers(one["bbox"]).tolist()
            if len(box) != 4:
                raise ValueError(f"a box has {len(box)} numbers")
            category = names[one["category_id"]]
            by_image[one["image_id"]].append(Annotation(category, box, one.get("segmentation")))
        found = {
            name: Annotated(
                name, (int(one["height"]), int(one["width"])), tuple(by_image[one["id"]])
            )
            for one in document["images"]
            for name in [as_text(str(one["file_name"]))]
        }
    except FAULTS as error:
        reason = f"{type(error).__name__}: {error}"
        raise Refusal(Code.INPUT, f"{path} is not a COCO file ({reason}); {FIX}") from error
    for one in found.values():
        if min(one.shape) < 1 or one.shape[0] * one.shape[1] > MOST_PIXELS:
            message = f"{path}: {one.name} has {one.shape[0]} x {one.shape[1]} pixels; {FIX}"
            raise Refusal(Code.INPUT, message)
    return found, list(dict.fromkeys(names.values()))


def annotations_of(annotated: Mapping[str, Annotated], image: str) -> Annotated | None:
    """Return the annotations of an image: by its path, or by the end of it if that is one's.

    Folders may be left out in front of either path. Where both have them, they are the same ones:
    datasets often number the images of each folder alike.

    >>> made = {"a/cell.png": Annotated("a/cell.png", (2, 2), ())}
    >>> annotations_of(made, "cell.png").name, annotations_of(made, "b/cell.png")
    ('a/cell.png', None)
    """
    if image in annotated:
        return annotated[image]
    own = PurePath(image).parts
    same = [one for name, one in annotated.items() if _ends_alike(PurePath(name).parts, own)]
    return same[0] if len(same) == 1 else None


def _ends_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    shared = min(len(one), len(other))
    return shared > 0 and one[-shared:] == other[-shared:]


def mask_of(one: Annotation, shape: Grid) -> Mask:
    """Return the pixels of an object: those of its segmentation, else of its box.

    >>> mask_of(Annotation("cell", [1, 0, 2, 1], None), (2, 4)).astype(int).tolist()
    [[0, 1, 1, 0], [0, 0, 0, 0]]
    """
    try:
        if isinstance(one.segmentation, dict):
            return _from_runs(cast("dict[str, Untyped]", one.segmentation), shape)
        if isinstance(one.segmentation, list) and one.segmentation:
            polygons = [_numbers(line) for line in one.segmentation]
            if sum(map(len, polygons)) > MOST_NUMBERS:
                raise ValueError(f"it has more than {MOST_NUMBERS} numbers")
            return np.logical_or.reduce([_inside(line.reshape(-1, 2), shape) for line in polygons])
    except FAULTS as error:
        message = f"a segmentation of {one.category} cannot be read ({error}); {FIX}"
        raise Refusal(Code.INPUT, message) from error
    left, top, width, height = one.box
    out = np.zeros(shape, dtype=bool)
    rows = slice(max(round(top), 0), max(round(top + height), 0))
    out[rows, max(round(left), 0) : max(round(left + width), 0)] = True
    return out


def _refuse_twins(entries: Untyped, part: str, key: str) -> None:
    """Refuse two entries with one key, as in joined files: annotations would be of either."""
    for value, times in Counter(one[key] for one in entries).most_common(1):
        if times > 1:
            raise ValueError(f"{times} {part} have the {key} {value}")


def _numbers(value: Untyped) -> np.ndarray:
    found = np.array(value, dtype=np.float64)
    if found.ndim != 1 or not (np.abs(found) < FARTHEST).all():
        raise ValueError("a place is not finite, or far away")
    return found


def _inside(corners: np.ndarray, shape: Grid) -> Mask:
    """Return the pixels whose centres lie inside a polygon, by the even-odd rule."""
    out = np.zeros(shape, dtype=bool)
    low = np.maximum(np.floor(corners.min(axis=0)), 0).astype(int)
    high = np.minimum(np.ceil(corners.max(axis=0)), (shape[1], shape[0])).astype(int)
    if (high <= low).any():
        return out
    x, y = np.arange(low[0], high[0]) + 0.5, (np.arange(low[1], high[1]) + 0.5)[:, None]
    inside = np.zeros((high[1] - low[1], high[0] - low[0]), dtype=bool)
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        if y1 != y2:
            crossing = x1 + (y - y1) * (x2 - x1) / (y2 - y1)
            inside ^= ((y1 > y) != (y2 > y)) & (x < crossing)
    out[low[1] : high[1], low[0] : high[0]] = inside
    return out


def _from_runs(runs: Mapping[str, Untyped], shape: Grid) -> Mask:
    """Return the pixels of COCO's runs, which go down the columns, packed in a text or not."""
    counts = runs["counts"]
    lengths = _unpacked(counts) if isinstance(counts, str) else [int(count) for count in counts]
    if (
        tuple(runs["size"]) != shape
        or min(lengths, default=0) < 0
        or sum(lengths) != np.prod(shape)
    ):
        message = f"its runs do not fill {shape[0]} x {shape[1]} pixels"
        raise ValueError(message)
    values = np.arange(len(lengths)) % 2 == 1
    return np.repeat(values, lengths).reshape(shape[::-1]).T


def _unpacked(text: str) -> list[int]:
    """Return the runs of COCO's packed text: 5 bits a letter, differences from the third run on."""
    counts: list[int] = []
    value = shift = 0
    for letter in text:
        bits = ord(letter) - 48
        value |= (bits & 31) << shift
        shift += 5
        if shift > LONGEST_RUN:
            raise ValueError("a run has too many digits")
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        value = shift = 0
    return counts


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
        own = annotations_of(annotated, image)
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


def check_categories(categories: Sequence[str], names: Sequence[str], option: str) -> None:
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


def union_of(masks: Sequence[Mask], shape: Grid) -> Mask:
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
