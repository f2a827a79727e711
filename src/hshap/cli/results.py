"""The results of a run: the files in its folder, and the columns and rows of its table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util.recipes import describe
from hshap._util.version import __version__
from hshap.cli.inputs.choices import TOP, classes_of, settled
from hshap.cli.inputs.images import Reader, read
from hshap.cli.inputs.models import Loaded, probe
from hshap.cli.output import SUMMARY, Names, plain, say
from hshap.export.page import View, write_page
from hshap.games.targets import Output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from hshap._util.types import Heat, Image, Json
    from hshap.cli.inputs.formats import Format
    from hshap.explainer import Explainer
    from hshap.explanation.explanation import Explanation

PAGE = "index.html"
HEADINGS = ("image", "class", "score", "baseline", "findings", "area", "evaluations")


@dataclass(frozen=True)
class Asked:
    """An image of a run: its pixels for display, the classes to explain, its original size."""

    path: Path
    shown: NDArray[np.uint8]
    classes: tuple[int, ...]
    resized_from: tuple[int, int] | None


@dataclass(frozen=True)
class Plan:
    """The images of a run, and its targets as the options name them."""

    loaded: Loaded
    reader: Reader
    targets: tuple[str, ...]
    files: tuple[Path, ...]
    asked: dict[int, Asked] = field(default_factory=dict[int, Asked])

    @property
    def format(self) -> Format:
        """The format of the model's inputs and outputs."""
        return self.reader.format

    def check(self) -> Heat:
        """Read every image before a long run starts; return the model's outputs for the first."""
        outputs, notes = None, dict[str, Path]()
        for file in self.files:
            picture = read(file, self.reader)
            if picture.note:
                notes.setdefault(picture.note, file)
            if outputs is None:
                outputs = probe(self.loaded, self.format.scale(picture.pixels))
                classes_of(self.targets, outputs, self.format)
        for note, file in notes.items():
            say(f"{file}: {note}")
        return np.zeros(0) if outputs is None else outputs

    def pairs(self, outputs: Heat) -> Iterator[tuple[Image, list[Output]]]:
        """Yield images and targets for the explainer; an image is read when it is needed.

        `outputs` are the model's for the first image. If the target is the top class, the model is
        called on every other image too.
        """
        for position, file in enumerate(self.files):
            picture = read(file, self.reader)
            pixels = self.format.scale(picture.pixels)
            if position and (not self.targets or TOP in self.targets):
                outputs = probe(self.loaded, pixels)
            classes = classes_of(self.targets, outputs, self.format)
            self.asked[position] = Asked(file, picture.bytes(), classes, picture.resized_from)
            yield pixels, [Output(number, self.format.output) for number in classes]


class Results:
    """The results of a plan, written to a folder as they come."""

    def __init__(self, plan: Plan, explainer: Explainer, out: Path) -> None:
        self.summary: dict[str, Json] = {}
        self._plan, self._explainer, self._out = plan, explainer, out
        self._names = Names()
        self._bases = [self._names.new(file.stem) for file in plan.files]
        self._done: dict[tuple[int, int], tuple[str, Explanation]] = {}

    def add(self, explanation: Explanation) -> None:
        """Write an explanation and its picture."""
        position, wanted = explanation.position, self._plan.format
        asked = self._plan.asked[position]
        number = explanation.class_index
        if number is None:  # cannot be: every target of a plan is an output of the model
            message = f"target {explanation.target!r} is not an output of the model"
            raise TypeError(message)
        name = self._bases[position]
        if len(asked.classes) > 1:
            name = self._names.new(f"{name}-{wanted.name(number)}")
        source = {
            "image": plain(asked.path.name),
            "class": wanted.name(number),
            "model": self._plan.loaded.name,
        }
        kept = settled(explanation, self._explainer.search, source)
        kept.save(self._out / f"{name}.npz")
        shown = asked.shown.astype(np.float32) / np.float32(255)
        title = (
            f"{plain(asked.path.name)[-40:]}: {wanted.name(number)[:30]}, "
            f"{_area(kept):.1%} of the area"
        )
        # matplotlib would read text between dollars as a formula.
        kept.plot(shown, title=title.replace("$", r"\$")).savefig(
            self._out / f"{name}.png", dpi=120
        )
        self._done[position, number] = (name, kept)

    def close(self, *, baseline: str, evaluations: int) -> None:
        """Write the page and complete `summary`; `baseline` is the option in words."""
        plan = self._plan
        images: list[Json] = []
        views: list[View] = []
        for position in range(len(plan.files)):
            asked = plan.asked[position]
            found = {number: self._done[position, number] for number in asked.classes}
            images.append(
                {
                    "image": plain(str(asked.path)),
                    "size": list(asked.shown.shape[1:]),
                    "resized_from": asked.resized_from and list(asked.resized_from),
                    "explanations": [
                        {"class": plan.format.name(number), "target": number, **_document(*pair)}
                        for number, pair in found.items()
                    ],
                }
            )
            classes = {plan.format.name(number): kept for number, (_, kept) in found.items()}
            views.append(View(plain(asked.path.name), asked.shown, classes))
        write_page(self._out / PAGE, views, title=f"hshap: {plan.loaded.name}")
        described = describe(self._explainer.baseline)  # a mapping, as for any recipe
        self.summary = {
            "hshap": __version__,
            "command": "explain",
            "model": plan.loaded.name,
            "device": plan.loaded.device,
            "output": plan.format.output,
            "baseline": {"option": baseline, **cast("Mapping[str, Json]", described)},
            "partition": describe(self._explainer.partition),
            "search": describe(self._explainer.search),
            "evaluations": evaluations,
            "page": PAGE,
            "files": sorted([SUMMARY, *(file.name for file in self._out.iterdir())]),
            "images": images,
        }

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the rows of the table that ends a run, under `HEADINGS`."""
        for position, asked in sorted(self._plan.asked.items()):
            for number in asked.classes:
                _, one = self._done[position, number]
                yield (
                    plain(asked.path.name),
                    self._plan.format.name(number),
                    f"{one.score:.4g}",
                    f"{one.baseline_score:.4g}",
                    str(len(one.boxes())),
                    f"{_area(one):.1%}",
                    str(one.evaluations) + ("" if one.complete else " (budget)"),
                )


def _area(explanation: Explanation) -> float:
    """Return the share of the image that the leaves cover."""
    height, width = explanation.grid
    return sum(leaf.area for leaf in explanation.leaves) / (height * width)


def _document(name: str, explanation: Explanation) -> dict[str, Json]:
    return {
        "score": explanation.score,
        "baseline_score": explanation.baseline_score,
        "area": _area(explanation),
        "leaves": len(explanation.leaves),
        "regions": [
            {"start": list(box.start), "stop": list(box.stop), "score": box.score}
            for box in explanation.boxes()
        ],
        "complete": explanation.complete,
        "or_gap": explanation.audit.gap,
        "carried": explanation.audit.carried,
        "doubt": explanation.audit.doubt,
        "evaluations": explanation.evaluations,
        "seconds": explanation.seconds,
        "explanation": f"{name}.npz",
        "picture": f"{name}.png",
    }
