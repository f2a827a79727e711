"""The page inside a notebook: a frame that holds the whole page."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap.export.page.view import View
from hshap.export.page.writing import as_document

if TYPE_CHECKING:
    from hshap._util.types import Array
    from hshap.explanation.explanation import Explanation

GREY = 200
"""Brightness of the picture if no image is given."""

LEAST = 200
"""The least height of a frame, in pixels of the screen."""


@dataclass(frozen=True, repr=False)
class Frame:
    """A page that a notebook shows in place.

    >>> from hshap.demo import example
    >>> frame(example()).height
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
            f"<Frame: a page of {size}; show it in a notebook, or write it with "
            "hshap.export.page.write_page>"
        )


def frame(
    explanation: Explanation,
    image: Array | None = None,
    *,
    name: str = "image",
    height: int = 640,
) -> Frame:
    """Return the page of one explanation, for a notebook; `explanation.view()` calls this.

    Without `image`, the page shows the findings on grey. `name` is the name of the class or of the
    image in the page, `height` that of the frame in pixels of the screen.

    >>> from hshap.demo import example
    >>> "srcdoc" in frame(example())._repr_html_()
    True
    """
    tall = checks.integer("height", height, minimum=LEAST)
    pixels = np.full(explanation.grid, GREY, dtype=np.uint8) if image is None else image
    source = explanation.settings.source
    label = str(source.get("class", f"target {explanation.target}"))
    view = View(name, pixels, {label: explanation})
    return Frame(as_document([view], f"hshap: {name}"), tall)
