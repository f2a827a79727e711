"""How well a classifier does on a set of images, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hshap.metrics import roc_auc, wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

DRAWS = 1000
TAILS = (0.025, 0.975)


def judge(scores: ArrayLike, labels: ArrayLike, seed: int) -> dict[str, Any]:
    """Return accuracy and AUC with 95 % intervals; a score above 0 says that the concept is there.

    Without images of both classes there is no AUC, and its entries are None.
    """
    values, truth = np.asarray(scores, np.float64), np.asarray(labels, bool)
    correct = int(np.count_nonzero((values > 0) == truth))
    share, *limits = wilson(correct, len(truth))
    both = bool(truth.any() and not truth.all())
    return {
        "images": len(truth),
        "positive": int(truth.sum()),
        "correct": correct,
        "accuracy": share,
        "wilson_95": limits,
        "auc": roc_auc(values, truth) if both else None,
        "auc_95": _auc_limits(values, truth, seed) if both else None,
    }


def _auc_limits(
    scores: NDArray[np.float64], labels: NDArray[np.bool_], seed: int
) -> Sequence[float]:
    """Resample images within each class: a draw without one of them would have no AUC."""
    rng = np.random.default_rng(seed)
    classes = [scores[labels], scores[~labels]]
    truth = np.repeat([True, False], [len(part) for part in classes])
    drawn = [
        roc_auc(np.concatenate([rng.choice(part, len(part)) for part in classes]), truth)
        for _ in range(DRAWS)
    ]
    return np.quantile(drawn, TAILS).tolist()
