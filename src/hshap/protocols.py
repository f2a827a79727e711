"""Types to build parts of your own with, and types that calls return, for annotations.

A baseline, a partition, a search or an evaluator is any callable or object of the protocol here;
`hshap.testing` checks one.

>>> import hshap
>>> hshap.protocols.Box((0, 0), (2, 3)).area
6
"""

from hshap.baselines.protocol import Baseline, Still
from hshap.evaluators.canvas import Canvas, Row
from hshap.evaluators.incremental.recipe import CostPolicy
from hshap.evaluators.protocol import Evaluator, Provenance, Session
from hshap.explanation.settings import Settings
from hshap.explanation.spin import Spin
from hshap.games.engine import Progress
from hshap.games.game import Game
from hshap.games.search import Question, Search, SearchResult
from hshap.partitions.protocol import Partition, Region
from hshap.partitions.regions import Box, Pixels, Rolled

__all__ = [
    "Baseline",
    "Box",
    "Canvas",
    "CostPolicy",
    "Evaluator",
    "Game",
    "Partition",
    "Pixels",
    "Progress",
    "Provenance",
    "Question",
    "Region",
    "Rolled",
    "Row",
    "Search",
    "SearchResult",
    "Session",
    "Settings",
    "Spin",
    "Still",
]
