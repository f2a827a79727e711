"""Find where in an image a classifier saw what it says: exact hierarchical Shapley values."""

from hshap import export, metrics, plot, theory
from hshap.audit import Audit
from hshap.bags import Bags
from hshap.baselines import (
    Blur,
    Conditional,
    Constant,
    Fixed,
    Mean,
    References,
    Still,
)
from hshap.engine import Progress
from hshap.errors import (
    ArgumentError,
    FormatError,
    HshapError,
    MissingExtraError,
    ModelError,
    UnknownOptionError,
)
from hshap.evaluators import Batched
from hshap.explainer import Explainer, cycle_spin
from hshap.explanation import Explanation, Finding, Reading
from hshap.incremental import Incremental
from hshap.partitions import Bisection, Dyadic, Shifted
from hshap.regions import Box, Pixels, Region, Rolled
from hshap.samplers import Similar
from hshap.search import BreadthFirst, DepthFirst, Found, Game
from hshap.shapley import shapley
from hshap.spin import Spin
from hshap.spots import Spots
from hshap.superpixels import Superpixels
from hshap.tokens import Tokens
from hshap.version import __version__

__all__ = [
    "ArgumentError",
    "Audit",
    "Bags",
    "Batched",
    "Bisection",
    "Blur",
    "Box",
    "BreadthFirst",
    "Conditional",
    "Constant",
    "DepthFirst",
    "Dyadic",
    "Explainer",
    "Explanation",
    "Finding",
    "Fixed",
    "FormatError",
    "Found",
    "Game",
    "HshapError",
    "Incremental",
    "Mean",
    "MissingExtraError",
    "ModelError",
    "Pixels",
    "Progress",
    "Reading",
    "References",
    "Region",
    "Rolled",
    "Shifted",
    "Similar",
    "Spin",
    "Spots",
    "Still",
    "Superpixels",
    "Tokens",
    "UnknownOptionError",
    "__version__",
    "cycle_spin",
    "export",
    "metrics",
    "plot",
    "shapley",
    "theory",
]
