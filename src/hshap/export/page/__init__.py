"""A page to explore explanations: one HTML file that needs no server and no network.

The page holds the images and every game that was played. Its sliders change the limits of the
findings, exactly as `Explanation.at` does. Nothing here calls a model.

>>> import numpy as np
>>> from hshap import demo, export
>>> image = np.zeros((1, 8, 8))
>>> view = export.page.View("dot.png", image, {"bright": demo.example()})
>>> "dot.png" in export.page.page([view], title="One bright pixel")
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.atomic import replace
from hshap._util.raster import png
from hshap._util.recipes import settle
from hshap.errors import ArgumentError
from hshap.explanation.explanation import Explanation
from hshap.export.page.document import assemble
from hshap.export.page.picture import check_picture, to_bytes
from hshap.export.page.tables import Drawn, tabulate

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from hshap._util.types import Array, Mask


@dataclass(frozen=True, eq=False)
class View:
    """One image of a page, with an explanation for each class, and the truth if it is known.

    `image` is `(channels, height, width)` or `(height, width)`, bytes or numbers. Three or four
    channels are shown in colour, any other number by their mean. Bytes and numbers from 0 to 1 are
    shown unchanged, others from their minimum (black) to their maximum (white). `truth` is True on
    the objects that should be found.

    >>> import hshap
    >>> image = np.zeros((1, 8, 8))
    >>> image[0, 2, 5] = 1.0
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ... )
    >>> view = View("dot.png", image, {"bright": explainer.explain(image, target=0)})
    >>> view.name, list(view.explanations)
    ('dot.png', ['bright'])
    """

    name: str
    image: Array
    explanations: Mapping[str, Explanation]
    truth: Mask | None = None

    def __post_init__(self) -> None:
        _check_text("name", self.name, "the image's file name")
        image = to_numpy("image", self.image)
        settle(self, image=image)
        _check_explanations(self.explanations)
        for name, explanation in self.explanations.items():
            check_picture(image, explanation.grid, name)
        if self.truth is not None:
            truth = to_numpy("truth", self.truth)
            if truth.shape != image.shape[-2:] or truth.dtype != np.bool_:
                message = (
                    f"truth is {truth.dtype} of shape {truth.shape}; "
                    f"pass booleans of shape {image.shape[-2:]}, for example mask > 0"
                )
                raise ArgumentError(message)
            settle(self, truth=truth)


def page(views: Sequence[View], *, title: str = "hshap") -> str:
    """Return one HTML document that shows the views and contains all that it needs.

    Several views open as a gallery.

    >>> import hshap
    >>> image = np.eye(4)[None]
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ... )
    >>> found = explainer.explain(image, target=0)
    >>> page([View("eye.png", image, {"bright": found})]).splitlines()[0]
    '<!doctype html>'
    """
    _check_text("title", title, "the subject of the page")
    return assemble([_drawn(view) for view in _checked(views)], title)


def write_page(path: str | PathLike[str], views: Sequence[View], *, title: str = "hshap") -> Path:
    """Write the page and return its path; an existing file stays until the new one is complete.

    >>> import hshap, tempfile
    >>> from pathlib import Path
    >>> image = np.eye(4)[None]
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ... )
    >>> view = View("eye.png", image, {"bright": explainer.explain(image, target=0)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(Path(folder) / "eye.html", [view]).name
    'eye.html'
    """
    text = page(views, title=title)
    return replace(path, lambda file: file.write(text.encode()))


def _drawn(view: View) -> Drawn:
    table, runs = tabulate(view.name, view.explanations, view.truth)
    return Drawn(table, runs, png(to_bytes(view.image)))


def _checked(views: object) -> list[View]:
    if isinstance(views, View) or not isinstance(views, Sequence):
        message = f"views is {checks.shown(views)}; pass a list of views, such as [View(...)]"
        raise ArgumentError(message)
    if not views:
        message = "views is empty; pass at least one View"
        raise ArgumentError(message)
    found: list[View] = []
    for position, view in enumerate(cast("Sequence[object]", views)):
        if not isinstance(view, View):
            message = f"views[{position}] is {checks.shown(view)}; pass a View"
            raise ArgumentError(message)
        found.append(view)
    return found


def _check_text(name: str, value: object, meaning: str) -> None:
    if not isinstance(value, str):
        message = f"{name} is {checks.shown(value)}; pass {meaning} as text"
        raise ArgumentError(message)


def _check_explanations(explanations: object) -> None:
    if not isinstance(explanations, Mapping) or not explanations:
        message = (
            f"explanations is {checks.shown(explanations)}; pass a dictionary from class names to "
            'explanations, such as {"cross": explanation}'
        )
        raise ArgumentError(message)
    for name, explanation in cast("Mapping[object, object]", explanations).items():
        _check_text("explanations has a class name that", name, "it")
        if not isinstance(explanation, Explanation):
            message = (
                f"explanations[{name!r}] is {checks.shown(explanation)}; pass an Explanation, "
                "the result of explainer.explain"
            )
            raise ArgumentError(message)
