"""`explanation.view()`: the page in a notebook, from a higher layer, imported when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hshap._util.types import Array
    from hshap.explanation.explanation import Explanation
    from hshap.export.page.notebook import Frame


def frame(explanation: Explanation, image: Array | None, *, name: str, height: int) -> Frame:
    """Return the page of an explanation, for a notebook."""
    from hshap.export.page import notebook  # noqa: PLC0415, the page imports explanations

    return notebook.frame(explanation, image, name=name, height=height)
