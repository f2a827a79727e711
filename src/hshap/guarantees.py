"""What an explanation promises: checks, tests of regions, calibrated areas, carriers of the score.

Nothing here calls a model. `Explainer.test` makes the draws that the tests need.

>>> import hshap
>>> found = hshap.demo.example()
>>> hshap.guarantees.carriers({"a.png": (found, found.saliency() > 0)}).means["objects"].value
1.0
"""

from hshap.explanation.audit import Audit
from hshap.explanation.concerns import Concern, HowSure
from hshap.explanation.guarantees.calibration import (
    Calibration,
    calibrate,
    marked_area,
    with_calibration,
)
from hshap.explanation.guarantees.carriers import Carried, Carriers, carriers
from hshap.explanation.guarantees.significance import (
    Significance,
    SignificantFinding,
    TestedRegion,
    Tests,
    significance,
)
from hshap.games.search import Certificate

__all__ = [
    "Audit",
    "Calibration",
    "Carried",
    "Carriers",
    "Certificate",
    "Concern",
    "HowSure",
    "Significance",
    "SignificantFinding",
    "TestedRegion",
    "Tests",
    "calibrate",
    "carriers",
    "marked_area",
    "significance",
    "with_calibration",
]
