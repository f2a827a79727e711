"""The images of a run, what is asked about each, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap._util.recipes import describe
from hshap._util.version import __version__
from hshap.cli.inputs.choices import TOP, classes_of, settled
from hshap.cli.inputs.images import Reader, read
from hshap.cli.inputs.models import Loaded, probe
from hshap.cli.output import SUMMARY, Names, plain, say
from hshap.export import page as viewer
from hshap.games.targets import Output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hshap.cli.inputs.formats import Format
    from hshap.explainer import Explainer
    from hshap.explanation.explanation import Explanation

PAGE = "index.html"


@dataclass(frozen=True)
class Asked:
    """An image of a run: as it is shown, the classes asked about, and the size of its file."""

    path: Path
    shown: NDArray[np.uint8]
    classes: tuple[int, ...]
    resized_from: tuple[int, int] | None


@dataclass(frozen=True)
class Plan:
    """The images of a run, and the targets that options name."""

    loaded: Loaded
    reader: Reader
    targets: tuple[str, ...]
    files: tuple[Path, ...]
    asked: dict[int, Asked] = field(default_factory=dict[int, Asked])

    @property
    def format(self) -> Format:
        """What the model wants."""
        return self.reader.format

    def check(self) -> NDArray[np.float64]:
        """Read every image, before hours are spent, and ask the model about the first."""
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

    def pairs(self, outputs: NDArray[np.float64]) -> Iterator[tuple[Any, list[Any]]]:
        """Yield images and targets as the explainer wants them, read as they are needed.

        `outputs` are the model's on the first image; others are asked for where targets need them.
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
    """What came of a plan, written to a folder as it comes."""

    def __init__(self, plan: Plan, explainer: Explainer, out: Path) -> None:
        self._plan, self._explainer, self._out = plan, explainer, out
        self._names = Names()
        self._bases = [self._names.new(file.stem) for file in plan.files]
        self._done: dict[tuple[int, int], tuple[str, Explanation]] = {}

    def add(self, explanation: Explanation) -> None:
        """Write an explanation and its picture."""
        position, wanted = explanation.position, self._plan.format
        asked = self._plan.asked[position]
        number = explanation.class_index
        if number is None:  # never so: every target of a plan is an output of the model
            message = f"target {explanation.target!r} is no output of the model"
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
        area = _told(name, kept)["area"]
        title = (
            f"{plain(asked.path.name)[-40:]}: {wanted.name(number)[:30]}, {area:.1%} of the area"
        )
        # Dollars would be taken for formulas.
        kept.plot(shown, title=title.replace("$", r"\$")).savefig(
            self._out / f"{name}.png", dpi=120
        )
        self._done[position, number] = (name, kept)

    def close(self, *, baseline: str, evaluations: int) -> dict[str, Any]:
        """Write the page, and return all that is to be told about the run."""
        plan = self._plan
        images, views = [], []
        for position in range(len(plan.files)):
            asked = plan.asked[position]
            found = {number: self._done[position, number] for number in asked.classes}
            images.append(
                {
                    "image": plain(str(asked.path)),
                    "size": list(asked.shown.shape[1:]),
                    "resized_from": asked.resized_from and list(asked.resized_from),
                    "explanations": [
                        {"class": plan.format.name(number), "target": number, **_told(*pair)}
                        for number, pair in found.items()
                    ],
                }
            )
            classes = {plan.format.name(number): kept for number, (_, kept) in found.items()}
            views.append(viewer.View(plain(asked.path.name), asked.shown, classes))
        viewer.write_page(self._out / PAGE, views, title=f"hshap: {plan.loaded.name}")
        files = sorted([SUMMARY, *(file.name for file in self._out.iterdir())])
        return {
            "hshap": __version__,
            "command": "explain",
            "model": plan.loaded.name,
            "device": plan.loaded.device,
            "output": plan.format.output,
            "baseline": {"option": baseline, **describe(self._explainer.baseline)},
            "partition": describe(self._explainer.partition),
            "search": describe(self._explainer.search),
            "evaluations": evaluations,
            "page": PAGE,
            "files": files,
            "images": images,
        }


def rows(summary: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the lines of a run's table."""
    for image in summary["images"]:
        for one in image["explanations"]:
            yield (
                Path(image["image"]).name,
                one["class"],
                f"{one['score']:.4g}",
                f"{one['baseline_score']:.4g}",
                str(len(one["regions"])),
                f"{one['area']:.1%}",
                str(one["evaluations"]) + ("" if one["complete"] else " (budget)"),
            )


def _told(name: str, explanation: Explanation) -> dict[str, Any]:
    height, width = explanation.grid
    return {
        "score": explanation.score,
        "baseline_score": explanation.baseline_score,
        "area": sum(leaf.area for leaf in explanation.leaves) / (height * width),
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
