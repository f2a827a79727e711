"""Compare dropping a region none of whose parts matters alone with keeping it whole.

Run `python -m benchmarks.experiments.keep_whole` from the root of the repository. It prints a
Markdown table of the mean F1 at the paper's threshold over synthetic images with a cross;
`docs/decisions/0005-drop-by-default.md` records the outcome.
"""

from __future__ import annotations

import numpy as np

from benchmarks.core.markdown import table
from benchmarks.datasets import synthetic
from hshap import Bisection, DepthFirst, Dyadic, Explainer, Fixed
from hshap.demo import bundled, load
from hshap.demo.run import probability_of_a_cross
from hshap.metrics import f1

SEED = 7
COUNT = 100


def main() -> None:
    """Print the table."""
    data = synthetic.generate(COUNT, SEED)
    images = data.images
    network, mean = load(), bundled()["mean"]
    chosen = np.flatnonzero(data.labels)
    rows: list[tuple[object, ...]] = []
    for partition in (Dyadic(4), Bisection(4), Dyadic(8), Bisection(8)):
        for tolerance in (0.0, 0.01, 0.05):
            scores = []
            for keep in (False, True):
                search = DepthFirst(tolerance, keep_whole=keep)
                explainer = Explainer(
                    network, baseline=Fixed(mean), partition=partition, search=search
                )
                pairs = ((images[i], probability_of_a_cross) for i in chosen)
                truths = data.truths[chosen]
                found = explainer.explain_many(pairs)
                scores.append(np.mean([f1(one.saliency(), truths[one.position]) for one in found]))
            rows.append((partition, tolerance, *(f"{score:.2f}" for score in scores)))
    print(table(["partition", "tolerance", "dropped (paper)", "kept whole"], rows))


if __name__ == "__main__":
    main()
