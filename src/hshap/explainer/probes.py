"""Probes: a model's answers to fixed inputs, by which a resumed run recognises its model.

A model's code and weights cannot all be seen: a function may read a network, a file or a server.
Its answers can. A run notes those to fixed noise and to its first images, and asks again when it
is resumed. Two models that answer every probe alike cannot be told apart.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from math import ceil, isfinite, prod
from typing import TYPE_CHECKING

import numpy as np

from hshap.baselines.recipes import OwnColour
from hshap.evaluators.canvas import Backdrop, Row
from hshap.explainer.choosing_parts import whole
from hshap.explainer.readings import ImageReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hshap._util.types import Array, Heat, Image, Json, Untyped
    from hshap.evaluators.canvas import Canvas
    from hshap.evaluators.protocol import Session
    from hshap.explainer import Explainer

LEVELS = 16
"""Noise has this many amplitudes, so that a changed threshold lies between two of them."""

BLOCKS = 8
"""Blocks a side of coarse noise: networks answer it otherwise than noise of single pixels."""

ALONE = 4
"""Inputs that are also scored alone, to measure how far answers depend on the batch."""

ROUNDING, OTHER = 1e-6, 1e-4
"""Shares of the largest answer: beyond the first a difference is told, beyond the second refused.

Other machines and batches add in another order, which changes answers by less than the second.
"""


NOISE = "noise input"
"""Begins the names of probes that are noise."""

FAR = 100
"""Answers to noise set the scale for those to images up to this multiple, and the other way round.

