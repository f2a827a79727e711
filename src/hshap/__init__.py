"""Find the regions of an image that drive a classifier's score, by exact hierarchical games.

The names here are those of nearly every program. The rest is in chapters, such as `hshap.metrics`
or `hshap.large`. Names and chapters are loaded when they are asked for.
"""

from importlib import import_module
from sys import modules
from typing import TYPE_CHECKING

from hshap._util.version import __version__

if TYPE_CHECKING:
    from hshap import (
        demo,
        drop_ins,
        errors,
        export,
        guarantees,
        images,
        large,
        metrics,
        models,
        plot,
        protocols,
        runs,
        testing,
        theory,
        volumes,
    )
    from hshap.baselines.recipes import (
        Blur,
        Conditional,
        Constant,
        Fixed,
        Mean,
        OwnColour,
        References,
    )
    from hshap.baselines.samplers import Similar
    from hshap.errors import ArgumentError, FormatError, HshapError, ModelError
    from hshap.evaluators.allocator import keep_memory
    from hshap.evaluators.bags import Bags
    from hshap.evaluators.batched import Batched
    from hshap.evaluators.incremental.recipe import Incremental
    from hshap.evaluators.tokens import Tokens
    from hshap.explainer import Explainer
    from hshap.explainer.spinning import cycle_spin
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.findings import Finding
    from hshap.games.search import (
        BestFirst,
        BreadthFirst,
        DepthFirst,
        GroupTesting,
        Share,
    )
    from hshap.games.shapley import shapley
    from hshap.games.targets import Output, Positives
    from hshap.partitions.grids import Bisection, Dyadic, Shifted
    from hshap.partitions.spots import Spots
    from hshap.partitions.superpixels import Superpixels

__all__ = [
    "ArgumentError",
    "Bags",
    "Batched",
    "BestFirst",
    "Bisection",
    "Blur",
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
    "GroupTesting",
    "HshapError",
    "Incremental",
    "Mean",
    "ModelError",
    "Output",
    "OwnColour",
    "Positives",
    "References",
    "Share",
    "Shifted",
    "Similar",
    "Spots",
    "Superpixels",
    "Tokens",
    "__version__",
    "cycle_spin",
    "demo",
    "drop_ins",
    "errors",
    "export",
    "guarantees",
    "images",
    "keep_memory",
    "large",
    "metrics",
    "models",
    "plot",
    "protocols",
    "runs",
    "shapley",
    "testing",
    "theory",
    "volumes",
]

_MODULES = {
    "hshap.baselines.recipes": "Blur Conditional Constant Fixed Mean OwnColour References",
    "hshap.baselines.samplers": "Similar",
    "hshap.errors": "ArgumentError FormatError HshapError ModelError",
    "hshap.evaluators.allocator": "keep_memory",
    "hshap.evaluators.bags": "Bags",
    "hshap.evaluators.batched": "Batched",
    "hshap.evaluators.incremental.recipe": "Incremental",
    "hshap.evaluators.tokens": "Tokens",
    "hshap.explainer": "Explainer",
    "hshap.explainer.spinning": "cycle_spin",
    "hshap.explanation.explanation": "Explanation",
    "hshap.explanation.findings": "Finding",
    "hshap.games.search": "BestFirst BreadthFirst DepthFirst GroupTesting Share",
    "hshap.games.shapley": "shapley",
    "hshap.games.targets": "Output Positives",
    "hshap.partitions.grids": "Bisection Dyadic Shifted",
    "hshap.partitions.spots": "Spots",
    "hshap.partitions.superpixels": "Superpixels",
}
"""Where the names at the top are, as the imports above tell type checkers."""
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}

if not TYPE_CHECKING:  # checkers report unknown names by themselves

    def __getattr__(name: str) -> object:
        """Load a name of `__all__`, at its first use."""
        if name not in __all__:
            message = f"module 'hshap' has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=modules[__name__])
        if name not in _PLACES:
            return import_module(f"hshap.{name}")
        value = globals()[name] = getattr(import_module(_PLACES[name]), name)
        return value


def __dir__() -> list[str]:
    return __all__
