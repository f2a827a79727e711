"""ShapBPT of shap-bpt: Owen values over a tree of regions that follow the image's own shapes.

It explains the softmax of column 1 and hides with the baseline. A batch is 10 rows, not the
package's 64: it splits the most relevant regions first, and with large batches splits many before
it knows which those are. With 100 evaluations that cost it a fifth of its average precision on 20
synthetic images, and more where there were several crosses.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core.protocol import Method
from benchmarks.methods.common import PRESENT, as_rgb, package, scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Image, Map, Subject

BUDGETS = (100, 500)
BATCH = 10
ENDS = 2  # the whole image and the bare baseline, which the package does not count


def _explain(subject: Subject, image: Image, budget: int) -> Map:
    shap_bpt = package("shap_bpt")

    def score(masks: NDArray[np.bool_]) -> NDArray[Any]:
        shown = np.where(masks[:, None], image, subject.baseline)
        # One column: else it would pick the classes to explain by their scores.
        return scores(subject.model, shown)[:, [PRESENT]]

    # The tree is built from bytes; the model still sees the image as it is.
    pixels = np.rint(as_rgb(image) * 255).astype(np.uint8)
    explainer = shap_bpt.Explainer(score, pixels, num_explained_classes=1)
    return explainer.explain_instance(max_evals=budget - ENDS, batch_size=BATCH)[0]


def at(budget: int) -> Method:
    """Return ShapBPT with that many evaluations."""
    explain = partial(_explain, budget=budget)
    return Method(f"shap-bpt {budget}", "shap-bpt", explain, package="shap-bpt")


METHODS = tuple(map(at, BUDGETS))
