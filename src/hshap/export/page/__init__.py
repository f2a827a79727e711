"""A page to explore explanations in a browser; it needs no server and no network.

The page holds the images with their regions and maps. Its slider changes the tolerance of the
findings, exactly as `Explanation.at` does. Nothing here calls a model.

>>> import numpy as np
>>> from hshap import demo, export
>>> image = np.zeros((1, 8, 8))
>>> view = export.page.View("dot.png", image, {"bright": demo.example()})
>>> "dot.png" in export.page.page([view], title="One bright pixel")
True
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.export.page.large_picture import LargePicture, checked, tile_pixels
from hshap.export.page.view import View, check_text
from hshap.export.page.writing import as_document, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from hshap._util.types import Array
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.tiled import TiledExplanation

__all__ = ["NotebookPage", "View", "large_views", "notebook_page", "page", "write_page"]

FORMS = ("auto", "file", "folder")

GREY = 200
"""Brightness of the picture if no image is given."""

LEAST = 200
"""The least height of a frame, in pixels of the screen."""


def page(views: Iterable[View], *, title: str = "hshap") -> str:
    """Return one HTML document that shows the views and contains all that it needs.

    Several views open as a gallery.

    >>> import hshap, numpy as np
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
    check_text("title", title, "the subject of the page")
    return as_document(_checked(views), title)


def write_page(
    path: str | PathLike[str],
    views: Iterable[View],
    *,
    title: str = "hshap",
    form: Literal["auto", "file", "folder"] = "auto",
) -> Path:
    """Write the page and return its path; an existing file stays until the new one is complete.

    With `form="file"` the page is one HTML file. With `"folder"` the data of each image is in a
    folder beside it, for example `index_files` beside `index.html`, and the browser loads an image
    when it is looked at: thousands of images, and images of any size, open at once. `"auto"`, the
    default, takes a folder if one file would be larger than 32 MB. Copy the folder along with the
    page. The views may come from a generator: only one of them is in memory at a time.

    >>> import hshap, tempfile, numpy as np
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
    check_text("title", title, "the subject of the page")
    if form not in FORMS:
        message = f"form is {checks.shown(form)}; pass 'auto', 'file' or 'folder'"
        raise ArgumentError(message)
    return write(Path(path), _checked(views), title, form)


def large_views(image: object, found: Mapping[str, TiledExplanation]) -> Iterator[View]:
    """Yield the views of a large image: the whole of it, and then each tile that was found.

    `image` is the path, array or `LargeImage` that was explained, `found` has the result of
    `explain_tiles` for each class. The view of the whole image has the found tiles and the outlines
    inside them. It zooms down to full resolution around findings, and to some 4,000 pixels a side
    elsewhere. Pixels are read as the page is written, so memory is bounded.

    >>> import hshap, numpy as np
    >>> image = np.zeros((1, 64, 64), np.float32)
    >>> image[0, 40, 21] = 1.0
    >>> explainer = hshap.Explainer(
    ...     hshap.demo.brightest,
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Bisection(min_size=1),
    ... )
    >>> tiles = hshap.large.Tiles(side=16)
    >>> found = hshap.large.explain_tiles(explainer, image, target=0, tiles=tiles)
    >>> [view.name for view in large_views(image, {"bright": found})]
    ['image', 'image, tile 2-1']
    """
    with checked(image, found) as (large, given):
        name = large.name
        sides = None if large.pixel_size is None else list(large.pixel_size)
        whole = {label: one.tiles for label, one in given.items()}
        picture = LargePicture(large, given)
        yield View(name, picture, whole, pixel_size=sides, unit="µm")
        for label, one in given.items():
            for number, inside in enumerate(one.inside):
                row, column = divmod(inside.position, one.scores.shape[1])
                pixels = tile_pixels(large, one, number)
                title = f"{name}, tile {row}-{column}"
                yield View(title, pixels, {label: inside}, pixel_size=sides, unit="µm")


@dataclass(frozen=True, repr=False)
class NotebookPage:
    """A page that a notebook shows in place.

    >>> from hshap.demo import example
    >>> notebook_page(example()).height
    640
    """

    document: str
    height: int = 640

    def _repr_html_(self) -> str:
        # In a frame without the right to be of the notebook's origin, the page reaches nothing
        # of it.
        return (
            f'<iframe srcdoc="{html.escape(self.document)}" sandbox="allow-scripts allow-downloads"'
            f' style="width:100%;height:{self.height}px;border:1px solid #8888"'
            ' title="hshap"></iframe>'
        )

    def __repr__(self) -> str:
        size = f"{len(self.document) / 1e6:.1f} MB"
        return (
            f"<NotebookPage: a page of {size}; show it in a notebook, or write it with "
            "hshap.export.page.write_page>"
        )


def notebook_page(
    explanation: Explanation,
    image: Array | None = None,
    *,
    name: str = "image",
    height: int = 640,
) -> NotebookPage:
    """Return the page of one explanation, for a notebook; `explanation.view()` calls this.

    Without `image`, the page shows the findings on grey. `name` is the name of the class or of the
    image in the page, `height` that of the frame in pixels of the screen.

    >>> from hshap.demo import example
    >>> "srcdoc" in notebook_page(example())._repr_html_()
    True
    """
    tall = checks.integer("height", height, minimum=LEAST)
    pixels = np.full(explanation.grid, GREY, dtype=np.uint8) if image is None else image
    source = explanation.settings.source
    label = str(source.get("class", f"target {explanation.target}"))
    view = View(name, pixels, {label: explanation})
    return NotebookPage(as_document([view], f"hshap: {name}"), tall)


def _checked(views: object) -> Iterable[View]:
    """Return the views: a list is checked at once, others as they come."""
    if isinstance(views, (View, Mapping, str)) or not isinstance(views, Iterable):
        message = f"views is {checks.shown(views)}; pass a list of views, such as [View(...)]"
        raise ArgumentError(message)
    each = _each(cast("Iterable[object]", views))
    return list(each) if isinstance(views, Sequence) else each


def _each(views: Iterable[object]) -> Iterator[View]:
    position = -1
    for position, view in enumerate(views):
        if not isinstance(view, View):
            message = f"views[{position}] is {checks.shown(view)}; pass a View"
            raise ArgumentError(message)
        yield view
    if position == -1:
        message = "views is empty; pass at least one View"
        raise ArgumentError(message)
