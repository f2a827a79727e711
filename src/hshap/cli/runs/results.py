"""The results of a run: the files in its folder, and the columns and rows of its table."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.version import __version__
from hshap._util.visible import as_text, visible
from hshap.cli.inputs.choices import with_source
from hshap.cli.output import Names, say, say_notes
from hshap.cli.progress import each
from hshap.cli.runs.journal import Journal
from hshap.cli.runs.originals import Originals
from hshap.cli.runs.record import PAGE, SUMMARY, write_summary
from hshap.explanation.concerns import HowSure
from hshap.explanation.display import heading
from hshap.explanation.explanation import Explanation
from hshap.explanation.guarantees.calibration import marked_area, with_calibration
from hshap.explanation.placement import Placement
from hshap.export.page import write_page
from hshap.formats.scan import UPRIGHT
from hshap.plot.figures import literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hshap._util.types import Json
    from hshap.cli.runs.folders import Place
    from hshap.cli.runs.originals import Scale
    from hshap.cli.runs.plan import Asked, Plan
    from hshap.cli.runs.resume import Earlier, Removed
    from hshap.explanation.guarantees.calibration import Calibration
    from hshap.export.page import View

SUFFIXES = (".npz", ".png")
MARGIN = 0.05
"""Inches around a picture."""
HEADINGS = ("image", "class", "score", "baseline", "findings", "area", "evaluations", "how sure")


@dataclass(frozen=True)
class Done:
    """A result that is on the disk: the name of its files, and the facts that tables need.

    The explanation itself is read again for the page, else memory would grow with the run.
    """

    name: str
    file: Path
    facts: dict[str, Json]
    row: tuple[str, ...]
    verdict: HowSure

    @classmethod
    def of(cls, name: str, file: Path, explanation: Explanation) -> Done:
        """Return the facts of an explanation that was saved to a file."""
        document, row = _document(name, explanation), _row(explanation)
        return cls(name, file, document, row, explanation.how_sure)

    @property
    def explanation(self) -> Explanation:
        """The explanation, from its file."""
        return Explanation.load(self.file)

    @property
    def files(self) -> list[str]:
        """The names of its files: a negative image has no picture."""
        return [f"{self.name}{suffix}" for suffix in SUFFIXES[: 2 if self.is_explained else 1]]

    @property
    def is_explained(self) -> bool:
        """Whether it is an explanation, and not a negative image that was looked at."""
        return bool(self.facts["explained"])


class Results:
    """The results of a plan, written to a folder as they come."""

    def __init__(
        self, plan: Plan, place: Place, scale: Scale, calibration: Calibration | None = None
    ) -> None:
        self.summary: dict[str, Json] = {}
        self.rule = ""
        self.page_error: OSError | None = None
        self.kept: dict[str, str] = {}
        self._plan, self._place = plan, place
        self._originals = Originals(plan.reader, scale)
        self._names = Names(Path(name).stem for name in place.others if name.endswith(SUFFIXES))
        self._done: dict[tuple[Path, int], Done] = {}
        self._journal = Journal(place.path)
        self._bases: dict[Path, str] = {}
        self._removed: list[Json] = []
        self._earlier = 0
        self._is_told = False
        self._calibration = calibration

    @property
    def total(self) -> int:
        """The number of images that the command names, bad ones included."""
        files = self._plan.files
        return len(files) + sum(bad.path not in files for bad in self._plan.bad)

    def begin(self, run: Mapping[str, Json], *, resumed: bool) -> None:
        """Note the settings of the run, so that a sudden end loses no finished image."""
        facts: dict[str, Json] = {"hshap": __version__, "command": "explain", **run}
        self.rule = str(run["explained"])
        facts |= {"evaluations": 0, "total": self.total, "removed": self._removed}
        self._journal.begin(facts, resumed=resumed)

    def take_over(self, images: Sequence[Earlier], removed: Sequence[Removed]) -> None:
        """Add results of an earlier run, before any new one; their files stay as they are.

        Images that were `removed` keep their results and their entries, and are not on the page.
        """
        for entry, names in removed:
            self._removed.append(entry)
            self.kept |= {file: self._place.ours[file] for file in names}
            for stem in {Path(file).stem for file in names}:
                self._names.new(stem)
        for image in images:
            self._plan.asked.append(image.asked)
            for number, file in image.found.items():
                name, explanation = self._names.new(file.stem), Explanation.load(file)
                done = Done.of(name, file, explanation)
                self._done[image.asked.path, number] = done
                self.kept |= {name: self._place.ours[name] for name in done.files}
            self._earlier += 1

    def add(self, explanation: Explanation) -> None:
        """Write an explanation and its picture."""
        asked, wanted = self.image(explanation.position), self._plan.format
        if asked.path not in self._plan.shown:
            return  # another class of this image has failed
        number = explanation.class_index
        if number is None:  # cannot be: every target of a plan is an output of the model
            message = f"target {explanation.target!r} is not an output of the model"
            raise TypeError(message)
        name = self._base(asked.path)
        if len(asked.classes) > 1:
            name = self._names.new(f"{name}-{wanted.name(number)}")
        source = {
            "image": as_text(asked.path.name),
            "class": wanted.name(number),
            "model": self._plan.loaded.name,
        }
        original = asked.resized_from or explanation.grid
        placement = Placement(explanation.grid, original, *wanted.seen(original))
        if asked.orientation != UPRIGHT:
            source["orientation"] = str(asked.orientation)
        if self._plan.reader.frame is not None:
            source["frame"] = str(self._plan.reader.frame)
        kept = replace(with_source(explanation, source), placement=placement)
        if self._calibration is not None and kept.is_explained:
            kept = with_calibration(kept, self._calibration)
        file = self._place.path / f"{name}.npz"
        kept.save(file)
        if kept.is_explained:
            self._tell_choices(asked, kept)
            self._draw(asked, kept, name)
        self._done[asked.path, number] = Done.of(name, file, kept)
        if self._is_finished(asked):
            del self._plan.shown[asked.path]  # else the memory would grow with the run
            done = [self._done[asked.path, one] for one in asked.classes]
            self._journal.note(self._document(asked), [file for one in done for file in one.files])

    def _tell_choices(self, asked: Asked, explanation: Explanation) -> None:
        """Tell the choices that were made for the first image that is explained."""
        chosen = explanation.settings.chosen
        if chosen and not self._is_told:
            self._is_told = True
            say(f"{asked.path.name}: {chosen}; options override these choices, made for each image")

    def _draw(self, asked: Asked, kept: Explanation, name: str) -> None:
        """Write the picture of an explanation."""
        shown = self._plan.shown[asked.path].astype(np.float32) / np.float32(255)
        title = literal(f"{visible(asked.path.name)[-40:]}: {visible(heading(kept))}")
        figure = kept.plot(shown, title=title)
        figure.set_layout_engine("none")  # the usual one takes as long as all the rest
        figure.savefig(
            self._place.path / f"{name}.png",
            dpi=140,
            bbox_inches="tight",  # without the blank margins around a narrow picture
            pad_inches=MARGIN,
            metadata={"Software": f"hshap {__version__}"},
        )

    def give_up(self, path: Path) -> None:
        """Forget the pixels of an image that cannot be explained."""
        self._plan.shown.pop(path, None)

    def image(self, position: int) -> Asked:
        """Return the image at a position of the explainer's pairs."""
        return self._plan.asked[self._earlier + position]

    def _base(self, path: Path) -> str:
        """Return the beginning of the names of an image's files."""
        if not self._bases:  # in the order of the command, after the names of an earlier run
            done = {path for path, _ in self._done}
            new = (file for file in self._plan.files if file not in done)
            self._bases = {file: self._names.new(file.stem) for file in new}
        return self._bases[path]

    def finished(self) -> list[Asked]:
        """Return the images whose classes are all explained, in the order of the command."""
        order = {path: number for number, path in enumerate(self._plan.files)}
        whole = [asked for asked in self._plan.asked if self._is_finished(asked)]
        return sorted(whole, key=lambda asked: order[asked.path])

    def _is_finished(self, asked: Asked) -> bool:
        return all((asked.path, number) in self._done for number in asked.classes)

    @property
    def negative(self) -> int:
        """The number of finished images of which no class is explained."""
        return sum(
            not any(self._done[asked.path, number].is_explained for number in asked.classes)
            for asked in self.finished()
        )

    def close(self, run: Mapping[str, Json], *, evaluations: int, stopped: bool) -> None:
        """Write the page and the record of the run, and complete `summary`.

        `run` has the settings of the run. If it was stopped, images that are not finished leave no
        files, and files of an earlier run stay.
        """
        plan, place, images = self._plan, self._place, self.finished()
        self._drop_unfinished(images)
        state = f" ({len(images)} of {self.total} images)" if len(images) < self.total else ""
        page = self._write_page(images, f"hshap: {plan.loaded.name}{state}")
        if stopped:
            self.kept = {
                n: d for n, d in place.ours.items() if n not in (PAGE, SUMMARY) and "/" not in n
            } | self.kept
        summary: dict[str, Json] = {
            "hshap": __version__,
            "command": "explain",
            **run,
            "evaluations": evaluations,
            "interrupted": stopped,
            "done": len(images),
            "negative": self.negative,
            "total": self.total,
            "skipped": [
                {"image": as_text(str(b.path)), "reason": as_text(b.line)} for b in plan.bad
            ],
            "page": page,
            "images": [self._document(asked) for asked in images],
            "removed": self._removed,
        }
        self.summary = write_summary(place.path, summary, self.kept)

    def _drop_unfinished(self, images: Sequence[Asked]) -> None:
        names = {self._done[asked.path, n].name for asked in images for n in asked.classes}
        for file in list(self._place.path.iterdir()):
            if file.stem not in names:
                file.unlink()

    def _write_page(self, images: Sequence[Asked], title: str) -> str | None:
        """Write the page and return its name; None if the disk has no room for it."""
        views = self._views(images)
        try:
            write_page(self._place.path / PAGE, views, title=title)
            say_notes(self._originals.notes)
        except OSError as error:
            self.page_error = error
            return None
        return PAGE

    def _views(self, images: Sequence[Asked]) -> Iterator[View]:
        """Yield the images of the page, each read from its file when its turn comes."""
        with each("writing the page", images) as some:
            for asked in some:
                found = {
                    self._plan.format.name(number): self._done[asked.path, number].explanation
                    for number in asked.classes
                }
                size = asked.resized_from or asked.size
                yield self._originals.view(asked.path, asked.sha256, size, found)

    def _document(self, asked: Asked) -> dict[str, Json]:
        return {
            "image": as_text(str(asked.path)),
            "sha256": asked.sha256,
            "template_sha256": asked.template_sha256,
            "size": list(asked.resized_from or asked.size),
            "explained_size": list(asked.size),
            "resized_from": asked.resized_from and list(asked.resized_from),
            "explanations": [
                {
                    "class": self._plan.format.name(number),
                    "target": number,
                    **self._done[asked.path, number].facts,
                }
                for number in asked.classes
            ],
        }

    def concerns(self) -> list[str]:
        """Return the verdict on each explanation with a concern, in the order of the command."""
        return [
            f"{asked.path.name}{about}: {verdict}"
            for asked in self.finished()
            for number in asked.classes
            for about in [f" ({self._plan.format.name(number)})" if len(asked.classes) > 1 else ""]
            for verdict in [self._done[asked.path, number].verdict]
            if verdict.is_concern
        ]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the rows of the table that ends a run, under `HEADINGS`."""
        for asked in self.finished():
            for number in asked.classes:
                name = self._plan.format.name(number)
                yield (asked.path.name, name, *self._done[asked.path, number].row)


def _area(explanation: Explanation) -> float:
    """Return the share of the image that the leaves cover."""
    return sum(leaf.area for leaf in explanation.leaves) / prod(explanation.grid)


def _promise(explanation: Explanation) -> dict[str, Json]:
    """Return the promise of a calibration, and the share of the image that it marks."""
    if explanation.calibration is None:
        return {}
    marked = float(marked_area(explanation).mean())
    return {"promise": str(explanation.calibration), "marked_area": marked}


def _row(one: Explanation) -> tuple[str, ...]:
    """Return the columns of the table that ends a run, after image and class."""
    found = (str(len(one.boxes())), f"{_area(one):.1%}") if one.is_explained else ("negative", "")
    return (
        f"{one.score:.4g}",
        f"{one.baseline_score:.4g}",
        *found,
        str(one.evaluations),
        one.how_sure.word + "".join(f" ({concern.kind})" for concern in one.concerns[:1]),
    )


def _document(name: str, explanation: Explanation) -> dict[str, Json]:
    picture = f"{name}.png" if explanation.is_explained else None
    return {**facts(explanation), "explanation": f"{name}.npz", "picture": picture}


def facts(explanation: Explanation) -> dict[str, Json]:
    """Return the entry of an explanation in a record, but for its class and its files."""
    return {
        "score": explanation.score,
        "baseline_score": explanation.baseline_score,
        "explained": explanation.is_explained,
        "negative": explanation.negative or None,
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
        "how_sure": explanation.how_sure.word,
        "concerns": [asdict(concern) for concern in explanation.concerns],
        "chosen": explanation.settings.chosen or None,
        **_promise(explanation),
        "provenance": asdict(explanation.provenance),
        "evaluations": explanation.evaluations,
        "seconds": explanation.seconds,
    }