A model may answer noise by far larger numbers, beside which a change on images would not show.
"""


@dataclass(frozen=True)
class Noise:
    """Inputs that depend on nothing but these four facts: the same on every machine.

    >>> noise = Noise((1, 4, 4), "<f4", 0.0, 1.0)
    >>> len(list(noise.inputs())), float(max(one.max() for one in noise.inputs())) <= 1.0
    (32, True)
    """

    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float

    @classmethod
    def like(cls, images: Sequence[Image]) -> Noise:
        """Return noise of the shape and type of the first image, and of the range of all.

        A range without width gets that of 1: noise of one value would hardly ask anything, and the
        first slices of a scan are often black.
        """
        low = min(float(image.min()) for image in images)
        high = max(float(image.max()) for image in images)
        return cls(images[0].shape, images[0].dtype.str, low, high if high > low else low + 1)

    def inputs(self) -> Iterator[Array]:
        """Yield fine and coarse noise, each with growing amplitude."""
        for level in range(1, LEVELS + 1):
            for blocks in (None, BLOCKS):
                yield self._input(level, blocks)

    def _input(self, level: int, blocks: int | None) -> Array:
        channels, *grid = self.shape
        sides = [ceil(side / blocks) if blocks else 1 for side in grid]
        coarse = [ceil(side / step) for side, step in zip(grid, sides, strict=True)]
        name = f"hshap probe {level} {blocks}".encode()
        # A hash gives the same bytes for ever, which no random generator promises.
        data = hashlib.shake_256(name).digest(channels * prod(coarse))
        values = np.frombuffer(data, np.uint8).reshape(channels, *coarse) / 255
        for axis, step in enumerate(sides, start=1):
            values = values.repeat(step, axis=axis)
        values = values[(slice(None), *(slice(side) for side in grid))]
        scaled = self.low + (self.high - self.low) * level / LEVELS * values
        kind = np.dtype(self.dtype)
        return (scaled if kind.kind == "f" else np.rint(scaled)).astype(kind)


@dataclass(frozen=True)
class Probes:
    """A model's answers: to noise in order, and to images by name, shown and hidden.

    `batch_difference` is the largest difference of an answer alone and in a batch.
    """

    noise: Noise | None
    answers: Mapping[str, Sequence[float]]
    batch_difference: float | None = None

    @property
    def rounding(self) -> float:
        """The difference up to which two values may be those of one input, in other batches."""
        return 4 * (self.batch_difference or 0.0)

    @property
    def document(self) -> dict[str, Json]:
        """The probes as JSON, with every digit."""
        noise = None if self.noise is None else {**asdict(self.noise)}
        # A text for each answer: one of a thousand classes stays on one line of a file.
        answers: dict[str, Json] = {
            name: " ".join(map(repr, one)) for name, one in self.answers.items()
        }
        return {"noise": noise, "answers": answers, "batch_difference": self.batch_difference}

    @classmethod
    def read(cls, document: Untyped) -> Probes:
        """Return the probes of a document; an error of its type or values if it is not one."""
        noise, answers = document["noise"], document["answers"]
        made = None
        if noise is not None:
            shape = tuple(int(side) for side in noise["shape"])
            if prod(shape) > 2**31 or np.dtype(noise["dtype"]).kind not in "fiub":
                raise ValueError("the noise has no usable shape and type")
            made = Noise(shape, str(noise["dtype"]), float(noise["low"]), float(noise["high"]))
        told = {str(name): [float(value) for value in one.split()] for name, one in answers.items()}
        difference = document["batch_difference"]
        return cls(made, told, None if difference is None else float(difference))


@dataclass(frozen=True)
class Difference:
    """The largest difference between two answers to one probe, as a share of all answers.

    `rounding` is the share that other batches explain.
    """

    share: float
    probe: str
    rounding: float

    @property
    def is_other(self) -> bool:
        """Whether the answers are those of another model."""
        return not self.share <= OTHER + self.rounding

    @property
    def is_noticed(self) -> bool:
        """Whether the answers differ by more than rounding in another batch."""
        return not self.share <= ROUNDING + self.rounding

    def __str__(self) -> str:
        if not np.isfinite(self.share):
            return f"it answers {self.probe} with other outputs"
        return f"its answers to {self.probe} differ by {self.share:.2g} of the largest one"


def ask(
    explainer: Explainer,
    images: Iterable[tuple[str, object]] = (),
    *,
    noise: Noise | None = None,
    layout: str | None = None,
) -> Probes:
    """Return the answers of an explainer's model to noise, and to images that have names.

    Without `noise`, it is like the images that can be read; images that fail are left out. The
    answer to an image with every pixel hidden is asked for, too, if the explainer has a baseline.

    >>> import hshap
    >>> explainer = hshap.Explainer(lambda batch: batch.mean(axis=(1, 2, 3)))
    >>> found = ask(explainer, [("a", np.ones((1, 8, 8)))])
    >>> found.answers["a shown"], found.batch_difference
    ([1.0], 0.0)
    """
    session = explainer.evaluator.open_session()
    reader = ImageReader(explainer.facts.intake, layout)
    answers: dict[str, list[float]] = {}
    scored: list[Image] = []
    for name, image in images:
        with suppress(Exception):  # the run itself says which images and models fail
            pixels = reader.read(image).pixels
            shown, *hidden = _canvases(explainer, session, pixels)
            rows = [Row(shown, (shown.root,), 0), *(Row(one, (), 0) for one in hidden)]
            outputs = np.concatenate([session.score([row]) for row in rows])
            scored.append(pixels)
            answers[f"{name} shown"] = outputs[0].tolist()
            answers |= {f"{name} hidden {n}": one.tolist() for n, one in enumerate(outputs[1:])}
    difference = None
    noise = noise or (Noise.like(scored) if scored else None)
    if noise is not None:
        with suppress(Exception):
            outputs, difference = _to_noise(session, noise)
            answers |= {f"{NOISE} {n}": one.tolist() for n, one in enumerate(outputs)}
    return Probes(noise, answers, difference)


def noted_probes(record: Mapping[str, Untyped] | None) -> Probes | None:
    """Return the probes in the record of a run; None if it has none that can be read.

    >>> noted_probes({"probes": "none"})
    """
    try:
        return Probes.read((record or {})["probes"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def compare(noted: Probes, now: Probes) -> Difference:
    """Return the largest difference between the answers to the probes that both have.

    >>> one, other = Probes(None, {"a": [1.0, 0.0]}), Probes(None, {"a": [1.0, 0.5]})
    >>> compare(one, one).is_other, str(compare(one, other))
    (False, 'its answers to a differ by 0.5 of the largest one')
    """
    both = noted.answers.keys() & now.answers.keys()
    is_same = noted.noise == now.noise
    shared = [name for name in noted.answers if name in both and (is_same or NOISE not in name)]
    kinds = [[name for name in shared if name.startswith(NOISE) == kind] for kind in (False, True)]
    sizes = [_largest(names, noted, now) for names in kinds]
    rounding, found = max(noted.rounding, now.rounding), Difference(0.0, "", 0.0)
    for names, own in zip(kinds, sizes, strict=True):
        scale = max(1e-12, min(max(sizes), FAR * own))
        for name in names:
            apart = _apart(np.array(noted.answers[name]), np.array(now.answers[name])) / scale
            one = Difference(apart, name, rounding / scale)
            found = max(found, one, key=lambda difference: difference.share - difference.rounding)
    return found


def _largest(names: Sequence[str], *probes: Probes) -> float:
    """Return the largest answer to some probes."""
    every = (value for one in probes for name in names for value in one.answers[name])
    return max((abs(value) for value in every if isfinite(value)), default=0.0)


def _apart(before: Heat, after: Heat) -> float:
    """Return the largest difference of two answers; infinite if only one has a number."""
    if before.shape != after.shape or (np.isnan(before) != np.isnan(after)).any():
        return np.inf
    with np.errstate(invalid="ignore"):  # infinite in both is equal
        apart = np.where(before == after, 0.0, np.abs(before - after))
    return float(np.nan_to_num(apart, nan=0.0, posinf=np.inf).max(initial=0.0))


def _canvases(explainer: Explainer, session: Session, pixels: Image) -> list[Canvas]:
    """Return a canvas that can show the image, and one for the baseline if it was given."""
    given = () if explainer.baseline is None else (explainer.baseline,)
    return [
        Backdrop(one, session.put).canvas(pixels, whole(pixels), position=0)
        for one in (OwnColour(), *given)
    ]


def _to_noise(session: Session, noise: Noise) -> tuple[Heat, float]:
    """Return the answers to noise in full batches, and how far they differ from those alone."""
    first = np.empty(noise.shape, np.dtype(noise.dtype))
    most = session.capacity(first.shape, first.itemsize)
    backdrop, inputs, found = Backdrop(OwnColour(), session.put), noise.inputs(), list["Heat"]()
    difference = 0.0
    while some := list(islice(inputs, most)):
        canvases = [backdrop.canvas(pixels, whole(pixels), position=0) for pixels in some]
        rows = [Row(canvas, (canvas.root,), 0) for canvas in canvases]
        outputs = session.score(rows)
        if not found and len(rows) > 1:
            # Weak noise among strong: a model that scales by its batch answers the weak otherwise.
            step = ceil(len(rows) / ALONE)
            alone = np.concatenate([session.score([row]) for row in rows[::step]])
            difference = float(np.abs(outputs[::step] - alone).max(initial=0.0))
        found.append(outputs)
    return np.concatenate(found), difference
