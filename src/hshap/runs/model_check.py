"""The model check: a resumed run refuses a model, or code in its settings, that has changed.

A run notes its model's answers to probes. When it is resumed, the model is asked again. Settings
that hold code of the caller's own cannot be compared by their description; then one image of the
run is explained again, and must give the stored values, regions and map.
"""

from __future__ import annotations

import hashlib
import warnings
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError
from hshap.explainer.probes import compare
from hshap.explanation.explanation import Explanation
from hshap.formats.reading import opened
from hshap.runs.sources.protocol import Decoded
from hshap.runs.tasks import texts_of
from hshap.runs.verification import difference_of, explain_again

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hshap._util.types import Array
    from hshap.evaluators.tiles import Tiles
    from hshap.explainer import Explainer
    from hshap.explainer.probes import Probes
    from hshap.runs.sources.protocol import Item, Source
    from hshap.runs.storing.protocol import Store
    from hshap.runs.tasks import AnyTarget

FIRST = 2
"""Images whose answers are noted."""

TRIED = 20
"""Images that are tried for those; a run gives up after as many failures."""

Named = tuple[str, "Array"]


def first_images(source: Source, tiles: Tiles | None) -> tuple[list[Named], Iterator[Item]]:
    """Return the first images that can be read, by their digests, and all items of the source.

    A large image gives the tile in its middle.
    """
    items = source.items()
    wanted, most = (FIRST, TRIED) if tiles is None else (1, 1)
    tried, found = list["Item"](), list[Named]()
    while len(found) < wanted and len(tried) < most and (item := next(items, None)) is not None:
        tried.append(item)
        with suppress(Exception):  # the run itself says which images fail
            found.append(_whole(source, item) if tiles is None else _middle(source, item, tiles))
    return found, chain(tried, items)


def _whole(source: Source, item: Item) -> Named:
    read = source.read(item)
    return read.sha256, _pixels(read.image())


def _middle(source: Source, item: Item, tiles: Tiles) -> Named:
    with opened(source.read(item).image()) as image:
        sides = image.shape[1:]
        start = tuple(max(0, (side - tiles.side) // 2) for side in sides)
        ends = zip(start, sides, strict=True)
        raw = image.read(start, tuple(min(at + tiles.side, side) for at, side in ends), 0)
    prepared = to_numpy("prepare's answer", tiles.prepared(raw))
    missing = [(0, tiles.side - side) for side in prepared.shape[1:]]
    name = hashlib.sha256(np.ascontiguousarray(raw).data).hexdigest()
    return name, np.pad(prepared, [(0, 0), *missing], mode="edge")


def _pixels(image: object) -> Array:
    return to_numpy("image", image.image if isinstance(image, Decoded) else image)


def check_model(store: Store, noted: Probes | None, now: Probes) -> None:
    """Refuse a model whose answers are not those of the run; warn if they hardly differ."""
    location, shared = store.location, noted and noted.answers.keys() & now.answers.keys()
    if noted is None or not shared:
        if store.has_results():
            message = (
                f"out={location!r} has no probe that this model answers, so a changed model would "
                "not be noticed; pass another folder if it may have changed"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        return
    found = compare(noted, now)
    if found.is_other:
        message = (
            f"out={location!r} is a run of another model or baseline, or images are read "
            f"otherwise: {found}; pass the same, or another folder"
        )
        raise ArgumentError(message)
    if found.is_noticed:
        message = (
            f"the model of out={location!r} answers a little differently than before: {found}. "
            "Another machine does that, and so does a model that was changed a little"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def check_code(  # noqa: PLR0913, PLR0917, each is another part of the run
    store: Store,
    explainer: Explainer,
    source: Source,
    targets: Sequence[AnyTarget] | None,
    layout: str | None,
    rounding: float,
) -> None:
    """Explain one image of a run again, and refuse an explainer that gives other results.

    Values of one input may differ by `rounding` in other batches.
    """
    if source.count is None:  # a stream comes only once
        return
    stored = store.stored()
    for item in islice((one for one in source.items() if one.name in stored), TRIED):
        with suppress(Exception):  # the run itself says which images fail
            read = source.read(item)
            same = [one for one in stored[item.name] if one.image_sha256 == read.sha256]
            image = read.image() if same else None
            if image is not None:
                break
    else:
        return
    by_text = texts_of(targets or ())
    for one in same:
        found = one.read()
        wanted = by_text.get(one.target, getattr(found, "class_index", None))
        if not isinstance(found, Explanation) or wanted is None:
            continue
        made = explain_again(explainer, image, wanted, layout)
        problem = difference_of(found, made, rounding).problem
        if problem:
            message = (
                f"out={store.location!r} was made with other settings: explained again, "
                f"image {item.name!r}, target {one.target}: {problem}; a function or class in "
                "the settings has changed; pass the same, or another folder"
            )
            raise ArgumentError(message)
