"""Conformance checks for parts of your own: an evaluator, a partition, a baseline or a search.

Each check runs a part on small inputs, compares its results with brute force, and returns a
`Report`. A part that breaks its contract raises `ConformanceError`, whose message lists every rule
that is broken. Every part of hshap passes the same checks in its own tests.

>>> import hshap
>>> print(hshap.testing.check_partition(hshap.Dyadic(min_size=2)))
Dyadic(min_size=2) passes 9 checks
"""

from hshap.testing.baseline import check_baseline
from hshap.testing.evaluator import check_evaluator
from hshap.testing.partition import check_partition
from hshap.testing.report import ConformanceError, Report
from hshap.testing.search import check_search

__all__ = [
    "ConformanceError",
    "Report",
    "check_baseline",
    "check_evaluator",
    "check_partition",
    "check_search",
]
