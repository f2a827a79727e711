"""The guarantees of an explanation, as its methods."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.explanation.guarantees.calibration import Calibration
from hshap.explanation.guarantees.significance import significance

if TYPE_CHECKING:
    from hshap._util.types import Mask
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.guarantees.significance import ErrorRate, Significance


class Guarantees:
    """Methods of an explanation that promise something; none of them calls a model.

    >>> import hshap
    >>> isinstance(hshap.demo.example(), Guarantees)
    True
    """

    def significance(self, *, error: ErrorRate = "family") -> Significance:
        """Return p-values, e-values and adjusted values of the regions that were tested.

        The null hypothesis of a region: on this image, whichever other parts of its game are shown,
        showing the region too leaves the distribution of the model's score unchanged, with hidden
        pixels drawn by the sampler. It is about the model, not about the object or the disease.

        `error` is "family": with a probability of at least `1 - alpha`, no region whose null is
        true has an adjusted value of at most `alpha`. Or it is "discovery": of the leaves with an
        adjusted value of at most `alpha`, the expected share whose null is true is at most `alpha`.
        `Explainer.test` makes the tests; without them, this is an `ArgumentError`.
        """
        return significance(cast("Explanation", self), error)

    def calibrated(self, calibration: Calibration) -> Explanation:
        """Return the same explanation with a calibration, whose promise `marked_area` keeps.

        The explanation must be made like those of the calibration; else it is refused with an
        `ArgumentError`.
        """
        given = cast("object", calibration)
        if not isinstance(given, Calibration):
            message = (
                f"calibration is {checks.shown(given)}; pass the result of hshap.calibrate, "
                "or Calibration.load(path)"
            )
            raise ArgumentError(message)
        calibration.area(cast("Explanation", self))  # refuses an explanation of another kind
        return replace(cast("Explanation", self), calibration=calibration)

    def marked_area(self) -> Mask:
        """Return the area around the findings that keeps the promise of the calibration."""
        own = cast("Explanation", self)
        if own.calibration is None:
            message = (
                "the explanation has no calibration; pass one from hshap.calibrate to "
                "explanation.calibrated(calibration)"
            )
            raise ArgumentError(message)
        return own.calibration.area(own)
