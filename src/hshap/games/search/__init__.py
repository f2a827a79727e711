"""Searches: which games to play, and which regions matter.

`protocol` has the contract. `paper` has the paper's two searches, and the first of them with a
tolerance that follows the score; `frontier` has the order of their visits, their limits, and the
rule that ends branches without a given size. `best_first` plays games in several contexts.
`group_testing` asks about unions of leaves instead of games.
A search never sees an image or a model.
"""

from hshap.games.search.best_first import BestFirst
from hshap.games.search.group_testing.search import GroupTesting
from hshap.games.search.paper import BreadthFirst, DepthFirst, Share
from hshap.games.search.protocol import Asking, Certificate, Question, Search, SearchResult, Steps

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
