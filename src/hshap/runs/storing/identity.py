"""Identity: the digests of a model, of settings and of an image, which make that of a row.

A model is known by its answers to probes, and by the name that the caller gives it. Settings are
known by their description; code of the caller's own in them is not described, so a resumed run
explains an image again where there is any.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.recipes import PLAIN, describe
from hshap._util.version import __version__
from hshap.runs.storing.schema import SCHEMA

if TYPE_CHECKING:
    from hshap._util.types import Json
    from hshap.explainer import Explainer

NO_EFFECT = frozenset({"model", "batch_size", "check_batches"})
"""Options of evaluators that leave the scores as they are, and the model, which has its own."""


@dataclass(frozen=True)
class Fingerprint:
    """The digests of a run's model and of its settings."""

    model: str
    settings: str

    def identity(self, target: str, image_sha256: str) -> str:
        """Return the identity of a row.

        >>> len(Fingerprint("a", "b").identity("0", "c"))
        64
        """
        parts = (str(SCHEMA), self.model, self.settings, target, image_sha256)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def parts_of(explainer: Explainer) -> dict[str, object]:
    """Return all parts of an explainer that can change a result, but the model."""
    evaluator = explainer.evaluator
    options = fields(evaluator) if is_dataclass(evaluator) else ()
    effective = {one.name: getattr(evaluator, one.name) for one in options}
    return {
        "evaluator": {
            "type": type(evaluator).__qualname__,
            **{name: value for name, value in effective.items() if name not in NO_EFFECT},
        },
        "baseline": explainer.baseline,
        "partition": explainer.partition,
        "search": explainer.search,
    }


def digest_of_json(document: Json) -> str:
    """Return the SHA-256 of a document.

    >>> digest_of_json({"a": 1, "b": 2}) == digest_of_json({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def described_settings(settings: object) -> dict[str, Json]:
    """Return settings as a run folder has them: their description, and its digest."""
    told = describe(settings)
    return {"sha256": digest_of_json([__version__, told]), **told}  # pyright: ignore[reportGeneralTypeIssues]


def is_described(value: object) -> bool:
    """Tell whether the description of a value holds all of it: no code of the caller's is in it.

    >>> import hshap
    >>> is_described([hshap.Constant(0.0), {"a": 1}]), is_described(lambda image: image)
    (True, False)
    """
    if value is None or type(value) in PLAIN or isinstance(value, (np.ndarray, np.generic)):
        return True
    if isinstance(value, (list, tuple)):
        return all(map(is_described, value))
    if isinstance(value, dict):
        return all(map(is_described, value.values()))
    ours = type(value).__module__.partition(".")[0] == "hshap"
    if not ours or not is_dataclass(value):
        return False
    return all(is_described(getattr(value, one.name)) for one in fields(value))
