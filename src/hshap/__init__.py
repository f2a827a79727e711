"""Find the regions of an image that drive a classifier's score, by exact hierarchical games."""

from sys import modules as _modules

from hshap import demo, export, metrics, plot, runs, testing
from hshap._util.version import __version__
from hshap.baselines.protocol import Baseline, Still
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
from hshap.errors import (
    ArgumentError,
    FormatError,
    HshapError,
    MissingExtraError,
    ModelError,
    ModelFailedError,
    PairsFailedError,
    UnknownOptionError,
)
from hshap.evaluators import models
from hshap.evaluators.allocator import keep_memory
from hshap.evaluators.bags import Bags
from hshap.evaluators.batched import Batched
from hshap.evaluators.canvas import Canvas, Row
from hshap.evaluators.incremental.recipe import CostPolicy, Incremental
from hshap.evaluators.protocol import Evaluator, Provenance, Session
from hshap.evaluators.tiles import Tiles
from hshap.evaluators.tokens import Tokens
from hshap.explainer import Explainer, drop_ins
from hshap.explainer.predicting import PredictedCost, predicted_cost
from hshap.explainer.slicing import explain_slices
from hshap.explainer.spinning import cycle_spin
from hshap.explainer.tiling import explain_tiles
from hshap.explanation.audit import Audit
from hshap.explanation.concerns import Concern, HowSure
from hshap.explanation.explanation import Explanation
from hshap.explanation.findings import Finding, Reading, SignificantFinding
from hshap.explanation.guarantees.agreement import Agreement, agreement
from hshap.explanation.guarantees.calibration import Calibration, calibrate
from hshap.explanation.guarantees.carriers import Carried, Carriers, carriers
from hshap.explanation.guarantees.significance import Significance, TestedRegion, Tests
from hshap.explanation.placement import Placement
from hshap.explanation.settings import Settings
from hshap.explanation.slices import FoundSlice, found_slices, slice_coefficients
from hshap.explanation.spin import Spin
from hshap.explanation.tiled import TiledExplanation
from hshap.export import page as viewer
from hshap.formats.large.opening import open_image
from hshap.formats.large.protocol import LargeImage
from hshap.formats.reading import read_image
from hshap.formats.scan import Scan
from hshap.games import theory
from hshap.games.decisions import Positives
from hshap.games.engine import Progress
from hshap.games.game import Game
from hshap.games.search import (
    BestFirst,
    BreadthFirst,
    Certificate,
    DepthFirst,
    GroupTesting,
    Question,
    Search,
    SearchResult,
    Share,
)
from hshap.games.shapley import shapley
from hshap.games.targets import Output
from hshap.partitions.grids import Bisection, Dyadic, Shifted
from hshap.partitions.protocol import Partition, Region
from hshap.partitions.regions import Box, Pixels, Rolled
from hshap.partitions.spots import Spots
from hshap.partitions.superpixels import Superpixels

__all__ = [
    "Agreement",
    "ArgumentError",
    "Audit",
    "Bags",
    "Baseline",
    "Batched",
    "BestFirst",
    "Bisection",
    "Blur",
    "Box",
    "BreadthFirst",
    "Calibration",
    "Canvas",
    "Carried",
    "Carriers",
    "Certificate",
    "Concern",
    "Conditional",
    "Constant",
    "CostPolicy",
    "DepthFirst",
    "Dyadic",
    "Evaluator",
    "Explainer",
    "Explanation",
    "Finding",
    "Fixed",
    "FormatError",
    "FoundSlice",
    "Game",
    "GroupTesting",
    "HowSure",
    "HshapError",
    "Incremental",
    "LargeImage",
    "Mean",
    "MissingExtraError",
    "ModelError",
    "ModelFailedError",
    "Output",
    "OwnColour",
    "PairsFailedError",
    "Partition",
    "Pixels",
    "Placement",
    "Positives",
    "PredictedCost",
    "Progress",
    "Provenance",
    "Question",
    "Reading",
    "References",
    "Region",
    "Rolled",
    "Row",
    "Scan",
    "Search",
    "SearchResult",
    "Session",
    "Settings",
    "Share",
    "Shifted",
    "Significance",
    "SignificantFinding",
    "Similar",
    "Spin",
    "Spots",
    "Still",
    "Superpixels",
    "TestedRegion",
    "Tests",
    "TiledExplanation",
    "Tiles",
    "Tokens",
    "UnknownOptionError",
    "__version__",
    "agreement",
    "calibrate",
    "carriers",
    "cycle_spin",
    "demo",
    "drop_ins",
    "explain_slices",
    "explain_tiles",
    "export",
    "found_slices",
    "keep_memory",
    "metrics",
    "models",
    "open_image",
    "plot",
    "predicted_cost",
    "read_image",
    "runs",
    "shapley",
    "slice_coefficients",
    "testing",
    "theory",
    "viewer",
]

# `import hshap.theory` finds the module by its public name, as `import os.path` does.
_modules["hshap.drop_ins"] = drop_ins
_modules["hshap.models"] = models
_modules["hshap.theory"] = theory
_modules["hshap.viewer"] = viewer
