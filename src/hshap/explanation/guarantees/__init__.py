"""Guarantees: tests of regions, calibrated areas, carriers of the score. No model is called here.

`Explainer.test` makes the draws that the tests need.

>>> import hshap
>>> found = hshap.demo.example()
>>> hshap.guarantees.carriers({"a.png": (found, found.saliency() > 0)}).means["objects"].value
1.0
"""

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

__all__ = [
    "Calibration",
    "Carried",
    "Carriers",
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
