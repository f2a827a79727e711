"""Searches: which games to play, and which regions matter.

`protocol` has the contract, `depth_first` and `breadth_first` the two searches of the paper, and
`share` the first of them with a tolerance that follows the score. `frontier` has the order of
visits, `budget` their limits and `automatic_size` the rule that ends branches without a given size.
`group_testing` asks about unions of leaves instead of games: `hunt` has its groups, `order` the
leaves in a row, `strand` the way from a group to one leaf, and `answers` the scores.
`best_first` plays games in several contexts.
A search never sees an image or a model.
"""

from hshap.games.search.best_first import BestFirst
from hshap.games.search.breadth_first import BreadthFirst
from hshap.games.search.depth_first import DepthFirst
from hshap.games.search.group_testing import GroupTesting
from hshap.games.search.protocol import Asking, Certificate, Question, Search, SearchResult, Steps
from hshap.games.search.share import Share

__all__ = [
    "Asking",
    "BestFirst",
    "BreadthFirst",
    "Certificate",
    "DepthFirst",
    "GroupTesting",
    "Question",
    "Search",
    "SearchResult",
    "Share",
    "Steps",
]
